"""A queue of pages that knows how many bytes they are."""

from __future__ import annotations

from collections import OrderedDict

from newsstand.caching.ranking import Page


class ByteQueue(OrderedDict[Page, int]):
    """The sizes of pages, oldest first. The capacity is for the owner to keep."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.used = 0

    def put(self, page: Page, size: int) -> None:
        """Add a page that is not in the queue, as the youngest."""
        self[page] = size
        self.used += size

    def take(self, page: Page) -> int:
        """Remove a page; its size."""
        size = self.pop(page)
        self.used -= size
        return size

    def take_oldest(self) -> tuple[Page, int]:
        page = next(iter(self))
        return page, self.take(page)
