"""Networks of the overlay: graphs of brokers and links, generators of them, and their files.

>>> star = Topology(4, ((1, 2), (1, 3), (1, 4)))
>>> star.neighbours(1)
(2, 3, 4)
>>> star.hops_from(2)
{2: 0, 1: 1, 3: 2, 4: 2}
>>> star.is_tree
True

Generated networks are trees, or graphs of the topology generator BRITE (A. Medina, A. Lakhina, I. Matta and
J. Byers, *BRITE: an approach to universal topology generation*, 2001). All are connected; the same state of the
random number generator yields the same network.

>>> import numpy as np
>>> random_tree(5, np.random.default_rng(1)) == random_tree(5, np.random.default_rng(1))
True

Files are GraphML, as in the Topology Zoo, or lists of edges with two names a line, and comments from `#` on:

    # the backbone
    Athens Patras
    Patras Rome

Nodes are numbered from 1 in the order in which a file names them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.etree.ElementTree import ParseError

from newsstand.errors import BadNetwork, BadOption

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

Edge = tuple[int, int]


class Topology:
    """A simple graph with nodes numbered from 1; edges are (smaller, larger), in order."""

    def __init__(self, nodes: int, edges: Iterable[Edge]) -> None:
        if nodes < 1:
            raise BadOption("must be at least 1", nodes=nodes)
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
        """Return the neighbours of a node in order."""
        return self._neighbours[node]

    def hops_from(self, *sources: int) -> dict[int, int]:
        """Return the distance of every reachable node from the nearest source."""
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


ALPHA, BETA = 0.15, 0.2
"""Waxman's parameters, BRITE's defaults."""


class PlacedTopology(NamedTuple):
    """A network with locations: node n is at row n - 1."""

    topology: Topology
    places: Floats


def line(nodes: int) -> Topology:
    """Return a path of nodes."""
    return Topology(nodes, ((node, node + 1) for node in range(1, nodes)))


def star(nodes: int) -> Topology:
    """Return a star with node 1 in its centre."""
    return Topology(nodes, ((1, node) for node in range(2, nodes + 1)))


def random_recursive_tree(nodes: int, rng: np.random.Generator) -> Topology:
    """Return a tree in which each node joins an earlier one, all equally likely: wide and shallow."""
    return Topology(nodes, ((int(rng.integers(1, node)), node) for node in range(2, nodes + 1)))


def random_tree(nodes: int, rng: np.random.Generator) -> Topology:
    """Return a tree, all equally likely, from a random Prüfer sequence."""
    import networkx

    if nodes <= 2:
        return line(nodes)
    sequence = rng.integers(1, nodes + 1, nodes - 2) - 1
    tree = networkx.from_prufer_sequence(sequence.tolist())
    return Topology(nodes, ((a + 1, b + 1) for a, b in tree.edges))


def waxman(
    nodes: int, rng: np.random.Generator, links: int = 2, alpha: float = ALPHA, beta: float = BETA
) -> PlacedTopology:
    """Return nodes on a unit square that join one by one with `links` links each, preferably to near ones.

    The chance of a link is alpha·exp(−d/(beta·L)), d being the distance and L the square's diagonal (Waxman 1988;
    networkx calls alpha what is beta here, and the other way round). As a node draws until it has its links, alpha
    makes no difference to where they lead. As in BRITE, the first `links` nodes make theirs when all others have.
    """
    import numpy as np

    _check_growth(nodes, links)
    if not (0 < alpha <= 1 and beta > 0):
        raise BadOption("must be above 0, and alpha at most 1", alpha=alpha, beta=beta)
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
    return PlacedTopology(Topology(nodes, ((a + 1, b + 1) for a, b in edges)), places)


def barabasi_albert(nodes: int, rng: np.random.Generator, links: int = 2) -> Topology:
    """Return nodes that join one by one with `links` links each, preferably to well-linked ones; 1 makes a tree.

    The chance is in proportion to the links that a node has (Barabási and Albert 1999). The first nodes are linked
    to all before them.
    """
    import numpy as np

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
        raise BadOption("must be at least 1", nodes=nodes)
    if links < 1:
        raise BadOption("must be at least 1", links=links)


def _drawn(others: Sequence[int], links: int, chances: Floats, rng: np.random.Generator) -> list[int]:
    """Draw different nodes by their chances; all if there are no more."""
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


@dataclass(frozen=True)
class NodeLocation:
    """Label and location of a node."""

    label: str | None = None
    latitude: float | None = None
    longitude: float | None = None


@dataclass(frozen=True)
class NetworkFile:
    """A topology with names of nodes: node n is at index n - 1."""

    topology: Topology
    names: tuple[str, ...]
    places: tuple[NodeLocation, ...] = field(default=())
    """One for each name, or none if the format has no locations."""

    @property
    def numbers(self) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(self.names, 1)}


def read_network(path: Path) -> NetworkFile:
    """Return the network of a file: GraphML by its suffix or content, else a list of edges."""
    text = _text(path)
    if path.suffix.lower() == ".graphml" or text.lstrip().startswith("<"):
        return _read_graphml(path, text)
    return _read_edges(path, text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise BadNetwork(f"{path}: not UTF-8 text") from None
    except OSError as why:
        raise BadNetwork(f"{path}: cannot be read ({why.strerror})") from None


def _read_edges(path: Path, text: str) -> NetworkFile:
    numbers: dict[str, int] = {}
    edges: list[Edge] = []
    for number, (a, b) in _pairs(path, text):
        if a == b:
            raise BadNetwork(f"{path}: line {number}: {a} is linked to itself")
        edges.append((numbers.setdefault(a, len(numbers) + 1), numbers.setdefault(b, len(numbers) + 1)))
    return _checked(path, NetworkFile(_topology(path, len(numbers), edges), tuple(numbers)))


def _pairs(path: Path, text: str) -> Iterator[tuple[int, tuple[str, str]]]:
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if len(words) == 2:
            yield number, (words[0], words[1])
        elif words:
            raise BadNetwork(f"{path}: line {number}: expected two names, found {len(words)}")


def _read_graphml(path: Path, text: str) -> NetworkFile:
    import networkx

    try:
        graph = networkx.parse_graphml(text)
    except ParseError as bad:
        line, column = bad.position
        raise BadNetwork(
            f"{path}: line {line}: not GraphML ({bad.msg.partition(':')[0]}, column {column})"
        ) from None
    except (networkx.NetworkXError, KeyError, ValueError, AttributeError, TypeError) as bad:
        raise BadNetwork(f"{path}: not GraphML ({str(bad).partition(chr(10))[0]})") from None
    names = tuple(str(node) for node in graph.nodes)
    numbers = {node: number for number, node in enumerate(graph.nodes, 1)}
    edges = [(numbers[a], numbers[b]) for a, b in graph.edges() if a != b]
    places = tuple(
        _place(path, name, attributes) for name, attributes in zip(names, graph.nodes.values(), strict=True)
    )
    return _checked(path, NetworkFile(_topology(path, len(names), edges), names, places))


def _place(path: Path, name: str, attributes: Mapping[str, object]) -> NodeLocation:
    known = {key.lower(): value for key, value in attributes.items()}
    label = known.get("label", known.get("name"))
    return NodeLocation(
        None if label is None else str(label),
        _degrees(path, name, known.get("latitude", known.get("lat")), 90),
        _degrees(path, name, known.get("longitude", known.get("lon")), 180),
    )


def _degrees(path: Path, name: str, value: object, most: float) -> float | None:
    if value is None:
        return None
    try:
        degrees = float(str(value))
    except ValueError:
        degrees = float("nan")
    if not -most <= degrees <= most:
        raise BadNetwork(f"{path}: node {name}: {value!r} is not between -{most} and {most} degrees")
    return degrees


def _topology(path: Path, nodes: int, edges: list[Edge]) -> Topology:
    if not nodes:
        raise BadNetwork(f"{path}: has no nodes")
    return Topology(nodes, edges)


def _checked(path: Path, network: NetworkFile) -> NetworkFile:
    """Return a network; raise BadNetwork unless it is connected."""
    reached = network.topology.hops_from(1)
    for number, name in enumerate(network.names, 1):
        if number not in reached:
            raise BadNetwork(f"{path}: no path from {network.names[0]} to {name}")
    return network
