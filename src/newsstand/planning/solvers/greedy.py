"""Greedy choices of storages: for one assumed server, and for all of them (Sourlas et al. 2011, 5.1 and 5.2).

A pick minimises the demand times hops to the nearest of the server and the picks so far; of equals it is the
lowest node. The server counts as a replica and is never picked, so that there are at most N - 1 picks.

A pick's gain is the traffic that it saves: over all nodes nearer to it than to the server and the picks so far,
its cell, demand times hops saved. Gains only shrink while picks are added, so a gain given fewer picks is a
bound: the node with the largest bound is evaluated until it keeps its place (Minoux's lazy greedy). For each node
there is a bound for the server and for each pick, as if that were alone, known from first picks for other
servers. Everything is counted in whole numbers, so that ties are ties.

A cell is connected, as all nodes on a shortest way from the pick to one of its nodes are in it, too. So a gain is
evaluated by walking the links from a node, as far as its cell goes. On a tree, one pass computes all gains of the
first pick: see `_gains_on_a_tree`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.geo.backbone import Nodes, adjacency
from newsstand.planning.problem import Hops, Ints, Problem
from newsstand.planning.replication import replicas


class TopologyArrays(NamedTuple):
    """A topology as compiled code takes it."""

    starts: Nodes
    ends: Nodes
    hops: Hops
    is_tree: bool


class Traversal(NamedTuple):
    """The state of walks over links: a queue of nodes and hops, and the walk in which each node was last seen."""

    queue: Nodes
    away: Nodes
    seen: Ints
    walks: Ints


class RootedTree(NamedTuple):
    """A tree as seen from an assumed server, its nodes in the order of a depth-first walk."""

    node: Nodes
    parent: Nodes
    """The place of a node's parent in that order."""
    depth: Nodes
    middle: Nodes
    """The place of the first node on the way from the root that is nearer to this node than to the root."""


class FirstGains(NamedTuple):
    """What each node (column) would save as the first pick for each assumed server (row), computed on demand."""

    known: npt.NDArray[np.bool_]
    rows: Ints


@njit(cache=True, nogil=True)
def count_picks(network: TopologyArrays, demand: Ints, wanted: int, publishing: Ints, counts: Ints) -> None:
    """Add to `counts[node]` the `publishing` of the assumed servers for which a node is picked."""
    nodes = len(demand)
    queue, away, seen = np.empty(nodes, np.int32), np.empty(nodes, np.int32), np.zeros(nodes, np.int64)
    walk = Traversal(queue, away, seen, np.zeros(1, np.int64))
    gains = FirstGains(np.zeros(nodes, np.bool_), np.empty((nodes, nodes), np.int64))
    picks = np.empty(nodes, np.int32)
    for server in range(nodes):
        if publishing[server]:
            picked = _pick(network, walk, gains, demand, wanted, server, picks)
            for pick in picks[:picked]:
                counts[pick] += publishing[server]


@njit(cache=True, nogil=True)
def _first_gains(network: TopologyArrays, walk: Traversal, gains: FirstGains, demand: Ints, server: int) -> Ints:
    """Return the row of a server, computed when it is first needed."""
    row: Ints = gains.rows[server]
    if not gains.known[server]:
        if network.is_tree:
            _gains_on_a_tree(_rooted(network, walk, server), demand, row)
        else:
            _gains_on_a_graph(network.hops, server, demand, row)
        gains.known[server] = True
    return row


