"""X_i of Sourlas et al. 2011, section 2.3: which cached messages the clients of a broker want, counted by filters.

>>> interest = Interest()
>>> storm = Publication("a", 1, "storms", {"severity": 4})
>>> interest.add(Filter.parse("severity > 3"), ())
>>> interest.enter(storm, interest.in_(storm))
>>> interest.is_wanted(storm.id), interest.remove(Filter.parse("severity > 3")) == [storm]
(True, True)

A filter is compared with a message once: when either comes. What matched is remembered as a bit for each message
in one number for each filter: an eighth of a byte for each pair. Clients who want the same share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from newsstand.overlay.covering_forest import FiltersByTopic
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import Publication, PublicationId


class Interest:
    """The filters of a broker's clients, and the publications that they have matched."""

    def __init__(self) -> None:
        self._clients: dict[Filter, int] = {}
        self._matched: dict[Filter, int] = {}
        """For each filter the publications that match, as bits: which is whose, tells its place."""
        self._by_topic = FiltersByTopic()
        self._places: dict[PublicationId, int] = {}
        self._at: list[Publication | None] = []
        self._counts: list[int] = []
        self._free: list[int] = []

    def __contains__(self, wanted: Filter) -> bool:
        return wanted in self._clients

    def in_(self, publication: Publication) -> list[Filter]:
        """The filters that a publication matches."""
        return [wanted for wanted in self._by_topic.of(publication.topic) if wanted.matches(publication)]

    def is_wanted(self, key: PublicationId) -> bool:
        """Whether a client wants a publication that is here."""
        return self._counts[self._places[key]] > 0

    # Publications

    def enter(self, publication: Publication, matching: Iterable[Filter]) -> None:
        """A publication is cached from now on, and these filters match it."""
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

    def leave(self, publication: Publication) -> None:
        """A publication is no longer cached."""
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
        """One more client has a filter; if it is the first one, these are the publications that match."""
        self._clients[wanted] = self._clients.get(wanted, 0) + 1
        if self._clients[wanted] > 1:
            return
        self._by_topic.add(wanted)
        places = [self._places[one.id] for one in matching]
        self._matched[wanted] = _bits(places)
        for place in places:
            self._counts[place] += 1

    def remove(self, wanted: Filter) -> list[Publication]:
        """A client no longer has a filter: the publications that nobody wants by that."""
        self._clients[wanted] -= 1
        if self._clients[wanted]:
            return []
        del self._clients[wanted]
        self._by_topic.remove(wanted)
        places = _places(self._matched.pop(wanted))
        for place in places:
            self._counts[place] -= 1
        return self._publications(place for place in places if not self._counts[place])

    def beyond(self, wanted: Filter, known: Iterable[Filter]) -> list[Publication]:
        """What matches a filter and none of the others."""
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
