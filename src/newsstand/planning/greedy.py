"""Greedy choices of storages: for one assumed server, and for all of them (Sourlas et al. 2011, 5.1 and 5.2).

A pick minimises the demand times hops to the nearest of the server and the picks so far; of equals it is the
lowest node. The server counts as a replica and is never picked, so that there are at most N - 1 picks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from newsstand.planning.distances import Nodes, links
from newsstand.planning.picking import count_picks, picks_for
from newsstand.planning.problem import Hops, Ints, Problem
from newsstand.planning.replication import replicas

Follow = Callable[[Iterable[Ints], int], Iterable[Ints]]
"""Passes on results as they come, and knows how many there will be: to show how far it is."""


class Network(NamedTuple):
    """A topology as compiled code wants it."""

    starts: Nodes
    ends: Nodes
    hops: Hops
    is_tree: bool


def network_of(problem: Problem) -> Network:
    """The network of a problem."""
    return Network(*links(problem.topology), problem.hops, problem.topology.is_tree)


def greedy_picks(problem: Problem, topic: int, server: int, wanted: int) -> tuple[int, ...]:
    """What is picked for a topic if its server is at a node, in order (section 5.1)."""
    found = picks_for(*network_of(problem), problem.demand[topic], wanted, server - 1)
    return tuple(int(node) + 1 for node in found)


def possible_for(network: Network, demand: Ints, wanted: int, publishing: Ints | None = None) -> Ints:
    """PS_t: for how many assumed servers each node is picked; or how much they publish, if that is given."""
    counts = np.zeros(len(demand), np.int64)
    weights = np.ones_like(counts) if publishing is None else publishing
    count_picks(*network, demand, wanted, weights, counts)
    return counts


def possible_storages(problem: Problem, follow: Follow = lambda rows, _: rows) -> Ints:
    """PS, a row a topic (section 5.2); topics are worked on in as many threads as there are cores."""
    network, wanted, topics = network_of(problem), replicas(problem), len(problem.topics)

    def of_topic(topic: int) -> Ints:
        return possible_for(network, problem.demand[topic], wanted[topic], problem.publishing)

    return np.array(list(follow(_in_threads(of_topic, topics), topics)))


def _in_threads(of_topic: Callable[[int], Ints], topics: int) -> Iterator[Ints]:
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        yield from pool.map(of_topic, range(topics))
    finally:
        pool.shutdown(cancel_futures=True)
