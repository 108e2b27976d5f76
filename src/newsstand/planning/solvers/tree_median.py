"""The k-median of a tree: the optimum for one topic without capacities.

Dynamic programming with a table for each subtree (Kariv and Hakimi 1979; Tamir 1996), here with one row for each
number of hops, as all links have length 1: O(k N x diameter) steps.

>>> tree_median(Topology(5, ((1, 2), (2, 3), (3, 4), (4, 5))), np.array([1, 1, 1, 1, 1]), 2)
Median(nodes=(1, 4), cost=3)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from newsstand.errors import BadOption
from newsstand.overlay.topology import Topology
from newsstand.planning.problem import LARGEST, Ints

NEVER = LARGEST - 1
"""More than any cost; twice this fits in 64 bits."""


@dataclass(frozen=True)
class Median:
    """The nodes chosen, in ascending order, and demand times hops to the nearest of them."""

    nodes: tuple[int, ...]
    cost: int


class Subtree(NamedTuple):
    """The least cost of the subtree of a node with j replicas in it; the last axis is j."""

    above: Ints
    """If the node uses a replica outside: one row for each number of hops to it."""
    within: Ints
    """If the node uses a replica in the subtree: one row for each number of hops to it."""
    best: Ints
    """If the node uses any replica in the subtree."""


def tree_median(topology: Topology, demand: Ints, replicas: int) -> Median:
    """Return the cheapest `replicas` nodes of a tree; raise `BadOption` if it is no tree or has too few nodes.

    Of equally good choices, the one that gives, at each node from node 1 on, the fewest replicas to the subtrees
    of neighbours with the highest numbers.
    """
    if not topology.is_tree:
        raise BadOption("edges: the network is not a tree")
    if not 1 <= replicas <= topology.nodes:
        raise BadOption(f"must be from 1 to the number of nodes, {topology.nodes}", replication=replicas)
    return _MedianTables(topology, demand, replicas).median()


class _MedianTables:
    """A tree with node 1 as its root, nodes numbered from 0."""

    def __init__(self, topology: Topology, demand: Ints, replicas: int) -> None:
        from_root = topology.hops_from(1)
        self.order = [node - 1 for node in from_root]
        self.children = [
            [child - 1 for child in topology.neighbours(node) if from_root[child] > from_root[node]]
            for node in range(1, topology.nodes + 1)
        ]
        furthest = max(topology.hops_from(self.order[-1] + 1).values())
        self.hops = np.arange(furthest + 1)
        self.demand = demand
        self.replicas = replicas
        self.tables: dict[int, Subtree] = {}

    def median(self) -> Median:
        for node in reversed(self.order):
            self.tables[node] = self._table(node)
        root = self.tables[0]
        cost = int(root.best[self.replicas])
        return Median(tuple(sorted(node + 1 for node in self._chosen())), cost)

    def _table(self, node: int) -> Subtree:
        above, inside = self._merged(node, self.hops)[-1]
        height = max((len(self.tables[child].within) for child in self.children[node]), default=0)
        at_node = np.full((1, min(self.replicas, above.shape[1]) + 1), NEVER)
        at_node[0, 1:] = above[0, : at_node.shape[1] - 1]
        below = np.full((height, at_node.shape[1]), NEVER)
        below[:, : inside.shape[1]] = inside[1 : height + 1, : at_node.shape[1]]
        within = np.concatenate([at_node, below])
        return Subtree(above, within, within.min(axis=0))

    def _merged(self, node: int, hops: Ints) -> list[tuple[Ints, Ints]]:
        """Merge a node with its children one by one, if its replica is `hops` away: elsewhere, or below one.

        The node itself keeps no replica here, except that the row of 0 hops holds what the others cost if it does.
        """
        elsewhere = (hops * self.demand[node])[:, None]
        below = np.full_like(elsewhere, NEVER)
        merged = [(elsewhere, below)]
        for child in self.children[node]:
            through_node, from_child = self._seen_from_parent(child, hops)
            below = np.minimum(self._together(below, through_node), self._together(elsewhere, from_child))
            elsewhere = self._together(elsewhere, through_node)
            merged.append((elsewhere, below))
        return merged

    def _seen_from_parent(self, child: int, hops: Ints) -> tuple[Ints, Ints]:
        """Return the cost of a child's subtree if its parent's replica is `hops` away: elsewhere, or in it."""
        table = self.tables[child]
        through_parent = np.tile(table.best, (len(hops), 1))
        reach = hops + 1 < len(table.above)
        through_parent[reach, : table.above.shape[1]] = np.minimum(
            through_parent[reach, : table.above.shape[1]], table.above[hops[reach] + 1]
        )
        here = np.full_like(through_parent, NEVER)
        deep = (hops >= 1) & (hops <= len(table.within))
        here[deep] = table.within[hops[deep] - 1]
        return through_parent, here

    def _together(self, left: Ints, right: Ints) -> Ints:
        """Return the cheapest way to share out each number of replicas between two parts, row by row."""
        if left.shape[1] < right.shape[1]:
            left, right = right, left
        width = min(self.replicas + 1, left.shape[1] + right.shape[1] - 1)
        shared = np.full((len(left), width), NEVER)
        for count in range(right.shape[1]):
            upto = min(width, count + left.shape[1])
            part = shared[:, count:upto]
            np.minimum(part, left[:, : upto - count] + right[:, count, None], out=part)
        return shared

    def _chosen(self) -> list[int]:
        """Follow the tables from the root down."""
        chosen = []
        waiting = [self._inside(0, self.replicas)]
        while waiting:
            node, hops, is_below, count = waiting.pop()
            if is_below and hops == 0:
                chosen.append(node)
                is_below, count = False, count - 1
            merged = self._merged(node, np.array([hops]))
            for child, (before, after) in reversed(list(zip(self.children[node], pairwise(merged), strict=True))):
                through_node, from_child = self._seen_from_parent(child, np.array([hops]))
                target = after[is_below][0, count]
                given = _first_split(before[is_below][0], through_node[0], target, count)
                if given is None:
                    given = _first_split(before[False][0], from_child[0], target, count)
                    assert given is not None
                    waiting.append((child, hops - 1, True, given))
                    is_below = False
                else:
                    waiting.append(self._below_parent(child, hops, given))
                count -= given
        return chosen

    def _inside(self, node: int, count: int) -> tuple[int, int, bool, int]:
        return node, int(self.tables[node].within[:, count].argmin()), True, count

    def _below_parent(self, child: int, hops: int, count: int) -> tuple[int, int, bool, int]:
        table = self.tables[child]
        reached = hops + 1 < len(table.above) and count < table.above.shape[1]
        if reached and table.above[hops + 1, count] <= table.best[count]:
            return child, hops + 1, False, count
        return self._inside(child, count)


def _first_split(before: Ints, part: Ints, target: int, count: int) -> int | None:
    """Return the smallest share of `count` replicas for a part that costs `target` with those before."""
    for given in range(max(0, count - len(before) + 1), min(count, len(part) - 1) + 1):
        if before[count - given] + part[given] == target < NEVER:
            return given
    return None
