"""Sources of backbones: read from files, or generated as random networks.

Files are GraphML with locations, as in the Topology Zoo, or a folder with two tables:

    nodes.csv: node, latitude, longitude[, weight]
    edges.csv: a, b

An error is one line that names the file and the row; rows are counted from 1, without the header.

A generated backbone has nodes near large cities, and links mostly between near nodes (B. M. Waxman, *Routing of
multipoint connections*, 1988); it is grown node by node, as BRITE does it.

>>> made = generated_backbone(5, np.random.default_rng(1))
>>> made.topology.is_connected, len(made.names)
(True, 5)
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NoReturn

import numpy as np

from newsstand.config.files import read_text
from newsstand.errors import BadNetwork, BadOption
from newsstand.geo.backbone import LARGEST_NETWORK, Backbone
from newsstand.geo.globe import MOST_LATITUDE, MOST_LONGITUDE, Locations, scattered, vector_miles
from newsstand.geo.location import EARTH_RADIUS_MILES
from newsstand.overlay.topology import Edge, NetworkFile, Topology, read_network

NODES, EDGES = "nodes.csv", "edges.csv"


def read_backbone(path: Path) -> Backbone:
    """Read a backbone from a folder with nodes.csv and edges.csv, or from GraphML with places."""
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
    return Backbone(network.topology, names, Locations.of(pairs), np.ones(len(names)))


@dataclass(frozen=True)
class _Row:
    place: str
    cells: dict[str, str]

    def reject(self, what: str) -> NoReturn:
        raise BadNetwork(f"{self.place}: {what}")

    def name(self, column: str) -> str:
        return self.cells[column] or self.reject(f"{column} is empty")

    def number(self, column: str, least: float, most: float) -> float:
        text = self.cells[column]
        try:
            value = float(text)
        except ValueError:
            self.reject(f"{column} is '{text}', not a number")
        if not (math.isfinite(value) and least <= value <= most):
            allowed = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
            self.reject(f"{column} is {text}, not {allowed}")
        return value


def _read_tables(folder: Path) -> Backbone:
    numbers: dict[str, int] = {}
    pairs: list[tuple[float, float]] = []
    weights: list[float] = []
    for row in _rows(folder / NODES, ("node", "latitude", "longitude"), "weight"):
        name = row.name("node")
        if name in numbers:
            row.reject(f"node {name} occurs twice")
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
    return Backbone(topology, tuple(numbers), Locations.of(pairs), np.array(weights))


def _edges(path: Path, numbers: dict[str, int]) -> Iterator[Edge]:
    for row in _rows(path, ("a", "b")):
        ends = [row.name(column) for column in ("a", "b")]
        for end in ends:
            if end not in numbers:
                row.reject(f"node {end} is not in {NODES}")
        if ends[0] == ends[1]:
            row.reject(f"{ends[0]} is linked to itself")
        yield numbers[ends[0]], numbers[ends[1]]


def _connected(path: Path, names: Sequence[str], edges: list[Edge]) -> Topology:
    topology = Topology(len(names), edges)
    reached = topology.hops_from(1)
    for number, name in enumerate(names, 1):
        if number not in reached:
            raise BadNetwork(f"{path}: no way leads from {names[0]} to {name}")
    return topology


def _rows(path: Path, columns: Sequence[str], optional: str | None = None) -> Iterator[_Row]:
    """Yield the rows of a table; its header may have columns in any order, and further ones."""
    reader = csv.reader(read_text(path).splitlines(), strict=True)
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


LINKS = 2
BETA = 0.05
"""Waxman's beta: the share of the longest distance over which a link becomes e times less likely (decision 24)."""

CITY_SPREAD_MILES = 60.0
LEAST_SCALE_MILES = 1.0
"""The least distance over which a link becomes e times less likely."""


@dataclass(frozen=True)
class WorldCity:
    """A large city; its population is rounded and includes the surroundings."""

    name: str
    country: str
    latitude: float
    longitude: float
    population: int


@cache
def cities() -> tuple[WorldCity, ...]:
    """Return the cities from which nodes of backbones are drawn."""
    table = files("newsstand.geo").joinpath("cities.csv").read_text(encoding="utf-8")
    _, *rows = csv.reader(table.splitlines())
    return tuple(
        WorldCity(name, country, float(latitude), float(longitude), int(population))
        for name, country, latitude, longitude, population in rows
    )


def generated_backbone(
    nodes: int,
    rng: np.random.Generator,
    links: int = LINKS,
    beta: float = BETA,
    spread_miles: float = CITY_SPREAD_MILES,
    countries: Collection[str] | None = None,
) -> Backbone:
    """Generate nodes near cities drawn by population, which join one by one and make `links` links each.

    The probability of a link is proportional to exp(−d/(beta·L)), with the miles d between two nodes and the
    longest distance L of any two. As each node links to earlier ones, the backbone is connected. `countries`, by
    their two letters, restricts the cities.
    """
    if nodes < 1:
        raise BadOption("must be at least 1", nodes=nodes)
    if links < 1:
        raise BadOption("must be at least 1", links=links)
    if not beta > 0:
        raise BadOption("must be above 0", beta=beta)
    known = {city.country for city in cities()}
    for country in countries or ():
        if country not in known:
            raise BadOption(f"has no city; must be one of {', '.join(sorted(known))}", country=country)
    chosen = [city for city in cities() if not countries or city.country in countries]
    people = np.array([city.population for city in chosen], np.float64)
    drawn = rng.choice(len(chosen), nodes, p=people / people.sum())
    centres = Locations.of((chosen[city].latitude, chosen[city].longitude) for city in drawn)
    places = scattered(centres, spread_miles, rng)
    names = tuple(f"{chosen[city].name} {number}" for number, city in enumerate(drawn))
    topology = Topology(nodes, _grown(places, links, beta, rng))
    # The number of nodes near a city is already in proportion to its population.
    return Backbone(topology, names, places, np.ones(nodes))


def _grown(places: Locations, links: int, beta: float, rng: np.random.Generator) -> list[Edge]:
    """Return the links of each node to earlier ones, drawn without replacement by their weights.

    The largest of the logarithms of weights plus Gumbel noise are such a draw, in which no weight underflows to 0.
    """
    vectors = places.vectors
    longest = EARTH_RADIUS_MILES * np.arccos(np.clip(min((vectors @ one).min() for one in vectors), -1.0, 1.0))
    scale_miles = max(beta * float(longest), LEAST_SCALE_MILES)
    edges: list[Edge] = []
    for node in range(1, len(places)):
        keys = rng.gumbel(size=node) - vector_miles(vectors[:node], vectors[node]) / scale_miles
        best = np.argsort(-keys, kind="stable")[:links]
        edges += [(int(other) + 1, node + 1) for other in best]
    return edges
