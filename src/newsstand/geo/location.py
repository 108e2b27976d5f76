"""Locations, and distances between them: in links of the network, and in miles over the globe.

The running platform uses these metrics: the coordinator assigns subscribers to brokers by them, and an origin
pushes its pages and redirects requests by them. `globe` and `backbone` have them for arrays of locations.

>>> london, paris = Location(51.51, -0.13), Location(48.86, 2.35)
>>> round(great_circle_miles(london, paris))
213
>>> LinkGraph([("dover", "calais"), ("calais", "lille")]).hops("dover", "lille")
2
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

EARTH_RADIUS_MILES = 3958.8
NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Location:
    """A location on the globe, in the network, in both or in neither."""

    lat: float | None = None
    lon: float | None = None
    node: str | None = None

    @property
    def known(self) -> bool:
        """Whether it has coordinates or a node."""
        return self.lat is not None or self.node is not None

    def about(self) -> Location:
        """Return the location to a tenth of a degree: enough to compare distances, not to find an address."""
        lat, lon = (None if one is None else round(one, 1) for one in (self.lat, self.lon))
        return Location(lat, lon, self.node)


UNKNOWN = Location()


class LinkGraph:
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
        """Return the links on a shortest path between two nodes; infinite if there is none."""
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


def great_circle_miles(one: Location, other: Location) -> float:
    """Return the distance over the globe, by Kahan's formula; infinite if a place is not known."""
    if one.lat is None or one.lon is None or other.lat is None or other.lon is None:
        return NEVER
    here, there = unit_vector(one.lat, one.lon), unit_vector(other.lat, other.lon)
    apart = math.dist(here, there)
    opposite = math.hypot(*(a + b for a, b in zip(here, there, strict=True)))
    return 2 * EARTH_RADIUS_MILES * math.atan2(apart, opposite)


def unit_vector(lat: float, lon: float) -> tuple[float, float, float]:
    """Return a place as a point of the unit sphere."""
    north, east = math.radians(lat), math.radians(lon)
    return math.cos(north) * math.cos(east), math.cos(north) * math.sin(east), math.sin(north)


Metric = Callable[[Location, Location, LinkGraph], float]
METRICS: dict[str, Metric] = {
    "hops": lambda one, other, network: network.hops(one.node, other.node),
    "miles": lambda one, other, _: great_circle_miles(one, other),
}
"""The metrics of distance, by name."""


def known_metric(place: Location, others: Iterable[Location], network: LinkGraph) -> Metric:
    """Return the metric of *nearest*: hops if one of the others is reachable in the network, else miles."""
    hops = METRICS["hops"]
    reachable = place.node is not None and any(hops(place, other, network) < NEVER for other in others)
    return hops if reachable else METRICS["miles"]
