"""Brokers and the links between them.

>>> star = Topology(4, ((1, 2), (1, 3), (1, 4)))
>>> star.neighbours(1)
(2, 3, 4)
>>> star.hops_from(2)
{2: 0, 1: 1, 3: 2, 4: 2}
>>> star.is_tree
True
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import cached_property

from newsstand.errors import BadOption

Edge = tuple[int, int]


class Topology:
    """A graph without loops and double links, its nodes numbered from 1; edges as (smaller, larger), in order."""

    def __init__(self, nodes: int, edges: Iterable[Edge]) -> None:
        if nodes < 1:
            raise BadOption(f"nodes is {nodes}: a network has at least one")
        found = set()
        for number, (a, b) in enumerate(edges):
            for node in (a, b):
                if not 1 <= node <= nodes:
                    raise BadOption(f"edges[{number}]: node {node} is outside 1 … {nodes}")
            if a == b:
                raise BadOption(f"edges[{number}]: node {a} is linked to itself")
            found.add((min(a, b), max(a, b)))
        self.nodes = nodes
        self.edges: tuple[Edge, ...] = tuple(sorted(found))

    @cached_property
    def _neighbours(self) -> tuple[tuple[int, ...], ...]:
        lists: list[list[int]] = [[] for _ in range(self.nodes + 1)]
        for a, b in self.edges:
            lists[a].append(b)
            lists[b].append(a)
        return tuple(tuple(sorted(one)) for one in lists)

    def neighbours(self, node: int) -> tuple[int, ...]:
        """To whom a node is linked, in the order of their numbers."""
        return self._neighbours[node]

    def hops_from(self, *sources: int) -> dict[int, int]:
        """The distance of every node that can be reached from the nearest source, breadth first."""
        hops = dict.fromkeys(sources, 0)
        waiting = deque(sources)
        while waiting:
            node = waiting.popleft()
            for neighbour in self._neighbours[node]:
                if neighbour not in hops:
                    hops[neighbour] = hops[node] + 1
                    waiting.append(neighbour)
        return hops

    @property
    def is_connected(self) -> bool:
        return len(self.hops_from(1)) == self.nodes

    @property
    def is_tree(self) -> bool:
        return len(self.edges) == self.nodes - 1 and self.is_connected

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and (self.nodes, self.edges) == (other.nodes, other.edges)

    def __hash__(self) -> int:
        return hash((self.nodes, self.edges))

    def __repr__(self) -> str:
        return f"Topology({self.nodes}, {self.edges})"
