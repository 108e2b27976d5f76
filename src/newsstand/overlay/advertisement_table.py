"""The Advertisement Table (Sourlas et al. 2011, section 4.1): where the nearest storage of a topic lies.

Of each neighbour the table remembers the last advertisement of a topic with the whole way. What it shows is the
nearest of them. So the three rules of the paper come out: one that is equally near is added and not forwarded, one
that is nearer replaces the others and is forwarded, one that is farther is not forwarded. And when the nearest
storage, the link to it or a broker between goes, the next nearest is known already.

Ways make it work on any graph: a broker ignores those through itself, so distances never count up without end.
Each hop has a number of its own, which ends with the link or the storage that it stands for. Whoever tells that
a way has ended tells which hop has, and all ways with the same hop end at once; otherwise brokers would try one
outdated way after the other when a storage goes (after Pei et al., *BGP-RCN: improving BGP convergence through
root cause notification*, 2005).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import (
    MOST_HOPS,
    MOST_TOPICS,
    Advertise,
    Broken,
    Hop,
    Name,
    Unadvertise,
    Way,
)

Told = list[tuple[Name, Advertise | Unadvertise]]
"""What to send to whom, in order."""


class Nearest(NamedTuple):
    """A row of the table: how far the nearest storage is, and the neighbours by which it can be reached."""

    distance: int
    neighbours: tuple[Name, ...]


HERE = Nearest(0, ())


class AdvertisementTable:
    """What a broker knows about storages."""

    def __init__(self, name: Name, first_number: int = 1, remembered: int = 4096) -> None:
        """A table without links; its hops are numbered from `first_number`, the last broken ones remembered."""
        self._name = name
        self._number = first_number
        self._remembered = remembered
        self._own: dict[str, None] = {}
        self._own_hop: Hop = (name, first_number)
        self._hops: dict[Name, Hop] = {}
        """The hop that stands for the link to each neighbour."""
        self._heard: dict[str, dict[Name, Way]] = {}
        """For each topic and neighbour the way that can be used."""
        self._nearest: dict[str, Nearest] = {}
        self._chosen: dict[str, Way] = {}
        """For each topic the way that neighbours are told, from this broker on."""
        self._told: dict[Name, dict[str, None]] = {}
        self._broken: dict[Hop, None] = {}

    @property
    def own(self) -> frozenset[str]:
        """The topics that are stored here."""
        return frozenset(self._own)

    def nearest(self, topic: str) -> Nearest | None:
        """The row of a topic; None if no storage of it is known."""
        return self._nearest.get(topic)

    def rows(self) -> dict[str, Nearest]:
        """The whole table."""
        return dict(self._nearest)

    def topics_of(self, wanted: Filter) -> list[str]:
        """The topics with a storage of which messages may match a filter, in the order of their names."""
        named = self._nearest if wanted.topics is None else wanted.topics
        return sorted(topic for topic in named if topic in self._nearest and wanted.may_match(topic))

    def is_heard(self, topic: str) -> bool:
        """Whether a neighbour advertises a topic, so that another broker stores it."""
        return topic in self._heard

    def store(self, topics: Iterable[str]) -> Told:
        """These topics are stored here, and no others."""
        before, self._own = self._own, dict.fromkeys(topics)
        broken: Broken = ()
        if not before.keys() <= self._own.keys():
            broken = (self._own_hop,)
            self._own_hop = self._numbered()
        return self._changed({**before, **self._own}, broken)

    def hear(self, neighbour: Name, topics: Iterable[str], way: Way, broken: Broken = ()) -> Told:
        """A neighbour advertises topics."""
        touched = self._break(broken)
        usable = not any(hop[0] == self._name or hop in self._broken for hop in way)
        for topic in topics:
            touched[topic] = None
            if usable:
                self._heard.setdefault(topic, {})[neighbour] = way
            else:
                self._unhear(topic, neighbour)
        return self._changed(touched, broken)

    def unhear(self, neighbour: Name, topics: Iterable[str], broken: Broken = ()) -> Told:
        """A neighbour withdraws what it has advertised."""
        touched = self._break(broken)
        for topic in topics:
            touched[topic] = None
            self._unhear(topic, neighbour)
        return self._changed(touched, broken)

    def link_up(self, neighbour: Name) -> Told:
        """A link begins: what the new neighbour must be told."""
        self._hops[neighbour] = self._numbered()
        self._told[neighbour] = {}
        out = _Changes()
        for topic in self._chosen:
            self._tell(neighbour, topic, out)
        return list(out.messages(()))

    def link_down(self, neighbour: Name) -> Told:
        """A link has ended: what the others must be told."""
        del self._told[neighbour]
        touched = [topic for topic, heard in self._heard.items() if neighbour in heard]
        for topic in touched:
            self._unhear(topic, neighbour)
        return self._changed(touched, (self._hops.pop(neighbour),))

    def _numbered(self) -> Hop:
        self._number += 1
        return self._name, self._number

    def _unhear(self, topic: str, neighbour: Name) -> None:
        heard = self._heard.get(topic, {})
        heard.pop(neighbour, None)
        if not heard:
            self._heard.pop(topic, None)

    def _break(self, broken: Broken) -> dict[str, None]:
        """No way with one of these hops is one any more: the topics that lose some."""
        news = {hop for hop in broken if hop not in self._broken}
        if not news:
            return {}
        self._broken |= dict.fromkeys(broken)
        while len(self._broken) > self._remembered:
            del self._broken[next(iter(self._broken))]
        lost = [
            (topic, neighbour)
            for topic, heard in self._heard.items()
            for neighbour, way in heard.items()
            if not news.isdisjoint(way)
        ]
        for topic, neighbour in lost:
            self._unhear(topic, neighbour)
        return dict.fromkeys(topic for topic, _ in lost)

    def _changed(self, topics: Iterable[str], broken: Broken) -> Told:
        out = _Changes()
        for topic in topics:
            before = self._chosen.get(topic)
            self._choose(topic)
            if self._chosen.get(topic) != before:
                for neighbour in self._told:
                    self._tell(neighbour, topic, out)
        return list(out.messages(broken))

    def _choose(self, topic: str) -> None:
        """The row of a topic, and the way to tell: the same as before if it is still among the shortest."""
        if topic in self._own:
            self._nearest[topic], self._chosen[topic] = HERE, (self._own_hop,)
            return
        heard = self._heard.get(topic)
        if not heard:
            self._nearest.pop(topic, None)
            self._chosen.pop(topic, None)
            return
        distance = min(map(len, heard.values()))
        shortest = {neighbour: way for neighbour, way in heard.items() if len(way) == distance}
        self._nearest[topic] = Nearest(distance, tuple(sorted(shortest)))
        ways = [(self._hops[neighbour], *way) for neighbour, way in shortest.items()]
        if self._chosen.get(topic) not in ways:
            self._chosen[topic] = min(ways)

    def _tell(self, neighbour: Name, topic: str, out: _Changes) -> None:
        way = self._chosen.get(topic)
        told = self._told[neighbour]
        if way is not None and len(way) <= MOST_HOPS and all(hop[0] != neighbour for hop in way):
            told[topic] = None
            out.advertise(neighbour, way, topic)
        elif topic in told:
            del told[topic]
            out.withdraw(neighbour, topic)


class _Changes:
    """What neighbours are to be told, topics of one kind in one message."""

    def __init__(self) -> None:
        self._topics: dict[tuple[Name, Way | None], list[str]] = {}

    def advertise(self, neighbour: Name, way: Way, topic: str) -> None:
        self._topics.setdefault((neighbour, way), []).append(topic)

    def withdraw(self, neighbour: Name, topic: str) -> None:
        self._topics.setdefault((neighbour, None), []).append(topic)

    def messages(self, broken: Broken) -> Iterator[tuple[Name, Advertise | Unadvertise]]:
        for (neighbour, way), topics in self._topics.items():
            for first in range(0, len(topics), MOST_TOPICS):
                some = tuple(topics[first : first + MOST_TOPICS])
                yield neighbour, Unadvertise(some, broken) if way is None else Advertise(some, way, broken)
