"""What a broker caches of what passes: k slots (Sourlas et al. 2011, section 2.2), and only so many bytes.

>>> cache = MessageCache(slots=2, most_bytes=100_000)
>>> storm, fire = Publication("a", 1, "storms"), Publication("a", 2, "fires")
>>> cache.put(storm), cache.put(fire), list(cache)
(True, True, [('a', 2), ('a', 1)])
>>> cache.regenerate(cache.matching(Filter.of_topic("storms")))
>>> list(cache)
[('a', 1), ('a', 2)]

The paper's messages are equally long. Where they are not, those at the bottom leave until the bytes fit, too, and
a publication that would take more than a sixteenth of the bytes is not cached: it would drive out too many others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter

from newsstand.caching.slots import SlotCache
from newsstand.overlay.filters import Filter
from newsstand.overlay.interest import Interest
from newsstand.overlay.messages import Position, Publication, PublicationId

LARGEST_SHARE = 16
"""The largest publication takes one part of so many."""
ROUGHLY = 400
"""Bytes of a publication beside its attributes, its topic and its body."""
OF_ATTRIBUTE = 100
"""Bytes of an attribute beside its texts: its place among the others, and a number."""


class MessageCache:
    """Publications in slots, the top one first; found by topic."""

    def __init__(self, slots: int, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        self.interest = Interest()
        """What clients of this broker want of it."""
        self._slots: SlotCache[PublicationId, Publication] = SlotCache(slots)
        self._of_topic: dict[str, dict[PublicationId, Publication]] = {}

    @property
    def slots(self) -> int:
        return self._slots.slots

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: PublicationId) -> bool:
        return key in self._slots

    def __iter__(self) -> Iterator[PublicationId]:
        """What is cached, from top to bottom."""
        return iter(self._slots)

    def put(self, publication: Publication, *, unwanted: bool = True) -> bool:
        """Place a publication in the top slot; False if it is here, too large, or unwanted and must not be."""
        size = weight(publication)
        if not self.slots or publication.id in self._slots or size > self.most_bytes // LARGEST_SHARE:
            return False
        matching = self.interest.in_(publication)
        if not (matching or unwanted):
            return False
        self.interest.enter(publication, matching)
        left = self._slots.put(publication.id, publication)
        self._of_topic.setdefault(publication.topic, {})[publication.id] = publication
        self.bytes += size
        if left is not None:
            self._forget(left[1])
        while self.bytes > self.most_bytes:
            self._forget(self._slots.take_bottom()[1])
        return True

    def matching(self, wanted: Filter, after: Position | None = None) -> list[Publication]:
        """What is cached and matches, after a place, in order of time."""
        topics = self._of_topic if wanted.topics is None else wanted.topics
        cached = chain.from_iterable(self._of_topic.get(topic, {}).values() for topic in topics)
        found = [one for one in cached if (after is None or one.position > after) and wanted.matches(one)]
        return sorted(found, key=attrgetter("position"))

    def regenerate(self, publications: Iterable[Publication]) -> None:
        """Move publications that are here to the top; they keep their order among each other."""
        self._slots.regenerate(*(one.id for one in publications))

    def degrade(self, publications: Iterable[Publication]) -> None:
        """Move publications that are here to the bottom; they keep their order among each other."""
        self._slots.degrade(*(one.id for one in publications))

    def forget(self, topic: str) -> None:
        """Cache nothing any more of what there is of a topic."""
        for key in list(self._of_topic.get(topic, ())):
            self._forget(self._slots.remove(key))

    def add_interest(self, wanted: Filter) -> None:
        """One more client of this broker wants what matches."""
        self.interest.add(wanted, () if wanted in self.interest else self.matching(wanted))

    def resize(self, slots: int) -> None:
        """Have so many slots from now on; those at the bottom may have to leave."""
        for _, publication in self._slots.resize(slots):
            self._forget(publication)

    def _forget(self, publication: Publication) -> None:
        self.interest.leave(publication)
        of_topic = self._of_topic[publication.topic]
        del of_topic[publication.id]
        if not of_topic:
            del self._of_topic[publication.topic]
        self.bytes -= weight(publication)


def weight(publication: Publication) -> int:
    """About how many bytes a publication takes."""
    attributes = sum(
        OF_ATTRIBUTE + _length(name) + (_length(value) if isinstance(value, str) else 0)
        for name, value in publication.attributes.items()
    )
    return ROUGHLY + _length(publication.topic) + attributes + len(publication.body)


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def newest(publications: Sequence[Publication], limit: int) -> list[Publication]:
    """The newest that fit into so many bytes, in order of time: none is left out between two that are chosen."""
    chosen: list[Publication] = []
    for one in sorted(publications, key=attrgetter("position"), reverse=True):
        limit -= weight(one)
        if limit < 0:
            break
        chosen.append(one)
    return chosen[::-1]
