"""A cache of k slots in an order that clients change (Sourlas et al. 2011, section 2.2).

>>> cache: SlotCache[str, str] = SlotCache(2)
>>> cache.put("m1", "first"), cache.put("m2", "second")
(None, None)
>>> cache.regenerate("m1")
>>> cache.put("m3", "third")
('m2', 'second')
>>> list(cache), cache.position("m1")
(['m3', 'm1'], 2)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class SlotCache(Generic[Key, Item]):
    """Up to `slots` items in an order, from the top slot to the bottom one."""

    def __init__(self, slots: int) -> None:
        if slots < 0:
            raise ValueError(f"a cache cannot have {slots} slots")
        self.slots = slots
        # From bottom to top: both ends of an ordered dictionary are accessible in constant time.
        self._items: OrderedDict[Key, Item] = OrderedDict()
        # Higher for items above, so that several items are sorted without a walk through all slots.
        self._heights: dict[Key, int] = {}
        self._highest = self._lowest = 0

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: Key) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[Key]:
        """Return the keys, from top to bottom."""
        return reversed(self._items)

    def __getitem__(self, key: Key) -> Item:
        return self._items[key]

    def position(self, key: Key) -> int:
        """Return the slot of an item, 1 at the top, by a walk from there."""
        for place, other in enumerate(self, start=1):
            if other == key:
                return place
        raise KeyError(key)

    def put(self, key: Key, item: Item) -> tuple[Key, Item] | None:
        """Place an item in the top slot; return the bottom item that leaves if all slots were used, else None."""
        if not self.slots:
            return key, item
        self._items[key] = item
        self._to_top(key)
        return self.take_bottom() if len(self._items) > self.slots else None

    def regenerate(self, *keys: Key) -> None:
        """Move items to the top; several keep their order among each other."""
        for key in sorted(keys, key=self._heights.__getitem__):
            self._to_top(key)

    def degrade(self, *keys: Key) -> None:
        """Move items to the bottom; several keep their order among each other."""
        for key in sorted(keys, key=self._heights.__getitem__, reverse=True):
            self._items.move_to_end(key, last=False)
            self._lowest -= 1
            self._heights[key] = self._lowest

    def remove(self, key: Key) -> Item:
        """Remove an item from any slot."""
        del self._heights[key]
        return self._items.pop(key)

    def take_bottom(self) -> tuple[Key, Item]:
        """Remove the bottom item."""
        key, item = self._items.popitem(last=False)
        del self._heights[key]
        return key, item

    def resize(self, slots: int) -> list[tuple[Key, Item]]:
        """Change the number of slots; return the items that leave, the bottom one first."""
        if slots < 0:
            raise ValueError(f"a cache cannot have {slots} slots")
        self.slots = slots
        return [self.take_bottom() for _ in range(len(self._items) - slots)]

    def _to_top(self, key: Key) -> None:
        self._items.move_to_end(key)
        self._highest += 1
        self._heights[key] = self._highest
