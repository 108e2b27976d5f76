"""The network that push-caching spares: a backbone whose nodes have places, and subnets and servers at its nodes.

Hops are computed once, between nodes of the backbone. A subnet is then no more than the number of its node and its
place, so there can be tens of thousands of them (Gwertzman and Seltzer 1995 count requests by subnet).

Nodes, subnets and servers are numbered from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from newsstand.errors import BadOption
from newsstand.overlay.topology import Topology
from newsstand.planning.distances import hop_matrix
from newsstand.planning.geography import Floats, Places, nearest_places, scattered, vector_miles

Hops = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
Numbers = int | npt.NDArray[np.integer]
"""Of one subnet or server, or of several; several and several are matched as NumPy matches arrays."""

ACCESS_HOPS = 2
"""One link at either end of the backbone, from a host to its node."""

SUBNET_SPREAD_MILES = 30.0


@dataclass(frozen=True, eq=False)
class Backbone:
    """Nodes with names and places, and the links between them; node i, from 0, is node i + 1 of the topology."""

    topology: Topology
    names: tuple[str, ...]
    places: Places
    weights: Floats
    """How much of the demand comes from near each node, in any unit."""

    def __post_init__(self) -> None:
        nodes = self.topology.nodes
        for what, count in (
            ("names", len(self.names)),
            ("places", len(self.places)),
            ("weights", len(self.weights)),
        ):
            if count != nodes:
                raise BadOption(f"{what}: {count} are not one for each of {nodes} nodes")
        if not (np.isfinite(self.weights).all() and (self.weights >= 0).all() and self.weights.sum() > 0):
            raise BadOption("weights: none may be negative, and at least one must be positive")

    def __len__(self) -> int:
        return self.topology.nodes

    @cached_property
    def hops(self) -> Hops:
        """The links on a shortest way between any two nodes, in as few bits as they need."""
        hops = hop_matrix(self.topology)
        return hops.astype(np.uint8) if hops.max() <= np.iinfo(np.uint8).max else hops.astype(np.uint16)


@dataclass(frozen=True, eq=False)
class Hosts:
    """Subnets or servers: the node to which each is attached, and its place."""

    nodes: npt.NDArray[np.int32]
    places: Places

    def __post_init__(self) -> None:
        if len(self.nodes) != len(self.places):
            raise BadOption(f"{len(self.nodes)} nodes and {len(self.places)} places are not hosts")

    def __len__(self) -> int:
        return len(self.nodes)


def hosts_by_weight(
    backbone: Backbone, count: int, rng: np.random.Generator, spread_miles: float = SUBNET_SPREAD_MILES
) -> Hosts:
    """So many hosts, each near a node that is drawn by weight."""
    if count < 1:
        raise BadOption(f"hosts is {count}: there must be at least one")
    shares = backbone.weights / backbone.weights.sum()
    nodes = rng.choice(len(backbone), count, p=shares).astype(np.int32)
    return Hosts(nodes, scattered(backbone.places[nodes], spread_miles, rng))


def hosts_at_places(backbone: Backbone, places: Places) -> Hosts:
    """Hosts at given places, each attached to the node with the fewest miles to it."""
    return Hosts(nearest_places(places, backbone.places).astype(np.int32), places)


@dataclass(frozen=True, eq=False)
class Internet:
    """Subnets with clients, and servers, all at nodes of a backbone; servers are origins or push-caches."""

    backbone: Backbone
    subnets: Hosts
    servers: Hosts
    access_hops: int = ACCESS_HOPS
    """Added to the hops between nodes, for the links of both hosts to theirs."""

    def __post_init__(self) -> None:
        if not 0 <= self.access_hops <= np.iinfo(np.int16).max:
            raise BadOption(f"access_hops is {self.access_hops}: it is between 0 and {np.iinfo(np.int16).max}")
        for hosts in (self.subnets, self.servers):
            strays = hosts.nodes[(hosts.nodes < 0) | (hosts.nodes >= len(self.backbone))]
            if len(strays):
                raise BadOption(f"node {strays[0]} is outside 0 … {len(self.backbone) - 1}")

    def hops(self, subnets: Numbers, servers: Numbers) -> npt.NDArray[np.uint16]:
        """The links between subnets and servers."""
        return self._hops(self.subnets.nodes[subnets], self.servers.nodes[servers])

    def server_hops(self, servers: Numbers, others: Numbers) -> npt.NDArray[np.uint16]:
        """The links between two servers, none from a server to itself."""
        hops = self._hops(self.servers.nodes[servers], self.servers.nodes[others])
        return np.where(np.equal(servers, others), np.uint16(0), hops)

    def miles(self, subnets: Numbers, servers: Numbers) -> Floats:
        """The miles between subnets and servers."""
        return vector_miles(self.subnets.places.vectors[subnets], self.servers.places.vectors[servers])

    def _hops(self, nodes: Numbers, others: Numbers) -> npt.NDArray[np.uint16]:
        between = self.backbone.hops[nodes, others]
        return np.asarray(between, np.uint16) + np.uint16(self.access_hops)
