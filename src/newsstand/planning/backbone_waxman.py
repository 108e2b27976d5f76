"""A backbone made by chance: nodes near large cities, links rather to near ones.

>>> made = generated_backbone(5, np.random.default_rng(1))
>>> made.topology.is_connected, len(made.names)
(True, 5)

B. M. Waxman, *Routing of multipoint connections* (1988); grown node by node, as BRITE does it.
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from newsstand.errors import BadOption
from newsstand.overlay.topology import Edge, Topology
from newsstand.planning.backbone import Backbone
from newsstand.planning.geography import Places, scattered, vector_miles
from newsstand.planning.places import EARTH_RADIUS_MILES

LINKS = 2
BETA = 0.05
"""Waxman's: over this share of the longest distance a link becomes e times less likely (decision 24)."""

CITY_SPREAD_MILES = 60.0
LEAST_SCALE_MILES = 1.0
"""Below it all nodes are as near as near can be."""


@dataclass(frozen=True)
class City:
    """One of the large cities; the population is that of its surroundings, too, and rounded."""

    name: str
    country: str
    latitude: float
    longitude: float
    population: int


@cache
def cities() -> tuple[City, ...]:
    """The cities that backbones are made of."""
    table = files("newsstand.planning").joinpath("cities.csv").read_text(encoding="utf-8")
    _, *rows = csv.reader(table.splitlines())
    return tuple(
        City(name, country, float(latitude), float(longitude), int(population))
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
    """Nodes near cities drawn by population, which join one by one and make `links` links each.

    The chance of a link is in proportion to exp(−d/(beta·L)), d being the miles between two nodes and L the most
    there are between any two. As each node links to earlier ones the backbone is connected. Cities of certain
    countries only, by their two letters, make a smaller world.
    """
    if nodes < 1:
        raise BadOption(f"nodes is {nodes}: a backbone has at least one")
    if links < 1:
        raise BadOption(f"links is {links}: each new node needs at least one")
    if not beta > 0:
        raise BadOption(f"beta is {beta}: it must be positive")
    chosen = _cities_of(countries)
    people = np.array([city.population for city in chosen], np.float64)
    drawn = rng.choice(len(chosen), nodes, p=people / people.sum())
    centres = Places.of((chosen[city].latitude, chosen[city].longitude) for city in drawn)
    places = scattered(centres, spread_miles, rng)
    names = tuple(f"{chosen[city].name} {number}" for number, city in enumerate(drawn))
    topology = Topology(nodes, _grown(places, links, beta, rng))
    # A city's people are shared out among its nodes already, by how many there are.
    return Backbone(topology, names, places, np.ones(nodes))


def _cities_of(countries: Collection[str] | None) -> list[City]:
    known = {city.country for city in cities()}
    for country in countries or ():
        if country not in known:
            raise BadOption(f"country {country} has none of the cities: choose of {', '.join(sorted(known))}")
    return [city for city in cities() if not countries or city.country in countries]


def _grown(places: Places, links: int, beta: float, rng: np.random.Generator) -> list[Edge]:
    """The links of each node to earlier ones: different ones, drawn by their chances.

    The largest of the logarithms of weights plus Gumbel noise are such a draw, and no weight is ever rounded to 0.
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
