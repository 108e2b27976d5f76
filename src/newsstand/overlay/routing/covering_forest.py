"""Filters ordered by covering, so that the widest are always known.

The parent of a filter is a wider filter, if there is any; siblings, like roots, do not cover each other, so the
roots are the widest. A new filter is compared with filters on its way down; when one is removed, its children are
compared with its siblings: never all with all. Filters that name topics are only compared with those that name one
of them, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView
from itertools import chain

from newsstand.overlay.filters.filter import Filter


class FiltersByTopic:
    """Filters by the topics that they name."""

    __slots__ = ("_of_any_topic", "_of_topic", "all")

    def __init__(self) -> None:
        self.all: dict[Filter, None] = {}
        self._of_topic: dict[str, dict[Filter, None]] = {}
        self._of_any_topic: dict[Filter, None] = {}

    def add(self, wanted: Filter) -> None:
        self.all[wanted] = None
        if not wanted.topics:
            self._of_any_topic[wanted] = None
        for topic in wanted.topics or ():
            self._of_topic.setdefault(topic, {})[wanted] = None

    def remove(self, wanted: Filter) -> None:
        del self.all[wanted]
        self._of_any_topic.pop(wanted, None)
        for topic in wanted.topics or ():
            del self._of_topic[topic][wanted]
            if not self._of_topic[topic]:
                del self._of_topic[topic]

    def of(self, topic: str) -> Iterator[Filter]:
        """Yield filters that messages of a topic may match."""
        yield from self._of_topic.get(topic, ())
        yield from self._of_any_topic

    def wider(self, wanted: Filter) -> Filter | None:
        return next((other for other in self.near(wanted) if is_wider(other, wanted)), None)

    def narrower(self, wanted: Filter) -> list[Filter]:
        return [other for other in self.near(wanted) if is_wider(wanted, other)]

    def near(self, wanted: Filter) -> Iterable[Filter]:
        """Return filters that may cover a filter, be covered by it, or overlap it."""
        if not wanted.topics:
            return self.all
        groups = [self._of_any_topic, *(self._of_topic.get(topic, {}) for topic in wanted.topics)]
        return dict.fromkeys(chain.from_iterable(groups)) if len(groups) > 2 else chain.from_iterable(groups)


class CoveringForest:
    """Filters, each below a wider one if there is any."""

    def __init__(self, covering: bool = True) -> None:
        self._covering = covering
        self._above: dict[Filter, Filter | None] = {}
        self._below: dict[Filter | None, FiltersByTopic] = {None: FiltersByTopic()}

    @property
    def widest(self) -> KeysView[Filter]:
        """Filters that no other covers; of those that cover each other the first by text."""
        return self._below[None].all.keys()

    def copy(self) -> CoveringForest:
        """Return a copy with the same filters in the same places."""
        made = CoveringForest(self._covering)
        for wanted, above in self._above.items():
            made._put(wanted, above)
        return made

    def add(self, wanted: Filter) -> list[Filter]:
        """Add a filter; return those that are no longer among the widest."""
        if not self._covering:
            self._put(wanted, None)
            return []
        return self._place(wanted, None)

    def remove(self, wanted: Filter) -> list[Filter]:
        """Remove a filter; return those that have become widest."""
        above = self._above.pop(wanted)
        beside = self._below[above]
        beside.remove(wanted)
        left = self._below.pop(wanted, None)
        if above is not None and not beside.all:
            del self._below[above]
        if left is None:
            return []
        found = [(other, beside.wider(other)) for other in left.all]
        for other, wider in found:
            if wider is None:
                self._put(other, above)
            else:
                self._place(other, wider)
        return [other for other, wider in found if above is wider is None]

    def _place(self, wanted: Filter, above: Filter | None) -> list[Filter]:
        """Place a filter, with all below it, below another; return those that it has displaced."""
        displaced = self._settle(wanted, above)
        waiting = [(displaced, wanted)]
        while waiting:
            others, wider = waiting.pop()
            if wider in self._below:
                waiting += [(self._settle(other, wider), other) for other in others]
            else:
                for other in others:
                    self._put(other, wider)
        return displaced

    def _settle(self, wanted: Filter, above: Filter | None) -> list[Filter]:
        """Place a filter as deep below another as possible; return narrower siblings, to be placed below it."""
        while (siblings := self._below.get(above)) and (wider := siblings.wider(wanted)):
            above = wider
        narrower = siblings.narrower(wanted) if siblings else []
        for other in narrower:
            self._below[above].remove(other)
        self._put(wanted, above)
        return narrower

    def _put(self, wanted: Filter, above: Filter | None) -> None:
        self._above[wanted] = above
        siblings = self._below.get(above)
        if siblings is None:
            siblings = self._below[above] = FiltersByTopic()
        siblings.add(wanted)


def is_wider(one: Filter, other: Filter) -> bool:
    """Return whether a filter covers another, and is not covered by it or precedes it by text."""
    return one.covers(other) and one != other and (one < other or not other.covers(one))
