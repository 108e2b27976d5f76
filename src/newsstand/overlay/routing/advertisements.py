"""The Advertisement Table (Sourlas et al. 2011, section 4.1): routes to the nearest storage of a topic.

For each neighbour the table stores the last advertisement of a topic with its route, and shows the nearest. The
three rules of the paper follow: an advertisement that is equally near is added and not forwarded, a nearer one
replaces the others and is forwarded, a farther one is not forwarded. If the nearest storage, the link to it or a
broker between fails, the next nearest is known already.

With routes it works on any graph: a broker ignores routes through itself, so distances never count to infinity.
Each hop has a number, valid as long as its link or storage exists. A withdrawal names the broken hop, and all
routes with this hop end at once; otherwise brokers would try one outdated route after the other when a storage
fails (after Pei et al., *BGP-RCN: improving BGP convergence through root cause notification*, 2005).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import (
    MOST_HOPS,
    MOST_TOPICS,
    Advertise,
    Broken,
    Hop,
    Name,
    Route,
    Unadvertise,
)

Announcements = list[tuple[Name, Advertise | Unadvertise]]
"""Messages to neighbours, in order."""


class StorageRoute(NamedTuple):
    """A row of the table: the distance of the nearest storage, and the neighbours on shortest routes."""

    distance: int
    neighbours: tuple[Name, ...]


HERE = StorageRoute(0, ())


class AdvertisementTable:
    """Routes to storages."""

    def __init__(self, name: Name, first_number: int = 1, remembered: int = 4096) -> None:
        """Create a table; hops are numbered from `first_number`, the last `remembered` broken ones are known."""
        self._name = name
        self._number = first_number
        self._remembered = remembered
        self._own: dict[str, None] = {}
        self._own_hop: Hop = (name, first_number)
        self._hops: dict[Name, Hop] = {}
        """The hop of the link to each neighbour."""
        self._received: dict[str, dict[Name, Route]] = {}
        """For each topic and neighbour the usable route."""
        self._nearest: dict[str, StorageRoute] = {}
        self._chosen: dict[str, Route] = {}
        """For each topic the route that is advertised, from this broker on."""
        self._sent: dict[Name, dict[str, None]] = {}
        self.broken: dict[Hop, None] = {}

    @property
    def own(self) -> frozenset[str]:
        """The topics that are stored here."""
        return frozenset(self._own)

    def __contains__(self, topic: str) -> bool:
        """Return whether a storage of a topic is known."""
        return topic in self._nearest

    def nearest(self, topic: str) -> StorageRoute | None:
        """Return the row of a topic; None without a known storage."""
        return self._nearest.get(topic)

    def rows(self) -> dict[str, StorageRoute]:
        return dict(self._nearest)

    def topics_of(self, wanted: Filter) -> list[str]:
        """Return the topics with a known storage that a filter may match, in order."""
        named = self._nearest if wanted.topics is None else wanted.topics
        return sorted(topic for topic in named if topic in self._nearest and wanted.may_match(topic))

    def is_advertised(self, topic: str) -> bool:
        """Return whether a neighbour advertises a topic."""
        return topic in self._received

    def set_own(self, topics: Iterable[str]) -> Announcements:
        before, self._own = self._own, dict.fromkeys(topics)
        broken: Broken = ()
        if not before.keys() <= self._own.keys():
            broken = (self._own_hop,)
            self._own_hop = self._next_hop()
        return self._announce_changes({**before, **self._own}, broken)

    def receive(self, neighbour: Name, topics: Iterable[str], route: Route, broken: Broken = ()) -> Announcements:
        touched = self._break(broken)
        usable = not any(hop[0] == self._name or hop in self.broken for hop in route)
        for topic in topics:
            touched[topic] = None
            if usable:
                self._received.setdefault(topic, {})[neighbour] = route
            else:
                self._withdraw(topic, neighbour)
        return self._announce_changes(touched, broken)

    def withdraw(self, neighbour: Name, topics: Iterable[str], broken: Broken = ()) -> Announcements:
        touched = self._break(broken)
        for topic in topics:
            touched[topic] = None
            self._withdraw(topic, neighbour)
        return self._announce_changes(touched, broken)

    def link_up(self, neighbour: Name) -> Announcements:
        """Begin a link; return the advertisements for the neighbour."""
        self._hops[neighbour] = self._next_hop()
        self._sent[neighbour] = {}
        pending = _PendingAnnouncements()
        for topic in self._chosen:
            self._announce(neighbour, topic, pending)
        return list(pending.messages(()))

    def link_down(self, neighbour: Name) -> Announcements:
        """End a link; return the changes for other neighbours."""
        del self._sent[neighbour]
        touched = [topic for topic, received in self._received.items() if neighbour in received]
        for topic in touched:
            self._withdraw(topic, neighbour)
        return self._announce_changes(touched, (self._hops.pop(neighbour),))

    def _next_hop(self) -> Hop:
        self._number += 1
        return self._name, self._number

    def _withdraw(self, topic: str, neighbour: Name) -> None:
        received = self._received.get(topic, {})
        received.pop(neighbour, None)
        if not received:
            self._received.pop(topic, None)

    def _break(self, broken: Broken) -> dict[str, None]:
        """Remove routes with broken hops; return the topics that lose some."""
        news = {hop for hop in broken if hop not in self.broken}
        if not news:
            return {}
        self.broken |= dict.fromkeys(broken)
        while len(self.broken) > self._remembered:
            del self.broken[next(iter(self.broken))]
        lost = [
            (topic, neighbour)
            for topic, received in self._received.items()
            for neighbour, route in received.items()
            if not news.isdisjoint(route)
        ]
        for topic, neighbour in lost:
            self._withdraw(topic, neighbour)
        return dict.fromkeys(topic for topic, _ in lost)

    def _announce_changes(self, topics: Iterable[str], broken: Broken) -> Announcements:
        pending = _PendingAnnouncements()
        for topic in topics:
            before = self._chosen.get(topic)
            self._choose(topic)
            if self._chosen.get(topic) != before:
                for neighbour in self._sent:
                    self._announce(neighbour, topic, pending)
        return list(pending.messages(broken))

    def _choose(self, topic: str) -> None:
        """Choose the row of a topic, and its advertised route: the same as before if that is still shortest."""
        if topic in self._own:
            self._nearest[topic], self._chosen[topic] = HERE, (self._own_hop,)
            return
        received = self._received.get(topic)
        if not received:
            self._nearest.pop(topic, None)
            self._chosen.pop(topic, None)
            return
        distance = min(map(len, received.values()))
        shortest = {neighbour: route for neighbour, route in received.items() if len(route) == distance}
        self._nearest[topic] = StorageRoute(distance, tuple(sorted(shortest)))
        routes = [(self._hops[neighbour], *route) for neighbour, route in shortest.items()]
        if self._chosen.get(topic) not in routes:
            self._chosen[topic] = min(routes)

    def _announce(self, neighbour: Name, topic: str, pending: _PendingAnnouncements) -> None:
        route = self._chosen.get(topic)
        sent = self._sent[neighbour]
        if route is not None and len(route) <= MOST_HOPS and all(hop[0] != neighbour for hop in route):
            sent[topic] = None
            pending.advertise(neighbour, route, topic)
        elif topic in sent:
            del sent[topic]
            pending.withdraw(neighbour, topic)


class _PendingAnnouncements:
    """Messages to neighbours, with topics of the same route in one message."""

    def __init__(self) -> None:
        self._topics: dict[tuple[Name, Route | None], list[str]] = {}

    def advertise(self, neighbour: Name, route: Route, topic: str) -> None:
        self._topics.setdefault((neighbour, route), []).append(topic)

    def withdraw(self, neighbour: Name, topic: str) -> None:
        self._topics.setdefault((neighbour, None), []).append(topic)

    def messages(self, broken: Broken) -> Iterator[tuple[Name, Advertise | Unadvertise]]:
        for (neighbour, route), topics in self._topics.items():
            for first in range(0, len(topics), MOST_TOPICS):
                some = tuple(topics[first : first + MOST_TOPICS])
                yield neighbour, Unadvertise(some, broken) if route is None else Advertise(some, route, broken)
