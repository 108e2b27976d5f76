"""Networks made by chance or by rule: trees, and graphs as the topology generator BRITE grows them.

All are connected, and the same generator of random numbers makes the same network.

>>> import numpy as np
>>> random_tree(5, np.random.default_rng(1)) == random_tree(5, np.random.default_rng(1))
True
>>> balanced_tree(2, 2)
Topology(7, ((1, 2), (1, 3), (2, 4), (2, 5), (3, 6), (3, 7)))

A. Medina, A. Lakhina, I. Matta and J. Byers, *BRITE: an approach to universal topology generation* (2001).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newsstand.errors import BadOption
from newsstand.overlay.topology import Edge, Topology

Floats = npt.NDArray[np.float64]

ALPHA, BETA = 0.15, 0.2
"""Waxman's parameters as BRITE has them by default."""


class Placed(NamedTuple):
    """A network whose nodes have places: node n is at row n - 1."""

    topology: Topology
    places: Floats


def line(nodes: int) -> Topology:
    """One after the other."""
    return Topology(nodes, ((node, node + 1) for node in range(1, nodes)))


def star(nodes: int) -> Topology:
    """All at node 1."""
    return Topology(nodes, ((1, node) for node in range(2, nodes + 1)))


def balanced_tree(children: int, depth: int) -> Topology:
    """Each node above the lowest level has so many children; a depth of 0 is one node."""
    if children < 1 or depth < 0:
        raise BadOption(f"a tree with {children} children a node and depth {depth} cannot be")
    nodes = sum(children**level for level in range(depth + 1))
    return Topology(nodes, (((node - 2) // children + 1, node) for node in range(2, nodes + 1)))


def random_recursive_tree(nodes: int, rng: np.random.Generator) -> Topology:
    """Each node joins one of those before it, all equally likely: a wide and shallow tree."""
    return Topology(nodes, ((int(rng.integers(1, node)), node) for node in range(2, nodes + 1)))


def random_tree(nodes: int, rng: np.random.Generator) -> Topology:
    """All trees on these nodes equally likely, by a random Prüfer sequence."""
    if nodes <= 2:
        return line(nodes)
    sequence = [int(node) for node in rng.integers(1, nodes + 1, nodes - 2)]
    degrees = [1] * (nodes + 1)
    for node in sequence:
        degrees[node] += 1
    leaves = [node for node in range(1, nodes + 1) if degrees[node] == 1]
    edges: list[Edge] = []
    for node in sequence:
        edges.append((heapq.heappop(leaves), node))
        degrees[node] -= 1
        if degrees[node] == 1:
            heapq.heappush(leaves, node)
    edges.append((heapq.heappop(leaves), heapq.heappop(leaves)))
    return Topology(nodes, edges)


def waxman(
    nodes: int, rng: np.random.Generator, links: int = 2, alpha: float = ALPHA, beta: float = BETA
) -> Placed:
    """Nodes on a unit square, which join one by one and make `links` links each, rather to near ones.

    The chance of a link is alpha·exp(−d/(beta·L)), d being the distance and L the square's diagonal (Waxman 1988;
    networkx calls alpha what is beta here, and the other way round). As a node draws until it has its links, alpha
    makes no difference to where they lead. As in BRITE, the first `links` nodes make theirs when all others have.
    """
    _check_growth(nodes, links)
    if not (0 < alpha <= 1 and beta > 0):
        raise BadOption(f"alpha {alpha} is outside (0, 1] or beta {beta} is not positive")
    places: Floats = rng.random((nodes, 2))
    first = min(links, nodes - 1)
    edges: set[Edge] = set()
    for node in (*range(first, nodes), *range(first)):
        others = [
            other
            for other in (range(node) if node >= first else range(first, nodes))
            if (min(node, other), max(node, other)) not in edges
        ]
        spans = np.hypot(*(places[others] - places[node]).T)
        chosen = _drawn(others, links, alpha * np.exp(-spans / (beta * np.sqrt(2.0))), rng)
        edges |= {(min(node, other), max(node, other)) for other in chosen}
    return Placed(Topology(nodes, ((a + 1, b + 1) for a, b in edges)), places)


def barabasi_albert(nodes: int, rng: np.random.Generator, links: int = 2) -> Topology:
    """Nodes join one by one and make `links` links each, rather to well-linked ones; with 1 it is a tree.

    The chance is in proportion to the links that a node has (Barabási and Albert 1999). The first nodes are linked
    to all before them.
    """
    _check_growth(nodes, links)
    degrees = np.zeros(nodes)
    edges: list[Edge] = []
    for node in range(1, nodes):
        weights = degrees[:node] if node > 1 else np.ones(1)
        for other in _drawn(range(node), links, weights, rng):
            edges.append((other + 1, node + 1))
            degrees[[other, node]] += 1
    return Topology(nodes, edges)


def _check_growth(nodes: int, links: int) -> None:
    if nodes < 1:
        raise BadOption(f"nodes is {nodes}: a network has at least one")
    if links < 1:
        raise BadOption(f"links is {links}: each new node needs at least one")


def _drawn(others: Sequence[int], links: int, chances: Floats, rng: np.random.Generator) -> list[int]:
    """Different ones, by their chances; all if there are no more."""
    if len(others) <= links:
        return list(others)
    return [others[at] for at in rng.choice(len(others), links, replace=False, p=chances / chances.sum())]


GENERATORS: Mapping[str, Callable[[int, np.random.Generator], Topology]] = {
    "line": lambda nodes, _: line(nodes),
    "star": lambda nodes, _: star(nodes),
    "recursive-tree": random_recursive_tree,
    "random-tree": random_tree,
    "preferential-tree": lambda nodes, rng: barabasi_albert(nodes, rng, links=1),
    "barabasi-albert": barabasi_albert,
    "waxman": lambda nodes, rng: waxman(nodes, rng).topology,
}
"""Networks of a given number of nodes, by name."""
