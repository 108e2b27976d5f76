"""The places of a running platform under numbers, and what is nearest among them.

An origin's decisions know subnets and servers by numbers only (`push_nearness`). Here push-caches get theirs by
name, and whoever is at about the same place is of the same subnet.

>>> where = Whereabouts(Place(40.7, -74.0))
>>> berlin, tokyo = where.server("berlin", Place(52.5, 13.4)), where.server("tokyo", Place(35.7, 139.7))
>>> by_miles = where.nearness("nearest", Random(1))
>>> paris = where.subnet(Place(48.9, 2.4))
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
from newsstand.planning.places import METRICS, NEVER, NOWHERE, Metric, Network, Place, known_metric, unit_vector
from newsstand.planning.push_nearness import Ints, Nearness

ORIGIN = 0
"""The number of the origin itself among the servers."""
MOST_SUBNETS = 50_000
"""Of more the one not heard of for longest is forgotten; a history remembers fewer."""
LIVE_STRATEGIES = ("nearest", "hops", "miles", "random")
"""The values of caching-strategy and lookup-strategy in a running platform."""


class Whereabouts:
    """Where an origin, its push-caches and those who request are."""

    def __init__(self, origin: Place, network: Network | None = None, most_subnets: int = MOST_SUBNETS) -> None:
        self.network = network or Network()
        self.servers: dict[int, Place] = {ORIGIN: origin}
        self._server_nodes = frozenset([origin.node])
        self._names: list[str] = [""]
        self._numbers: dict[str, int] = {}
        self._most_subnets = most_subnets
        self._subnets: OrderedDict[Place, int] = OrderedDict()
        self._places: dict[int, Place] = {}
        self._next_subnet = 0

    def server(self, name: str, place: Place) -> int:
        """The number of a push-cache, which is at this place now; a name keeps its number."""
        number = self._numbers.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
        self.servers[number] = place
        self._server_nodes = frozenset(one.node for one in self.servers.values())
        return number

    def number(self, name: str) -> int | None:
        """The number of a push-cache that was heard of."""
        return self._numbers.get(name)

    def name(self, number: int) -> str:
        """The name of a push-cache."""
        return self._names[number]

    def subnet(self, place: Place) -> int:
        """The number of those who are at about this place: within a tenth of a degree, and at the same node."""
        known = place.node in self.network or place.node in self._server_nodes
        key = Place(place.lat, place.lon, place.node if known else None).about()
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

    def place(self, subnet: int) -> Place:
        """Where those of a subnet are; nowhere if it was forgotten."""
        return self._places.get(subnet, NOWHERE)

    def nearness(self, strategy: str, rng: Random) -> Nearness:
        """The nearness of that name."""
        if strategy not in LIVE_STRATEGIES:
            raise BadOption(f"strategy is {strategy}: choose of {', '.join(LIVE_STRATEGIES)}")
        return _ByChance(rng) if strategy == "random" else _ByPlace(self, strategy)


class _ByPlace:
    """The nearest server is the closest one, of equals the one with the lowest number."""

    def __init__(self, where: Whereabouts, strategy: str) -> None:
        self._where = where
        self._strategy = strategy

    def distance(self, subnet: int, server: int) -> float:
        # It is compared with that of the origin: nearest is by hops if that one can be told in hops.
        place = self._where.place(subnet)
        metric = self._metric(place, [self._where.servers[ORIGIN]])
        return metric(place, self._where.servers[server], self._where.network)

    def nearest(self, subnets: Ints, servers: Ints) -> Ints:
        places = [self._where.servers[server] for server in servers.tolist()]
        network = self._where.network
        # Those at one node are equally far from everything by hops, and there are few nodes.
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

    def _metric(self, place: Place, compared: Sequence[Place]) -> Metric:
        if self._strategy == "nearest":
            return known_metric(place, compared, self._where.network)
        return METRICS[self._strategy]


def _fewest_miles(places: Sequence[Place], candidates: Sequence[Place]) -> Ints:
    """For each place the candidate with the fewest miles to it, the first of equals, or of those not known."""
    # The shorter chord is the shorter way: no angle is needed to compare.
    chords = np.linalg.norm(_vectors(places)[:, None] - _vectors(candidates)[None], axis=-1)
    best: Ints = np.where(np.isnan(chords), NEVER, chords).argmin(axis=1)
    return best


def _vectors(places: Sequence[Place]) -> npt.NDArray[np.float64]:
    """Each place as a point of the unit sphere, or of nothing if it is not known."""
    unknown = (math.nan, math.nan, math.nan)
    points = [unknown if p.lat is None or p.lon is None else unit_vector(p.lat, p.lon) for p in places]
    return np.array(points, np.float64).reshape(-1, 3)


class _ByChance:
    """Any server is as likely to be the nearest one, and the next time it may be another."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def distance(self, subnet: int, server: int) -> float:
        return self._rng.random()

    def nearest(self, subnets: Ints, servers: Ints) -> Ints:
        return np.array(self._rng.choices(servers.tolist(), k=len(subnets)), np.int64)
