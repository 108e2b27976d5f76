"""The strategies that define the nearest server: by hops, by miles or random (Gwertzman and Seltzer 1995).

An origin chooses the push-cache to push to by its caching-strategy, and decides by its lookup-strategy whether a
push-cache is closer to a client than the origin itself. Among equals, the server with the lowest number is
nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from newsstand.errors import BadOption
from newsstand.geo.backbone import Internet
from newsstand.geo.globe import Ints, nearest_vectors
from newsstand.push_caching.clusters import Nearness


class ByHops:
    """The server with the fewest hops is the nearest."""

    def __init__(self, internet: Internet) -> None:
        self._hops = internet.backbone.hops
        self._subnet_nodes = internet.subnets.nodes
        self._server_nodes = internet.servers.nodes

    def distance(self, subnet: int, server: int) -> float:
        """Return the hops between their nodes; access links are the same for all."""
        return int(self._hops[self._subnet_nodes[subnet], self._server_nodes[server]])

    def nearest(self, subnets: Ints, servers: Ints) -> Ints:
        # Subnets of one node have the same hops to everything, so each node is computed once.
        nodes, node_of = np.unique(self._subnet_nodes[subnets], return_inverse=True)
        best = self._hops[nodes[:, None], self._server_nodes[servers]].argmin(axis=1)
        found: Ints = servers[best[node_of]]
        return found


class ByMiles:
    """The server with the fewest miles is the nearest."""

    def __init__(self, internet: Internet) -> None:
        self._subnets = internet.subnets.places.vectors
        self._servers = internet.servers.places.vectors

    def distance(self, subnet: int, server: int) -> float:
        """Return the squared chord through the Earth, in the order of miles and bit by bit as in `nearest`."""
        a, b, c = self._subnets[subnet].tolist()
        d, e, f = self._servers[server].tolist()
        x, y, z = a - d, b - e, c - f
        return float(x * x + y * y + z * z)

    def nearest(self, subnets: Ints, servers: Ints) -> Ints:
        found: Ints = servers[nearest_vectors(self._subnets[subnets], self._servers[servers])]
        return found


class ByChance:
    """A random server is the nearest, drawn again each time."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def distance(self, subnet: int, server: int) -> float:
        return self._rng.random()

    def nearest(self, subnets: Ints, servers: Ints) -> Ints:
        found: Ints = servers[self._rng.integers(len(servers), size=len(subnets))]
        return found


STRATEGIES: Mapping[str, Callable[[Internet, np.random.Generator], Nearness]] = {
    "hops": lambda internet, _: ByHops(internet),
    "miles": lambda internet, _: ByMiles(internet),
    "random": lambda _, rng: ByChance(rng),
}
"""The values of caching-strategy and lookup-strategy."""


def nearness(strategy: str, internet: Internet, rng: np.random.Generator) -> Nearness:
    """Return the nearness of that name."""
    if strategy not in STRATEGIES:
        raise BadOption(f"must be one of {', '.join(STRATEGIES)}", strategy=strategy)
    return STRATEGIES[strategy](internet, rng)
