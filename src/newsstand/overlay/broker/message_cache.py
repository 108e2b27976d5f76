"""The message cache of a broker: k slots (Sourlas et al. 2011, section 2.2), bounded in bytes.

>>> cache = MessageCache(slots=2, most_bytes=100_000)
>>> storm, fire = Publication("a", 1, "storms"), Publication("a", 2, "fires")
>>> cache.put(storm), cache.put(fire), list(cache)
(True, True, [('a', 2), ('a', 1)])
>>> cache.regenerate(cache.matching(Filter.of_topic("storms")))
>>> list(cache)
[('a', 1), ('a', 2)]

Messages of the paper are equally long. Otherwise those at the bottom are evicted until the bytes fit, and a
publication of more than a sixteenth of the bytes is not cached: it would evict too many others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter

from newsstand.caching.slots import SlotCache
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import MessagePosition, Publication, PublicationId
from newsstand.overlay.routing.covering_forest import FiltersByTopic


class Interest:
    """X_i of Sourlas et al. 2011, section 2.3: the cached messages that clients want, counted by filters.

    A filter is compared with a message once: when either arrives. A match is stored as a bit for each message in
    one integer for each filter: an eighth of a byte for each pair. Clients with equal filters share it.

    >>> interest = Interest()
    >>> storm = Publication("a", 1, "storms", {"severity": 4})
    >>> interest.add(Filter.parse("severity > 3"), ())
    >>> interest.add_publication(storm, interest.filters_of(storm))
    >>> interest.is_wanted(storm.id), interest.remove(Filter.parse("severity > 3")) == [storm]
    (True, True)
    """

    def __init__(self) -> None:
        self._clients: dict[Filter, int] = {}
        self._matched: dict[Filter, int] = {}
        """For each filter the matching publications as bits, by their place."""
        self._by_topic = FiltersByTopic()
        self._places: dict[PublicationId, int] = {}
        self._at: list[Publication | None] = []
        self._counts: list[int] = []
        self._free: list[int] = []

    def __contains__(self, wanted: Filter) -> bool:
        return wanted in self._clients

    def filters_of(self, publication: Publication) -> list[Filter]:
        return [wanted for wanted in self._by_topic.of(publication.topic) if wanted.matches(publication)]

    def is_wanted(self, key: PublicationId) -> bool:
        """Return whether a client wants a cached publication."""
        return self._counts[self._places[key]] > 0

    # Publications

    def add_publication(self, publication: Publication, matching: Iterable[Filter]) -> None:
        """Add a cached publication that these filters match."""
        if not self._free:
            self._free.append(len(self._at))
            self._at.append(None)
            self._counts.append(0)
        place = self._free.pop()
        self._places[publication.id] = place
        self._at[place] = publication
        for wanted in matching:
            self._matched[wanted] |= 1 << place
            self._counts[place] += 1

    def remove_publication(self, publication: Publication) -> None:
        place = self._places.pop(publication.id)
        self._at[place] = None
        self._free.append(place)
        if self._counts[place]:
            self._counts[place] = 0
            others = ~(1 << place)
            for wanted in self._by_topic.of(publication.topic):
                self._matched[wanted] &= others

    # Filters

    def add(self, wanted: Filter, matching: Iterable[Publication]) -> None:
        """Add a filter of a client; `matching` are the publications that match if it is the first client."""
        self._clients[wanted] = self._clients.get(wanted, 0) + 1
        if self._clients[wanted] > 1:
            return
        self._by_topic.add(wanted)
        places = [self._places[one.id] for one in matching]
        self._matched[wanted] = _bits(places)
        for place in places:
            self._counts[place] += 1

    def remove(self, wanted: Filter) -> list[Publication]:
        """Remove a filter of a client; return the publications that no client wants any more."""
        self._clients[wanted] -= 1
        if self._clients[wanted]:
            return []
        del self._clients[wanted]
        self._by_topic.remove(wanted)
        places = _places(self._matched.pop(wanted))
        for place in places:
            self._counts[place] -= 1
        return self._publications(place for place in places if not self._counts[place])

    def only_matching(self, wanted: Filter, known: Iterable[Filter]) -> list[Publication]:
        """Return what matches a filter and none of the others."""
        matched = self._matched[wanted]
        for other in known:
            matched &= ~self._matched[other]
        return self._publications(_places(matched))

    def _publications(self, places: Iterable[int]) -> list[Publication]:
        return [one for one in map(self._at.__getitem__, places) if one is not None]


def _bits(places: Sequence[int]) -> int:
    # A number that grows bit by bit would be copied for each of them.
    row = bytearray(max(places, default=0) // 8 + 1)
    for place in places:
        row[place // 8] |= 1 << place % 8
    return int.from_bytes(row, "little")


def _places(bits: int) -> list[int]:
    return [place for place, bit in enumerate(reversed(f"{bits:b}")) if bit == "1"]


LARGEST_SHARE = 16
"""A publication may take one of this many parts of the cache."""
BASE_BYTES = 400
"""Bytes of a publication besides attributes, topic and body."""
ATTRIBUTE_BYTES = 100
"""Bytes of an attribute besides its texts."""


class MessageCache:
    """Publications in slots, the top one first; found by topic."""

    def __init__(self, slots: int, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        self.interest = Interest()
        """The subscriptions of clients to cached publications."""
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
        """Iterate from top to bottom."""
        return iter(self._slots)

    def put(self, publication: Publication, *, unwanted: bool = True) -> bool:
        """Cache a publication at the top; return False if it is cached, too large, or unwanted and must not be."""
        size = size_of(publication)
        if not self.slots or publication.id in self._slots or size > self.most_bytes // LARGEST_SHARE:
            return False
        matching = self.interest.filters_of(publication)
        if not (matching or unwanted):
            return False
        self.interest.add_publication(publication, matching)
        left = self._slots.put(publication.id, publication)
        self._of_topic.setdefault(publication.topic, {})[publication.id] = publication
        self.bytes += size
        if left is not None:
            self._forget(left[1])
        while self.bytes > self.most_bytes:
            self._forget(self._slots.take_bottom()[1])
        return True

    def matching(self, wanted: Filter, after: MessagePosition | None = None) -> list[Publication]:
        """Return what is cached and matches, after a position, in order of time."""
        topics = self._of_topic if wanted.topics is None else wanted.topics
        cached = chain.from_iterable(self._of_topic.get(topic, {}).values() for topic in topics)
        found = [one for one in cached if (after is None or one.position > after) and wanted.matches(one)]
        return sorted(found, key=attrgetter("position"))

    def regenerate(self, publications: Iterable[Publication]) -> None:
        """Move cached publications to the top, in their order."""
        self._slots.regenerate(*(one.id for one in publications))

    def degrade(self, publications: Iterable[Publication]) -> None:
        """Move cached publications to the bottom, in their order."""
        self._slots.degrade(*(one.id for one in publications))

    def forget(self, topic: str) -> None:
        """Remove all publications of a topic."""
        for key in list(self._of_topic.get(topic, ())):
            self._forget(self._slots.remove(key))

    def add_interest(self, wanted: Filter) -> None:
        self.interest.add(wanted, () if wanted in self.interest else self.matching(wanted))

    def resize(self, slots: int) -> None:
        """Set the number of slots; evict what does not fit from the bottom."""
        for _, publication in self._slots.resize(slots):
            self._forget(publication)

    def _forget(self, publication: Publication) -> None:
        self.interest.remove_publication(publication)
        of_topic = self._of_topic[publication.topic]
        del of_topic[publication.id]
        if not of_topic:
            del self._of_topic[publication.topic]
        self.bytes -= size_of(publication)


def size_of(publication: Publication) -> int:
    """Return the approximate size of a publication in memory."""
    attributes = sum(
        ATTRIBUTE_BYTES + _length(name) + (_length(value) if isinstance(value, str) else 0)
        for name, value in publication.attributes.items()
    )
    return BASE_BYTES + _length(publication.topic) + attributes + len(publication.body)


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def newest(publications: Sequence[Publication], limit: int) -> list[Publication]:
    """Return the newest publications that fit into `limit` bytes, without gaps, in order of time."""
    chosen: list[Publication] = []
    for one in sorted(publications, key=attrgetter("position"), reverse=True):
        limit -= size_of(one)
        if limit < 0:
            break
        chosen.append(one)
    return chosen[::-1]
