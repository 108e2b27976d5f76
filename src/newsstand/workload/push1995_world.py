"""The world of the push-caching workload: subnets, servers, and the pages of servers with their modifications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from newsstand.errors import BadOption
from newsstand.workload.push1995 import (
    DAY,
    LIFETIMES,
    SERVERS,
    SIZES,
    SUBNETS,
    Floats,
    Ints,
    PushSettings,
    reached,
)
from newsstand.workload.randomness import generator

EARTH_RADIUS_MILES = 3958.8
SPREAD_MILES = 30.0
"""How far from the middle of their town subnets and servers are, north and east."""
LIFETIME_SIGMA = 1.5
LARGEST_PAGE = 2**53
"""Bytes, as a trace may have."""


class Town(Protocol):
    """Where people live."""

    @property
    def name(self) -> str: ...
    @property
    def latitude(self) -> float: ...
    @property
    def longitude(self) -> float: ...
    @property
    def population(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Sites:
    """Names and places, in degrees."""

    names: tuple[str, ...]
    latitudes: Floats
    longitudes: Floats

    @cached_property
    def vectors(self) -> Floats:
        """Each place as a point of the unit sphere."""
        north, east = np.radians(self.latitudes), np.radians(self.longitudes)
        return np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=-1)


@dataclass(frozen=True, eq=False)
class World:
    """Who asks, and who is asked."""

    subnets: Sites
    weights: Floats
    """The demand of each subnet; 1 on average, about."""
    servers: Sites

    def miles(self, server: int) -> Floats:
        """The distance of each subnet from a server, by great circle."""
        apart = np.linalg.norm(self.subnets.vectors - self.servers.vectors[server], axis=-1)
        distance: Floats = 2 * EARTH_RADIUS_MILES * np.arcsin(np.minimum(apart / 2, 1.0))
        return distance


def populated(settings: PushSettings, towns: Sequence[Town]) -> World:
    """Subnets and servers near towns, drawn by population."""
    if not sum(town.population for town in towns) > 0:
        raise BadOption("towns: nobody lives in any")
    draw = generator(settings.seed, SUBNETS)
    subnets = _near_towns(settings.subnets, towns, draw)
    weights = np.maximum(draw.lognormal(-0.5, 1.0, settings.subnets).round(6), 1e-6)
    return World(subnets, weights, _near_towns(settings.servers, towns, generator(settings.seed, SERVERS)))


def _near_towns(count: int, towns: Sequence[Town], draw: np.random.Generator) -> Sites:
    people = reached(np.array([town.population for town in towns], np.float64))
    chosen = np.searchsorted(people, draw.random(count), side="right")
    degrees = np.degrees(draw.normal(0.0, SPREAD_MILES / EARTH_RADIUS_MILES, (2, count)))
    centre = np.array([(town.latitude, town.longitude) for town in towns])[chosen]
    latitude = np.clip(centre[:, 0] + degrees[0], -90.0, 90.0)
    # A degree of longitude gets shorter towards the poles, where no town is.
    longitude = centre[:, 1] + degrees[1] / np.maximum(np.cos(np.radians(centre[:, 0])), 0.05)
    names = tuple(f"{towns[town].name} {number}" for number, town in enumerate(chosen.tolist()))
    return Sites(names, latitude.round(4), ((longitude + 180.0) % 360.0 - 180.0).round(4))


@dataclass(frozen=True)
class Catalogue:
    """All versions of all pages, in the order of page and time; server s has pages s·n … (s+1)·n − 1."""

    page: Ints
    server: npt.NDArray[np.int32]
    size: Ints
    modified: Floats
    version: npt.NDArray[np.int32]


def catalogue(settings: PushSettings) -> Catalogue:
    """The pages and their modifications: Poisson streams, each at its page's own rate, the first one before 0."""
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
        Catalogue(
            page,
            (page // settings.pages).astype(np.int32),
            np.clip(np.rint(sizes), 1, LARGEST_PAGE).astype(np.int64)[page],
            modified,
            (np.arange(len(page)) - np.repeat(first, rows)).astype(np.int32),
        )
    )


def _without_repetitions(drawn: Catalogue) -> Catalogue:
    """Of several versions in one millisecond, the first alone."""
    again = np.append(False, (np.diff(drawn.page) == 0) & (np.diff(drawn.modified) == 0))
    if not again.any():
        return drawn
    kept = ~again
    page = drawn.page[kept]
    start = np.append(True, np.diff(page) != 0)
    place = np.arange(len(page))
    version = place - np.maximum.accumulate(np.where(start, place, 0))
    columns = drawn.server[kept], drawn.size[kept], drawn.modified[kept], version.astype(np.int32)
    return Catalogue(page, *columns)
