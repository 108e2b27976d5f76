"""Filters in order of what covers what, so that the widest are known at every moment.

A filter stands below one that is wider, if there is any; those below the same one, like those below none, do not
cover each other. The ones below none so are the widest. A filter that comes is compared with those on its way
down, and when one goes, what stood below it is compared with what stood beside it: never all with all.
Filters that name their topics are only compared with those that name one of them, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView
from itertools import chain

from newsstand.overlay.filters import Filter, covers


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
        """Those that messages of a topic may match."""
        yield from self._of_topic.get(topic, ())
        yield from self._of_any_topic

    def wider(self, wanted: Filter) -> Filter | None:
        """One that is wider."""
        return next((other for other in self.near(wanted) if is_wider(other, wanted)), None)

    def narrower(self, wanted: Filter) -> list[Filter]:
        """All that are narrower."""
        return [other for other in self.near(wanted) if is_wider(wanted, other)]

    def near(self, wanted: Filter) -> Iterable[Filter]:
        """Those that may cover a filter, be covered by it, or have messages in common with it."""
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
        """Those that no other covers; of those that cover each other the one whose text comes first."""
        return self._below[None].all.keys()

    def copy(self) -> CoveringForest:
        """The same filters in the same places."""
        made = CoveringForest(self._covering)
        for wanted, above in self._above.items():
            made._put(wanted, above)
        return made

    def add(self, wanted: Filter) -> list[Filter]:
        """A filter comes: those that are no longer among the widest, since it is wider."""
        if not self._covering:
            self._put(wanted, None)
            return []
        return self._place(wanted, None)

    def remove(self, wanted: Filter) -> list[Filter]:
        """A filter goes: those that are among the widest now, since it was the only wider one."""
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
        """Put a filter, with what is below it, somewhere below another: those in whose place it is now."""
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
        """Put a filter as far below another as it goes: those that have to go below it, and are nowhere yet."""
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
    """Whether a filter covers another, and is not covered by it or comes first by its text."""
    return covers(one, other) and one != other and (one < other or not covers(other, one))
