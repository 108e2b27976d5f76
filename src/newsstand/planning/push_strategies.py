"""What "nearest" means: by hops, by miles or by chance (Gwertzman and Seltzer 1995).

The caching-strategy says so where an origin decides to which push-cache it pushes, and the lookup-strategy where
it decides whether a push-cache is closer to a client than the origin itself. Of equally near servers it is the one
with the lowest number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from newsstand.errors import BadOption
from newsstand.planning.backbone import Internet
from newsstand.planning.geography import Ints, nearest_vectors
from newsstand.planning.push_nearness import Nearness


class ByHops:
    """The nearest server is the fewest links away."""

    def __init__(self, internet: Internet) -> None:
        self._hops = internet.backbone.hops
        self._subnet_nodes = internet.subnets.nodes
        self._server_nodes = internet.servers.nodes

    def distance(self, subnet: int, server: int) -> float:
        """The links between their nodes; those of access are the same for all."""
        return int(self._hops[self._subnet_nodes[subnet], self._server_nodes[server]])

    def nearest(self, subnets: Ints, servers: Ints) -> Ints:
        # Subnets of one node are equally far from everything, so that a node is looked at once.
        nodes, node_of = np.unique(self._subnet_nodes[subnets], return_inverse=True)
        best = self._hops[nodes[:, None], self._server_nodes[servers]].argmin(axis=1)
        found: Ints = servers[best[node_of]]
        return found


class ByMiles:
    """The nearest server is the fewest miles away."""

    def __init__(self, internet: Internet) -> None:
        self._subnets = internet.subnets.places.vectors
        self._servers = internet.servers.places.vectors

    def distance(self, subnet: int, server: int) -> float:
        """The square of the chord through the Earth: it compares as miles do, and as `nearest` does to the bit."""
        a, b, c = self._subnets[subnet].tolist()
        d, e, f = self._servers[server].tolist()
        x, y, z = a - d, b - e, c - f
        return float(x * x + y * y + z * z)

    def nearest(self, subnets: Ints, servers: Ints) -> Ints:
        found: Ints = servers[nearest_vectors(self._subnets[subnets], self._servers[servers])]
        return found


class ByChance:
    """Any server is as likely to be the nearest one, and the next time it may be another."""

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
    """The nearness of that name."""
    if strategy not in STRATEGIES:
        raise BadOption(f"strategy is {strategy}: choose of {', '.join(STRATEGIES)}")
    return STRATEGIES[strategy](internet, rng)
