"""The requests of the push-caching workload, drawn unit by unit.

A unit is a block of one server's requests. Every draw is keyed by the seed and the unit, so the trace is the same
however the units are spread over tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from newsstand.workload.push1995 import (
    DAY,
    DRIFT,
    RANKS,
    VISITS,
    Floats,
    Ints,
    PushSettings,
    reached,
)
from newsstand.workload.push1995_world import World
from newsstand.workload.randomness import generator

BLOCK = 65_536
NEAR_MILES = 300.0
"""Over this distance from a server, the demand from its region becomes e times less."""
PAUSE = 30.0
"""Seconds between two requests of a visit, on average."""
BUSIEST_HOUR = 15.0


@dataclass(frozen=True, eq=False)
class Units:
    """The blocks of all servers, one after the other."""

    server: npt.NDArray[np.int32]
    requests: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.server)


def units(settings: PushSettings) -> Units:
    """What is drawn together: at most a block of one server's requests."""
    counts = settings.requests_of_servers
    blocks = -(-counts // BLOCK)
    server = np.repeat(np.arange(settings.servers, dtype=np.int32), blocks)
    nth = np.arange(len(server)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    return Units(server, np.minimum(BLOCK, counts[server] - nth * BLOCK))


@dataclass(frozen=True, eq=False)
class Audience:
    """What the draws of one server's requests look up: who asks, and for which page by day and rank."""

    near: Floats
    anywhere: Floats
    longitudes: Floats
    pages: Ints
    time_of_day: Floats


def audience(settings: PushSettings, world: World, server: int) -> Audience:
    """A server's."""
    near = world.weights * np.exp(-world.miles(server) / NEAR_MILES)
    return Audience(
        reached(near),
        reached(world.weights),
        world.subnets.longitudes,
        server * settings.pages + pages_by_rank(settings, server),
        _time_of_day(settings.rhythm),
    )


def pages_by_rank(settings: PushSettings, server: int) -> Ints:
    """The page of each day and rank: every day a share of the ranks is dealt out anew among their pages."""
    order = generator(settings.seed, RANKS, server).permutation(settings.pages).astype(np.int64)
    draw = generator(settings.seed, DRIFT, server)
    moving = round(settings.drift * settings.pages)
    days = [order]
    for _ in range(settings.days - 1 if moving > 1 else 0):
        order = order.copy()
        ranks = draw.choice(settings.pages, moving, replace=False)
        order[ranks] = order[draw.permutation(ranks)]
        days.append(order)
    return np.stack(days)


def _time_of_day(rhythm: float) -> Floats:
    """The share of a day's visits that have begun by each minute of it, local time."""
    hours = (np.arange(24 * 60) + 0.5) / 60
    return reached(1.0 + rhythm * np.cos((hours - BUSIEST_HOUR) / 24 * 2 * np.pi))


@dataclass(frozen=True, eq=False)
class Drawn:
    """Requests of one server, in no order."""

    time: Floats
    subnet: npt.NDArray[np.int32]
    page: Ints


def draw(settings: PushSettings, asking: Audience, unit: int, requests: int) -> Drawn:
    """The requests of one unit; time is a circle, so that none is beyond the last day or before the first."""
    randomness = generator(settings.seed, VISITS, unit)
    lengths = np.cumsum(randomness.geometric(1.0 / settings.visit, requests))
    visits = int(np.searchsorted(lengths, requests)) + 1
    visit = np.searchsorted(lengths[:visits], np.arange(requests), side="right")

    picks = randomness.random(visits)
    is_near = randomness.random(visits) < settings.regional_share
    subnet = np.where(
        is_near,
        np.searchsorted(asking.near, picks, side="right"),
        np.searchsorted(asking.anywhere, picks, side="right"),
    )
    minute = np.searchsorted(asking.time_of_day, randomness.random(visits), side="right")
    local = (minute + randomness.random(visits)) * 60
    day = randomness.integers(0, settings.days, visits)
    start = day * DAY + local - asking.longitudes[subnet] / 360 * DAY

    pause = np.cumsum(randomness.exponential(PAUSE, requests))
    first = np.searchsorted(visit, np.arange(visits))
    time = (start[visit] + pause - pause[first][visit]) % settings.end
    time = np.minimum(np.floor(time * 1000), settings.end * 1000 - 1) / 1000
    rank = np.searchsorted(settings.rank_reached, randomness.random(requests), side="right")
    today = (time // DAY).astype(np.int64) if len(asking.pages) > 1 else np.zeros(requests, np.int64)
    return Drawn(time, subnet[visit].astype(np.int32), asking.pages[today, rank])
