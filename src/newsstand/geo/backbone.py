"""A backbone whose nodes have locations, with subnets and servers at its nodes.

Hops are computed once, between nodes of the backbone. A subnet is only the number of its node and its location, so
there can be tens of thousands of them (Gwertzman and Seltzer 1995 count requests by subnet). Nodes, subnets and
servers are numbered from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.errors import BadInput, BadOption
from newsstand.geo.globe import Floats, Locations, nearest_locations, scattered, vector_miles
from newsstand.overlay.topology import Topology

Nodes = npt.NDArray[np.int32]

LARGEST_NETWORK = 2**15 - 1
"""The largest number of brokers for which hops fit in 16 bits."""


class AdjacencyArrays(NamedTuple):
    """The links of node i, from 0: to `ends[starts[i]]` … `ends[starts[i + 1] - 1]`."""

    starts: Nodes
    ends: Nodes


def adjacency(topology: Topology) -> AdjacencyArrays:
    """Return the links of a network as two arrays; neighbours in the order of their numbers."""
    pairs = np.array(topology.edges, np.int32).reshape(-1, 2) - 1
    both = np.concatenate([pairs, pairs[:, ::-1]])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    starts = np.searchsorted(both[:, 0], np.arange(topology.nodes + 1)).astype(np.int32)
    return AdjacencyArrays(starts, np.ascontiguousarray(both[:, 1]))


def hop_matrix(topology: Topology) -> npt.NDArray[np.int16]:
    """Return D, the hops between any two nodes, numbered from 0.

    >>> hop_matrix(Topology(3, ((1, 2), (2, 3)))).tolist()
    [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    """
    if topology.nodes > LARGEST_NETWORK:
        raise BadInput(f"nodes is {topology.nodes}: at most {LARGEST_NETWORK} can be planned for")
    if not topology.is_connected:
        apart = min(set(range(1, topology.nodes + 1)) - topology.hops_from(1).keys())
        raise BadInput(f"edges: the network is not connected: no way leads from node 1 to node {apart}")
    hops: npt.NDArray[np.int16] = _breadth_first(*adjacency(topology))
    return hops


@njit(cache=True, nogil=True)
def _breadth_first(starts: Nodes, ends: Nodes) -> npt.NDArray[np.int16]:
    nodes = len(starts) - 1
    hops = np.full((nodes, nodes), -1, np.int16)
    queue = np.empty(nodes, np.int32)
    for source in range(nodes):
        row = hops[source]
        row[source] = 0
        queue[0] = source
        first, last = 0, 1
        while first < last:
            node = queue[first]
            first += 1
            for link in range(starts[node], starts[node + 1]):
                end = ends[link]
                if row[end] < 0:
                    row[end] = row[node] + 1
                    queue[last] = end
                    last += 1
    return hops


Hops = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
Numbers = int | npt.NDArray[np.integer]
"""Of one subnet or server, or of several; two arrays are broadcast by NumPy."""

ACCESS_HOPS = 2
"""One link at either end of the backbone, from a host to its node."""

SUBNET_SPREAD_MILES = 30.0


@dataclass(frozen=True, eq=False)
class Backbone:
    """Nodes with names and places, and the links between them; node i, from 0, is node i + 1 of the topology."""

    topology: Topology
    names: tuple[str, ...]
    places: Locations
    weights: Floats
    """The demand from near each node, in any unit."""

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
        """The links on a shortest path between any two nodes, in 8 or 16 bits."""
        hops = hop_matrix(self.topology)
        return hops.astype(np.uint8) if hops.max() <= np.iinfo(np.uint8).max else hops.astype(np.uint16)


@dataclass(frozen=True, eq=False)
class Hosts:
    """Subnets or servers: the node to which each is attached, and its place."""

    nodes: npt.NDArray[np.int32]
    places: Locations

    def __post_init__(self) -> None:
        if len(self.nodes) != len(self.places):
            raise BadOption(f"{len(self.nodes)} nodes and {len(self.places)} places are not hosts")

    def __len__(self) -> int:
        return len(self.nodes)


def hosts_by_weight(
    backbone: Backbone, count: int, rng: np.random.Generator, spread_miles: float = SUBNET_SPREAD_MILES
) -> Hosts:
    """Draw hosts, each near a node that is drawn by weight."""
    if count < 1:
        raise BadOption("must be at least 1", hosts=count)
    shares = backbone.weights / backbone.weights.sum()
    nodes = rng.choice(len(backbone), count, p=shares).astype(np.int32)
    return Hosts(nodes, scattered(backbone.places[nodes], spread_miles, rng))


def hosts_at_places(backbone: Backbone, places: Locations) -> Hosts:
    """Return hosts at given places, each attached to the node with the fewest miles to it."""
    return Hosts(nearest_locations(places, backbone.places).astype(np.int32), places)


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
            raise BadOption(f"must be from 0 to {np.iinfo(np.int16).max}", access_hops=self.access_hops)
        for hosts in (self.subnets, self.servers):
            strays = hosts.nodes[(hosts.nodes < 0) | (hosts.nodes >= len(self.backbone))]
            if len(strays):
                raise BadOption(f"node {strays[0]} is outside 0 … {len(self.backbone) - 1}")

    def hops(self, subnets: Numbers, servers: Numbers) -> npt.NDArray[np.uint16]:
        """Return the links between subnets and servers."""
        return self._hops(self.subnets.nodes[subnets], self.servers.nodes[servers])

    def server_hops(self, servers: Numbers, others: Numbers) -> npt.NDArray[np.uint16]:
        """Return the links between two servers, none from a server to itself."""
        hops = self._hops(self.servers.nodes[servers], self.servers.nodes[others])
        return np.where(np.equal(servers, others), np.uint16(0), hops)

    def miles(self, subnets: Numbers, servers: Numbers) -> Floats:
        """Return the miles between subnets and servers."""
        return vector_miles(self.subnets.places.vectors[subnets], self.servers.places.vectors[servers])

    def _hops(self, nodes: Numbers, others: Numbers) -> npt.NDArray[np.uint16]:
        between = self.backbone.hops[nodes, others]
        return np.asarray(between, np.uint16) + np.uint16(self.access_hops)
