"""Which broker a subscriber is sent to: one small function for each way, by name.

`hops`, `miles` and `random` are the ways of Gwertzman and Seltzer (push1995) to find a server; `least-loaded`
looks at the brokers only. `nearest` is by hops where the network and the subscriber's node in it are known, and by
miles otherwise. Brokers of which the way knows nothing come last; of equals it is the less loaded one, then the
first by name.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from newsstand.coordinator.records import Place

EARTH_RADIUS_MILES = 3958.8
NEVER = math.inf


class Candidate(Protocol):
    """A broker that can be chosen."""

    @property
    def name(self) -> str: ...
    @property
    def place(self) -> Place: ...
    @property
    def load(self) -> tuple[float, float]:
        """How busy it is: first by connections, then by subscribers, both as shares of its capacity."""
        ...


class Network:
    """The links between nodes, of which some have brokers and some have subscribers."""

    def __init__(self, links: Iterable[tuple[str, str]] = ()) -> None:
        self._neighbours: dict[str, set[str]] = {}
        for one, other in links:
            self._neighbours.setdefault(one, set()).add(other)
            self._neighbours.setdefault(other, set()).add(one)
        self._hops: dict[str, dict[str, int]] = {}

    def __contains__(self, node: object) -> bool:
        return node in self._neighbours

    def hops(self, start: str | None, end: str | None) -> float:
        """The links on a shortest way between two nodes; infinite if there is none."""
        if start is None or end is None:
            return NEVER
        if start == end:
            return 0
        if start not in self._neighbours:
            return NEVER
        if start not in self._hops:
            self._hops[start] = self._breadth_first(start)
        return self._hops[start].get(end, NEVER)

    def _breadth_first(self, start: str) -> dict[str, int]:
        reached = {start: 0}
        edge = deque([start])
        while edge:
            node = edge.popleft()
            for neighbour in self._neighbours[node]:
                if neighbour not in reached:
                    reached[neighbour] = reached[node] + 1
                    edge.append(neighbour)
        return reached


def great_circle_miles(one: Place, other: Place) -> float:
    """The distance over the globe, by the haversine formula; infinite if a place is not known."""
    if one.lat is None or one.lon is None or other.lat is None or other.lon is None:
        return NEVER
    south, north = math.radians(one.lat), math.radians(other.lat)
    across = math.sin(math.radians(other.lon - one.lon) / 2) ** 2
    along = math.sin((north - south) / 2) ** 2
    share = along + math.cos(south) * math.cos(north) * across
    return 2 * EARTH_RADIUS_MILES * math.asin(math.sqrt(min(1.0, share)))


@dataclass(frozen=True)
class Surroundings:
    """What a choice may look at besides the brokers and the subscriber's place."""

    rng: Random
    network: Network = field(default_factory=Network)


Way = Callable[[Sequence[Candidate], Place, Surroundings], Candidate]
WAYS: dict[str, Way] = {}
"""Every way to choose, by name."""


def way(name: str) -> Callable[[Way], Way]:
    """Register a way to choose under its name."""

    def registered(function: Way) -> Way:
        WAYS[name] = function
        return function

    return registered


@way("least-loaded")
def least_loaded(brokers: Sequence[Candidate], _: Place, __: Surroundings) -> Candidate:
    """The broker with the fewest connections for its capacity."""
    return min(brokers, key=lambda one: (one.load, one.name))


@way("random")
def at_random(brokers: Sequence[Candidate], _: Place, around: Surroundings) -> Candidate:
    """Any broker, each as likely as the others."""
    return around.rng.choice(sorted(brokers, key=lambda one: one.name))


@way("miles")
def by_miles(brokers: Sequence[Candidate], place: Place, _: Surroundings) -> Candidate:
    """The broker with the shortest way over the globe."""
    return min(brokers, key=lambda one: (great_circle_miles(place, one.place), one.load, one.name))


@way("hops")
def by_hops(brokers: Sequence[Candidate], place: Place, around: Surroundings) -> Candidate:
    """The broker with the fewest links in between."""
    return min(brokers, key=lambda one: (around.network.hops(place.node, one.place.node), one.load, one.name))


@way("nearest")
def nearest(brokers: Sequence[Candidate], place: Place, around: Surroundings) -> Candidate:
    """By hops if some broker can be reached over the network, by miles otherwise."""
    hops = (around.network.hops(place.node, one.place.node) for one in brokers)
    reachable = place.node is not None and any(count < NEVER for count in hops)
    return (by_hops if reachable else by_miles)(brokers, place, around)