@njit(cache=True, nogil=True)
def _rooted(network: TopologyArrays, walk: Traversal, root: int) -> RootedTree:
    nodes = len(walk.queue)
    rooted = RootedTree(
        np.empty(nodes, np.int32), np.empty(nodes, np.int32), np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    )
    waiting, parents = walk.queue, walk.away
    path = np.empty(nodes, np.int32)
    waiting[0], parents[0] = root, -1
    left = 1
    for place in range(nodes):
        left -= 1
        node, parent = waiting[left], parents[left]
        depth = rooted.depth[parent] + 1 if parent >= 0 else 0
        path[depth] = place
        rooted.node[place], rooted.parent[place], rooted.depth[place] = node, parent, depth
        rooted.middle[place] = path[depth // 2 + 1] if depth else 0
        for link in range(network.starts[node], network.starts[node + 1]):
            if parent < 0 or network.ends[link] != rooted.node[parent]:
                waiting[left], parents[left] = network.ends[link], place
                left += 1
    return rooted


@njit(cache=True, nogil=True)
def _gains_on_a_tree(rooted: RootedTree, demand: Ints, gains: Ints) -> None:
    """Compute what each node would save as the first pick.

    What hangs at depth p of the way from the root to a node at depth d is 2p - d hops nearer to the node than to
    the root. Summed over p > d/2, with the demand below each node of the way, that leaves the demand below the
    first such node, once or twice, and twice that below each later one: a difference of two sums along the way.
    """
    nodes = len(demand)
    below = np.empty(nodes, np.int64)
    along = np.empty(nodes, np.int64)
    for place in range(nodes):
        below[place] = demand[rooted.node[place]]
    for place in range(nodes - 1, 0, -1):
        below[rooted.parent[place]] += below[place]
    along[0] = 0
    gains[rooted.node[0]] = 0
    for place in range(1, nodes):
        along[place] = along[rooted.parent[place]] + below[place]
        middle = rooted.middle[place]
        times = 1 if rooted.depth[place] % 2 else 2
        gains[rooted.node[place]] = times * below[middle] + 2 * (along[place] - along[middle])


@njit(cache=True, nogil=True)
def _gains_on_a_graph(hops: Hops, server: int, demand: Ints, gains: Ints) -> None:
    nodes = len(demand)
    for node in range(nodes):
        gain = 0
        for other in range(nodes):
            gain += demand[other] * max(0, hops[server, other] - hops[node, other])
        gains[node] = gain


@njit(cache=True, nogil=True)
def _pick(
    network: TopologyArrays,
    walk: Traversal,
    gains: FirstGains,
    demand: Ints,
    wanted: int,
    server: int,
    picks: Nodes,
) -> int:
    """Pick as many as wanted, or all but the server; return the number of picks."""
    nodes = len(demand)
    near = network.hops[server].astype(np.int32)
    bound = np.full(nodes, 2**62, np.int64)
    queue = np.empty(nodes, np.int32)
    fresh = np.zeros(nodes, np.int32)
    size = 0
    for node in range(nodes):
        if node != server:
            queue[size] = node
            size += 1
    _tighten(bound, _first_gains(network, walk, gains, demand, server), queue, size)
    picked = 0
    while picked < wanted and size:
        node = queue[0]
        if fresh[node] == picked:
            picks[picked] = node
            picked += 1
            size -= 1
            queue[0] = queue[size]
            if picked < wanted:
                _gain(network, walk, near, demand, node, True)
                _tighten(bound, _first_gains(network, walk, gains, demand, node), queue, size)
        else:
            bound[node] = _gain(network, walk, near, demand, node, False)
            fresh[node] = picked
            _sift_down(bound, queue, size, 0)
    return picked


@njit(cache=True, nogil=True)
def _tighten(bound: Ints, gains: Ints, queue: Nodes, size: int) -> None:
    """Lower the bounds to the gains that nodes have if one replica is alone, and order the heap by them."""
    for node in range(len(bound)):
        bound[node] = min(bound[node], gains[node])
    for place in range(size // 2 - 1, -1, -1):
        _sift_down(bound, queue, size, place)


@njit(cache=True, nogil=True)
def _gain(network: TopologyArrays, walk: Traversal, near: Nodes, demand: Ints, node: int, take: bool) -> int:
    """Return what a node would save, given the hops of each node to its nearest replica; add it if `take`."""
    walk.walks[0] += 1
    number = walk.walks[0]
    walk.queue[0], walk.away[0] = node, 0
    walk.seen[node] = number
    first, last, gain = 0, 1, 0
    while first < last:
        here, away = walk.queue[first], walk.away[first]
        first += 1
        gain += demand[here] * (near[here] - away)
        for link in range(network.starts[here], network.starts[here + 1]):
            end = network.ends[link]
            if near[end] > away + 1 and walk.seen[end] != number:
                walk.seen[end] = number
                walk.queue[last], walk.away[last] = end, away + 1
                last += 1
        if take:
            near[here] = away
    return gain


@njit(cache=True, nogil=True)
def _sift_down(bound: Ints, queue: Nodes, size: int, place: int) -> None:
    """Put one node of a heap into its place: the largest bound on top, of equals the lowest node."""
    node = queue[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _comes_before(bound, queue[child + 1], queue[child]):
            child += 1
        if _comes_before(bound, node, queue[child]):
            break
        queue[place] = queue[child]
        place = child
    queue[place] = node


@njit(cache=True, nogil=True)
def _comes_before(bound: Ints, one: int, other: int) -> bool:
    return bound[one] > bound[other] or (bound[one] == bound[other] and one < other)


Follow = Callable[[Iterable[Ints], int], Iterable[Ints]]
"""Passes on results as they come, given their number: to show progress."""


def topology_arrays(problem: Problem) -> TopologyArrays:
    """Return the network of a problem."""
    return TopologyArrays(*adjacency(problem.topology), problem.hops, problem.topology.is_tree)


def possible_for(network: TopologyArrays, demand: Ints, wanted: int, publishing: Ints | None = None) -> Ints:
    """PS_t: the number of assumed servers for which each node is picked, or what these servers publish."""
    counts = np.zeros(len(demand), np.int64)
    weights = np.ones_like(counts) if publishing is None else publishing
    count_picks(network, demand, wanted, weights, counts)
    return counts


def possible_storages(problem: Problem, follow: Follow = lambda rows, _: rows) -> Ints:
    """Return PS, one row for each topic (section 5.2), computed in as many threads as there are cores."""
    network, wanted, topics = topology_arrays(problem), replicas(problem), len(problem.topics)

    def of_topic(topic: int) -> Ints:
        return possible_for(network, problem.demand[topic], wanted[topic], problem.publishing)

    return np.array(list(follow(_in_threads(of_topic, topics), topics)))


def _in_threads(of_topic: Callable[[int], Ints], topics: int) -> Iterator[Ints]:
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        yield from pool.map(of_topic, range(topics))
    finally:
        pool.shutdown(cancel_futures=True)
