"""The network that push-caching is simulated in: a backbone, the subnets and origins of a trace, and push-caches.

Push-caches are hosts of their own, near nodes of the backbone that are drawn by weight. Each is drawn by its own
number, so more of them only add to fewer. They are numbered after the origins.
"""

from __future__ import annotations

import numpy as np

from newsstand.errors import BadOption
from newsstand.lab.push_cache_demand import PushDemand, Sites
from newsstand.planning.backbone import Backbone, Hosts, Internet, hosts_by_weight
from newsstand.planning.backbone_waxman import generated_backbone
from newsstand.planning.geography import Places
from newsstand.planning.push_nearness import Ints, Nearness
from newsstand.planning.push_strategies import nearness

BACKBONE, PUSH_CACHES, CACHING, LOOKUP = range(4)
"""The streams of draws."""
NODES = 200
MOST_PUSH_CACHES = 10_000
TABLED = "hops", "miles"


def made_backbone(nodes: int, seed: int) -> Backbone:
    """A backbone near large cities."""
    return generated_backbone(nodes, np.random.default_rng([seed, BACKBONE]))


def internet_of(demand: PushDemand, backbone: Backbone, push_caches: int, seed: int) -> Internet:
    """The origins and subnets of a trace at a backbone, and so many push-caches."""
    if not 0 <= push_caches <= MOST_PUSH_CACHES:
        raise BadOption(f"servers is {push_caches}: there can be 0 to {MOST_PUSH_CACHES:,} push-caches")
    origins = _at_nodes(demand.servers, backbone, "servers")
    drawn = [
        hosts_by_weight(backbone, 1, np.random.default_rng([seed, PUSH_CACHES, number]))
        for number in range(push_caches)
    ]
    return Internet(backbone, _at_nodes(demand.subnets, backbone, "subnets"), _together(origins, *drawn))


def _at_nodes(sites: Sites, backbone: Backbone, table: str) -> Hosts:
    strays = sites.nodes[sites.nodes >= len(backbone)]
    if len(strays):
        raise BadOption(
            f"table '{table}': node {strays[0]} is not in the network, whose nodes are 0 … {len(backbone) - 1}"
        )
    return sites.hosts(backbone)


def _together(*all_hosts: Hosts) -> Hosts:
    return Hosts(
        np.concatenate([hosts.nodes for hosts in all_hosts]),
        Places(
            np.concatenate([np.asarray(hosts.places.latitudes, np.float64) for hosts in all_hosts]),
            np.concatenate([np.asarray(hosts.places.longitudes, np.float64) for hosts in all_hosts]),
        ),
    )


class HopTable:
    """All hops from subnets to servers, looked up without arithmetic on arrays."""

    def __init__(self, internet: Internet) -> None:
        self._internet = internet
        # Subnets of one node are equally far from everything.
        _, examples, rows = np.unique(internet.subnets.nodes, return_index=True, return_inverse=True)
        servers = np.arange(len(internet.servers))
        table: list[list[int]] = internet.hops(examples[:, None], servers[None]).tolist()
        self.rows = [table[row] for row in rows.tolist()]
        self._between: dict[tuple[int, int], int] = {}

    def between_servers(self, one: int, other: int) -> int:
        """The links between two servers."""
        hops = self._between.get((one, other))
        if hops is None:
            hops = self._between[one, other] = int(self._internet.server_hops(one, other))
        return hops


class TabledNearness:
    """A nearness whose distances never change: each is asked for once."""

    def __init__(self, way: Nearness) -> None:
        self._way = way
        self._known: dict[tuple[int, int], float] = {}

    def distance(self, subnet: int, server: int) -> float:
        """What the strategy says, remembered to the bit: between nearly equal ways the last one decides."""
        distance = self._known.get((subnet, server))
        if distance is None:
            distance = self._known[subnet, server] = self._way.distance(subnet, server)
        return distance

    def nearest(self, subnets: Ints, servers: Ints) -> Ints:
        """What the strategy says."""
        return self._way.nearest(subnets, servers)


def way_of(strategy: str, internet: Internet, stream: int, seed: int) -> Nearness:
    """The nearness of that name, with draws of its own."""
    way = nearness(strategy, internet, np.random.default_rng([seed, stream]))
    return TabledNearness(way) if strategy in TABLED else way
