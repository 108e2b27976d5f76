"""Networks read from files: GraphML, as the Topology Zoo has them, and lists of edges.

An edge list has two names a line, and comments from `#` on:

    # the backbone
    Athens Patras
    Patras Rome

Nodes are numbered from 1 in the order in which a file names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import ParseError

from newsstand.errors import BadNetwork
from newsstand.overlay.topology import Edge, Topology


@dataclass(frozen=True)
class Place:
    """What a file tells about a node beside its links."""

    label: str | None = None
    latitude: float | None = None
    longitude: float | None = None


@dataclass(frozen=True)
class NetworkFile:
    """A topology, and what its nodes are called: node n is at index n - 1."""

    topology: Topology
    names: tuple[str, ...]
    places: tuple[Place, ...] = field(default=())
    """As many as names, or none if the file cannot tell places."""

    @property
    def numbers(self) -> Mapping[str, int]:
        """The number of each name."""
        return {name: number for number, name in enumerate(self.names, 1)}


def read_network(path: Path) -> NetworkFile:
    """The network in a file: GraphML if its name ends so or it begins like XML, otherwise a list of edges."""
    text = _text(path)
    if path.suffix.lower() == ".graphml" or text.lstrip().startswith("<"):
        return _read_graphml(path, text)
    return _read_edges(path, text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise BadNetwork(f"{path}: is not UTF-8 text") from None
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


def _place(path: Path, name: str, attributes: Mapping[str, object]) -> Place:
    known = {key.lower(): value for key, value in attributes.items()}
    label = known.get("label", known.get("name"))
    return Place(
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
    """A network in which everybody can reach everybody."""
    reached = network.topology.hops_from(1)
    for number, name in enumerate(network.names, 1):
        if number not in reached:
            raise BadNetwork(f"{path}: no way leads from {network.names[0]} to {name}")
    return network
