"""The network that push-caching is simulated in: a backbone, the subnets and origins of a trace, and push-caches.

Push-caches are hosts of their own, near nodes of the backbone that are drawn by weight. Each is drawn by its own
number, so more of them only add to fewer. They are numbered after the origins.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from newsstand.errors import BadOption
from newsstand.geo.backbone import Backbone, Hosts, Internet, hosts_by_weight
from newsstand.geo.backbone_sources import generated_backbone
from newsstand.geo.globe import Locations
from newsstand.lab.push_caching.demand import PushDemand
from newsstand.push_caching.clusters import Nearness
from newsstand.push_caching.strategies import nearness

BACKBONE, PUSH_CACHES, CACHING, LOOKUP = range(4)
"""The streams of draws."""
NODES = 200
MOST_PUSH_CACHES = 10_000
CACHED = "hops", "miles"


def made_backbone(nodes: int, seed: int) -> Backbone:
    """Return a backbone near large cities."""
    return generated_backbone(nodes, np.random.default_rng([seed, BACKBONE]))


def internet_of(demand: PushDemand, backbone: Backbone, push_caches: int, seed: int) -> Internet:
    """Return the origins and subnets of a trace at a backbone, and this many push-caches."""
    if not 0 <= push_caches <= MOST_PUSH_CACHES:
        raise BadOption(f"must be from 0 to {MOST_PUSH_CACHES:,}", servers=push_caches)
    require_nodes(demand, len(backbone))
    origins = demand.servers.hosts(backbone)
    drawn = [
        hosts_by_weight(backbone, 1, np.random.default_rng([seed, PUSH_CACHES, number]))
        for number in range(push_caches)
    ]
    return Internet(backbone, demand.subnets.hosts(backbone), _together(origins, *drawn))


def require_nodes(demand: PushDemand, nodes: int) -> None:
    """Raise BadOption if a server or subnet is at a node that a network of this size does not have."""
    for table, sites in (("servers", demand.servers), ("subnets", demand.subnets)):
        strays = sites.nodes[sites.nodes >= nodes]
        if len(strays):
            raise BadOption(
                f"table '{table}': node {strays[0]} is not in the network, whose nodes are 0 … {nodes - 1}"
            )


def _together(*all_hosts: Hosts) -> Hosts:
    return Hosts(
        np.concatenate([hosts.nodes for hosts in all_hosts]),
        Locations(
            np.concatenate([np.asarray(hosts.places.latitudes, np.float64) for hosts in all_hosts]),
            np.concatenate([np.asarray(hosts.places.longitudes, np.float64) for hosts in all_hosts]),
        ),
    )


class HopTable:
    """All hops from subnets to servers, in lists, which are faster than arrays for single values."""

    def __init__(self, internet: Internet) -> None:
        # Subnets of one node are equally far from everything.
        _, examples, rows = np.unique(internet.subnets.nodes, return_index=True, return_inverse=True)
        servers = np.arange(len(internet.servers))
        table: list[list[int]] = internet.hops(examples[:, None], servers[None]).tolist()
        self.rows = [table[row] for row in rows.tolist()]
        self.between_servers = cache(lambda one, other: int(internet.server_hops(one, other)))
        """The links between two servers."""


class CachedNearness:
    """A nearness whose distances never change: each is computed once."""

    def __init__(self, way: Nearness) -> None:
        # The same distance to the bit: between nearly equal ways the last bit decides.
        self.distance = cache(way.distance)
        self.nearest = way.nearest


def way_of(strategy: str, internet: Internet, stream: int, seed: int) -> Nearness:
    """Return the nearness of that name, with draws of its own."""
    way = nearness(strategy, internet, np.random.default_rng([seed, stream]))
    return CachedNearness(way) if strategy in CACHED else way
