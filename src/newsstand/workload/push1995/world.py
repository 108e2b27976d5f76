"""The world of the push-caching workload: subnets, servers, and the pages of servers with their modifications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from newsstand.errors import BadOption
from newsstand.geo.backbone_sources import WorldCity
from newsstand.geo.globe import Locations, vector_miles
from newsstand.geo.location import EARTH_RADIUS_MILES
from newsstand.workload.push1995.settings import (
    DAY,
    LIFETIMES,
    SERVERS,
    SIZES,
    SUBNETS,
    Floats,
    Ints,
    PushSettings,
    cumulative_shares,
)
from newsstand.workload.randomness import generator

SPREAD_MILES = 30.0
"""The standard deviation of the distance of subnets and servers from the centre of their city, north and east."""
LIFETIME_SIGMA = 1.5
LARGEST_PAGE = 2**53
"""Bytes, as a trace may have."""


@dataclass(frozen=True, eq=False)
class NamedSites:
    """Subnets or servers: their names and places."""

    names: tuple[str, ...]
    places: Locations


@dataclass(frozen=True, eq=False)
class World:
    """Subnets with their demand, and servers."""

    subnets: NamedSites
    weights: Floats
    """The demand of each subnet, about 1 on average."""
    servers: NamedSites

    def miles(self, server: int) -> Floats:
        """Return the distance of each subnet from a server, by great circle."""
        return vector_miles(self.subnets.places.vectors, self.servers.places.vectors[server])


def populated(settings: PushSettings, cities: Sequence[WorldCity]) -> World:
    """Draw subnets and servers near cities, by population."""
    if not sum(city.population for city in cities) > 0:
        raise BadOption("none has a population", cities=None)
    draw = generator(settings.seed, SUBNETS)
    subnets = _near_cities(settings.subnets, cities, draw)
    weights = np.maximum(draw.lognormal(-0.5, 1.0, settings.subnets).round(6), 1e-6)
    return World(subnets, weights, _near_cities(settings.servers, cities, generator(settings.seed, SERVERS)))


def _near_cities(count: int, cities: Sequence[WorldCity], draw: np.random.Generator) -> NamedSites:
    people = cumulative_shares(np.array([city.population for city in cities], np.float64))
    chosen = np.searchsorted(people, draw.random(count), side="right")
    degrees = np.degrees(draw.normal(0.0, SPREAD_MILES / EARTH_RADIUS_MILES, (2, count)))
    centre = np.array([(city.latitude, city.longitude) for city in cities])[chosen]
    latitude = np.clip(centre[:, 0] + degrees[0], -90.0, 90.0)
    # A degree of longitude gets shorter towards the poles, where no city is.
    longitude = centre[:, 1] + degrees[1] / np.maximum(np.cos(np.radians(centre[:, 0])), 0.05)
    names = tuple(f"{cities[city].name} {number}" for number, city in enumerate(chosen.tolist()))
    return NamedSites(names, Locations(latitude.round(4), ((longitude + 180.0) % 360.0 - 180.0).round(4)))


@dataclass(frozen=True)
class PageVersions:
    """All versions of all pages, in the order of page and time; server s has pages s·n … (s+1)·n − 1."""

    page: Ints
    server: npt.NDArray[np.int32]
    size: Ints
    modified: Floats
    version: npt.NDArray[np.int32]


def page_versions(settings: PushSettings) -> PageVersions:
    """Return the pages and their modifications: a Poisson stream for each page, its first one before 0."""
    pages = settings.pages * settings.servers
    sizes = generator(settings.seed, SIZES).lognormal(*settings.size, pages)
    draw = generator(settings.seed, LIFETIMES)
    lifetime = settings.lifetime * DAY * np.exp(LIFETIME_SIGMA * draw.standard_normal(pages))
    age = draw.exponential(1.0, pages) * lifetime
    later = draw.poisson(settings.end / lifetime)
    rows = later + 1
    page = np.repeat(np.arange(pages), rows)
    first = np.cumsum(rows) - rows
    modified = np.empty(len(page))
    is_first = np.zeros(len(page), np.bool_)
    is_first[first] = True
    modified[first] = -age
    modified[~is_first] = draw.random(int(later.sum())) * settings.end
    modified = np.floor(modified[np.lexsort((modified, page))] * 1000) / 1000
    return _without_repetitions(
        PageVersions(
            page,
            (page // settings.pages).astype(np.int32),
            np.clip(np.rint(sizes), 1, LARGEST_PAGE).astype(np.int64)[page],
            modified,
            (np.arange(len(page)) - np.repeat(first, rows)).astype(np.int32),
        )
    )


def _without_repetitions(drawn: PageVersions) -> PageVersions:
    """Return the first alone of several versions in one millisecond."""
    again = np.append(False, (np.diff(drawn.page) == 0) & (np.diff(drawn.modified) == 0))
    if not again.any():
        return drawn
    distinct = ~again
    page = drawn.page[distinct]
    start = np.append(True, np.diff(page) != 0)
    place = np.arange(len(page))
    version = place - np.maximum.accumulate(np.where(start, place, 0))
    columns = drawn.server[distinct], drawn.size[distinct], drawn.modified[distinct], version.astype(np.int32)
    return PageVersions(page, *columns)
