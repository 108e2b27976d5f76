"""Backbones read from files: GraphML with places, as the Topology Zoo has them, or a folder with two tables.

    nodes.csv: node, latitude, longitude[, weight]
    edges.csv: a, b

Each mistake is one line that names the file and the row; rows are counted from 1, without the header.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from newsstand.errors import BadNetwork
from newsstand.overlay.files import NetworkFile, read_network
from newsstand.overlay.topology import Edge, Topology
from newsstand.planning.backbone import Backbone
from newsstand.planning.distances import LARGEST_NETWORK
from newsstand.planning.geography import MOST_LATITUDE, MOST_LONGITUDE, Places

NODES, EDGES = "nodes.csv", "edges.csv"


def read_backbone(path: Path) -> Backbone:
    """The backbone in a folder with nodes.csv and edges.csv, or in a GraphML file whose nodes all have places."""
    backbone = _read_tables(path) if path.is_dir() else _with_places(path, read_network(path))
    if len(backbone) > LARGEST_NETWORK:
        raise BadNetwork(f"{path}: {len(backbone):,} nodes; hops are known for at most {LARGEST_NETWORK:,}")
    return backbone


def _with_places(path: Path, network: NetworkFile) -> Backbone:
    if not network.places:
        raise BadNetwork(
            f"{path}: a list of edges tells no places: give GraphML, or a folder with {NODES} and {EDGES}"
        )
    pairs: list[tuple[float, float]] = []
    for name, place in zip(network.names, network.places, strict=True):
        if place.latitude is None or place.longitude is None:
            missing = "latitude" if place.latitude is None else "longitude"
            raise BadNetwork(f"{path}: node {name} has no {missing}")
        pairs.append((place.latitude, place.longitude))
    names = tuple(place.label or name for name, place in zip(network.names, network.places, strict=True))
    return Backbone(network.topology, names, Places.of(pairs), np.ones(len(names)))


@dataclass(frozen=True)
class _Row:
    place: str
    cells: dict[str, str]

    def refuse(self, what: str) -> NoReturn:
        raise BadNetwork(f"{self.place}: {what}")

    def name(self, column: str) -> str:
        return self.cells[column] or self.refuse(f"{column} is empty")

    def number(self, column: str, least: float, most: float) -> float:
        text = self.cells[column]
        try:
            value = float(text)
        except ValueError:
            self.refuse(f"{column} is '{text}', not a number")
        if not (math.isfinite(value) and least <= value <= most):
            allowed = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
            self.refuse(f"{column} is {text}, not {allowed}")
        return value


def _read_tables(folder: Path) -> Backbone:
    numbers: dict[str, int] = {}
    pairs: list[tuple[float, float]] = []
    weights: list[float] = []
    for row in _rows(folder / NODES, ("node", "latitude", "longitude"), "weight"):
        name = row.name("node")
        if name in numbers:
            row.refuse(f"node {name} occurs twice")
        numbers[name] = len(numbers) + 1
        pairs.append(
            (
                row.number("latitude", -MOST_LATITUDE, MOST_LATITUDE),
                row.number("longitude", -MOST_LONGITUDE, MOST_LONGITUDE),
            )
        )
        weights.append(row.number("weight", 0.0, math.inf) if row.cells.get("weight") else 1.0)
    if not numbers:
        raise BadNetwork(f"{folder / NODES}: has no nodes")
    if not any(weights):
        raise BadNetwork(f"{folder / NODES}: all weights are 0")
    topology = _connected(folder / EDGES, tuple(numbers), list(_edges(folder / EDGES, numbers)))
    return Backbone(topology, tuple(numbers), Places.of(pairs), np.array(weights))


def _edges(path: Path, numbers: dict[str, int]) -> Iterator[Edge]:
    for row in _rows(path, ("a", "b")):
        ends = [row.name(column) for column in ("a", "b")]
        for end in ends:
            if end not in numbers:
                row.refuse(f"node {end} is not in {NODES}")
        if ends[0] == ends[1]:
            row.refuse(f"{ends[0]} is linked to itself")
        yield numbers[ends[0]], numbers[ends[1]]


def _connected(path: Path, names: Sequence[str], edges: list[Edge]) -> Topology:
    topology = Topology(len(names), edges)
    reached = topology.hops_from(1)
    for number, name in enumerate(names, 1):
        if number not in reached:
            raise BadNetwork(f"{path}: no way leads from {names[0]} to {name}")
    return topology


def _rows(path: Path, columns: Sequence[str], optional: str | None = None) -> Iterator[_Row]:
    """The rows of a table by its header, in which columns may stand in any order and others beside them."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise BadNetwork(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadNetwork(f"{path}: cannot be read ({reason})") from error
    reader = csv.reader(lines, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        for column in columns:
            if header.count(column) != 1:
                raise BadNetwork(f"{path}: its first line must name the column {column} once")
        for number, cells in enumerate((cells for cells in reader if cells), 1):
            if len(cells) != len(header):
                raise BadNetwork(f"{path}: row {number}: has {len(cells)} cells, not {len(header)}")
            known = {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
            wanted = (*columns, optional) if optional in known else columns
            yield _Row(f"{path}: row {number}", {str(column): known[str(column)] for column in wanted})
    except csv.Error as error:
        raise BadNetwork(f"{path}: line {reader.line_num}: not CSV ({error})") from None
