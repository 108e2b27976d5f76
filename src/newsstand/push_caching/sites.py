"""The numbers of sites of a running platform, and the nearest among them.

The decisions of an origin use numbers of subnets and servers. A push-cache gets its number by name, and clients at
about the same place are one subnet.

>>> where = SiteDirectory(Location(40.7, -74.0))
>>> berlin, tokyo = where.server("berlin", Location(52.5, 13.4)), where.server("tokyo", Location(35.7, 139.7))
>>> by_miles = where.nearness("nearest", Random(1))
>>> paris = where.subnet(Location(48.9, 2.4))
>>> by_miles.distance(paris, berlin) < by_miles.distance(paris, ORIGIN) < by_miles.distance(paris, tokyo)
True
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from random import Random

import numpy as np
import numpy.typing as npt

from newsstand.errors import BadOption
from newsstand.geo.location import METRICS, NEVER, UNKNOWN, LinkGraph, Location, Metric, known_metric, unit_vector
from newsstand.push_caching.clusters import Nearness

Ints = npt.NDArray[np.int64]

ORIGIN = 0
"""The number of the origin itself among the servers."""
MOST_SUBNETS = 50_000
"""The number of known subnets; the least recent one is forgotten. A history is shorter."""
LIVE_STRATEGIES = ("nearest", "hops", "miles", "random")
"""The values of caching-strategy and lookup-strategy in a running platform."""


class SiteDirectory:
    """The locations of an origin, its push-caches and its clients."""

    def __init__(
        self, origin: Location, network: LinkGraph | None = None, most_subnets: int = MOST_SUBNETS
    ) -> None:
        self.network = network or LinkGraph()
        self.servers: dict[int, Location] = {ORIGIN: origin}
        self._server_nodes = frozenset([origin.node])
        self._names: list[str] = [""]
        self._numbers: dict[str, int] = {}
        self._most_subnets = most_subnets
        self._subnets: OrderedDict[Location, int] = OrderedDict()
        self._places: dict[int, Location] = {}
        self._next_subnet = 0

    def server(self, name: str, place: Location) -> int:
        """Return the number of a push-cache, which is the same for a name, and update its location."""
        number = self._numbers.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
        self.servers[number] = place
        self._server_nodes = frozenset(one.node for one in self.servers.values())
        return number

    def number(self, name: str) -> int | None:
        """Return the number of a known push-cache; None for others."""
        return self._numbers.get(name)

    def name(self, number: int) -> str:
        """Return the name of a push-cache."""
        return self._names[number]

    def subnet(self, place: Location) -> int:
        """Return the number of the subnet at this node and, to a tenth of a degree, at this location."""
        known = place.node in self.network or place.node in self._server_nodes
        key = Location(place.lat, place.lon, place.node if known else None).about()
        number = self._subnets.get(key)
        if number is None:
            number = self._subnets[key] = self._next_subnet
            self._places[number] = key
            self._next_subnet += 1
            if len(self._subnets) > self._most_subnets:
                _, oldest = self._subnets.popitem(last=False)
                del self._places[oldest]
        else:
            self._subnets.move_to_end(key)
        return number

    def place(self, subnet: int) -> Location:
        """Return the location of a subnet; UNKNOWN if it was forgotten."""
        return self._places.get(subnet, UNKNOWN)

    def nearness(self, strategy: str, rng: Random) -> Nearness:
        """Return the nearness of that name."""
        if strategy not in LIVE_STRATEGIES:
            raise BadOption(f"must be one of {', '.join(LIVE_STRATEGIES)}", strategy=strategy)
        return _RandomNearness(rng) if strategy == "random" else _ByDistance(self, strategy)


class _ByDistance:
    """The server with the least distance is the nearest, among equals the one with the lowest number."""

    def __init__(self, where: SiteDirectory, strategy: str) -> None:
        self._where = where
        self._strategy = strategy

    def distance(self, subnet: int, server: int) -> float:
        # It is compared with the distance of the origin: by hops if that distance is known in hops.
        place = self._where.place(subnet)
        metric = self._metric(place, [self._where.servers[ORIGIN]])
        return metric(place, self._where.servers[server], self._where.network)

    def nearest(self, subnets: Ints, servers: Ints) -> Ints:
        places = [self._where.servers[server] for server in servers.tolist()]
        network = self._where.network
        # Subnets at one node have the same hops to everything, and there are few nodes.
        by_node: dict[str | None, int] = {}
        found = np.full(len(subnets), servers[0])
        by_miles: list[int] = []
        for position, subnet in enumerate(subnets.tolist()):
            place = self._where.place(subnet)
            if self._metric(place, places) is METRICS["miles"]:
                by_miles.append(position)
                continue
            if place.node not in by_node:
                hops = [network.hops(place.node, other.node) for other in places]
                by_node[place.node] = hops.index(min(hops))
            found[position] = servers[by_node[place.node]]
        if by_miles:
            asking = [self._where.place(int(subnets[position])) for position in by_miles]
            found[by_miles] = servers[_fewest_miles(asking, places)]
        return found

    def _metric(self, place: Location, compared: Sequence[Location]) -> Metric:
        if self._strategy == "nearest":
            return known_metric(place, compared, self._where.network)
        return METRICS[self._strategy]


def _fewest_miles(places: Sequence[Location], candidates: Sequence[Location]) -> Ints:
    """Return for each place the candidate with the fewest miles, the first of equals or if all are unknown."""
    # A shorter chord is a shorter distance: comparisons need no angle.
    chords = np.linalg.norm(_vectors(places)[:, None] - _vectors(candidates)[None], axis=-1)
    best: Ints = np.where(np.isnan(chords), NEVER, chords).argmin(axis=1)
    return best


def _vectors(places: Sequence[Location]) -> npt.NDArray[np.float64]:
    """Return each place as a point of the unit sphere, NaN if it is not known."""
    unknown = (math.nan, math.nan, math.nan)
    points = [unknown if p.lat is None or p.lon is None else unit_vector(p.lat, p.lon) for p in places]
    return np.array(points, np.float64).reshape(-1, 3)


class _RandomNearness:
    """A random server is the nearest, drawn again each time."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def distance(self, subnet: int, server: int) -> float:
        return self._rng.random()

    def nearest(self, subnets: Ints, servers: Ints) -> Ints:
        return np.array(self._rng.choices(servers.tolist(), k=len(subnets)), np.int64)
