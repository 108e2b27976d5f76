"""Hops between all brokers: breadth first from each, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.errors import BadInput
from newsstand.overlay.topology import Topology

Nodes = npt.NDArray[np.int32]

LARGEST_NETWORK = 2**15 - 1
"""As many brokers as hops of 16 bits can tell apart."""


class Links(NamedTuple):
    """Who is linked to whom: node i, from 0, to `ends[starts[i]]` up to before `ends[starts[i + 1]]`."""

    starts: Nodes
    ends: Nodes


def links(topology: Topology) -> Links:
    """The links of a network as two arrays; neighbours in the order of their numbers."""
    pairs = np.array(topology.edges, np.int32).reshape(-1, 2) - 1
    both = np.concatenate([pairs, pairs[:, ::-1]])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    starts = np.searchsorted(both[:, 0], np.arange(topology.nodes + 1)).astype(np.int32)
    return Links(starts, np.ascontiguousarray(both[:, 1]))


def hop_matrix(topology: Topology) -> npt.NDArray[np.int16]:
    """D: the hops between any two nodes, numbered from 0.

    >>> hop_matrix(Topology(3, ((1, 2), (2, 3)))).tolist()
    [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    """
    if topology.nodes > LARGEST_NETWORK:
        raise BadInput(f"nodes is {topology.nodes}: at most {LARGEST_NETWORK} can be planned for")
    if not topology.is_connected:
        apart = min(set(range(1, topology.nodes + 1)) - topology.hops_from(1).keys())
        raise BadInput(f"edges: the network is not connected: no way leads from node 1 to node {apart}")
    hops: npt.NDArray[np.int16] = _breadth_first(*links(topology))
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
