"""The requests of the push-caching workload, and the whole workload written as a push trace, on Spark.

A unit is a block of requests for one server. Every draw is keyed by the seed and the unit, so the trace does not
depend on how the units are distributed over tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from newsstand.geo.globe import Degrees
from newsstand.spark import run_cancellable
from newsstand.workload.push1995.settings import (
    DAY,
    DRIFT,
    RANKS,
    VISITS,
    Floats,
    Ints,
    PushSettings,
    cumulative_shares,
)
from newsstand.workload.push1995.trace import HOLDS, shards_of, write_push_requests
from newsstand.workload.push1995.world import NamedSites, PageVersions, World, page_versions
from newsstand.workload.randomness import generator
from newsstand.workload.trace.folder import new_folder, shards_for

DESCRIPTION = "workload.json"
COLUMNS = ["time", "server", "subnet", "page", "shard"]


def generate(
    spark: SparkSession, settings: PushSettings, world: World, out: Path, *, force: bool = False
) -> dict[str, int]:
    """Write one trace of the workload to a folder, and the settings; return the rows of each table."""
    rows = {"servers": settings.servers, "subnets": settings.subnets}

    def fill(folder: Path) -> None:
        _write_sites(folder / "servers.parquet", "server", world.servers)
        _write_sites(folder / "subnets.parquet", "subnet", world.subnets, weight=world.weights)
        pages = page_versions(settings)
        _write_pages(folder / "pages.parquet", pages)
        shards = shards_for(settings.requests, settings.servers)
        write_push_requests(requests(spark, settings, world, shards), folder / "requests", shards)
        (folder / DESCRIPTION).write_text(json.dumps(settings.described(), indent=2) + "\n")
        rows["pages"], rows["versions"] = settings.pages * settings.servers, len(pages.page)

    with new_folder(out, force=force, holds=HOLDS) as folder:
        run_cancellable(spark, lambda: fill(folder))
    return {**rows, "requests": settings.requests}


def _write_sites(path: Path, number: str, sites: NamedSites, **more: Floats) -> None:
    columns = {
        number: np.arange(len(sites.names), dtype=np.int32),
        "name": pa.array(sites.names),
        "latitude": sites.places.latitudes,
        "longitude": sites.places.longitudes,
        **more,
    }
    pq.write_table(pa.table(columns), path, compression="zstd")


def _write_pages(path: Path, pages: PageVersions) -> None:
    columns = {name: getattr(pages, name) for name in ("page", "server", "size", "modified", "version")}
    pq.write_table(pa.table(columns), path, compression="zstd")


def requests(spark: SparkSession, settings: PushSettings, world: World, shards: int) -> DataFrame:
    """Return all requests: (time, server, subnet, page, shard), where `shard` is the file of the server."""
    shard = shards_of(settings.requests_of_servers, shards)
    shared = spark.sparkContext.broadcast((settings, world, units(settings), shard))

    def draw_units(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settings, world, all_units, shard = shared.value
        known: dict[int, Audience] = {}
        for batch in batches:
            for unit in batch.column(0).to_pylist():
                server, count = int(all_units.server[unit]), int(all_units.requests[unit])
                if server not in known:
                    known = {server: audience(settings, world, server)}
                drawn = draw(settings, known[server], unit, count)
                constant = [np.full(count, server, np.int32), np.full(count, shard[server], np.int32)]
                columns = drawn.time, constant[0], drawn.subnet, drawn.page, constant[1]
                yield pa.record_batch([pa.array(column) for column in columns], COLUMNS)

    tasks = max(spark.sparkContext.defaultParallelism, min(len(units(settings)), settings.requests // BLOCK // 16))
    numbers = spark.range(0, len(units(settings)), 1, tasks)
    return numbers.mapInArrow(draw_units, "time double, server int, subnet int, page long, shard int")


BLOCK = 65_536
NEAR_MILES = 300.0
"""The distance from a server over which the demand of its region falls by a factor of e."""
PAUSE = 30.0
"""The mean time between two requests of a visit, in seconds."""
BUSIEST_HOUR = 15.0


@dataclass(frozen=True, eq=False)
class RequestUnits:
    """The blocks of requests of all servers, in the order of servers."""

    server: npt.NDArray[np.int32]
    requests: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.server)


def units(settings: PushSettings) -> RequestUnits:
    """Return the units that are drawn together: at most a block of one server's requests."""
    counts = settings.requests_of_servers
    blocks = -(-counts // BLOCK)
    server = np.repeat(np.arange(settings.servers, dtype=np.int32), blocks)
    nth = np.arange(len(server)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    return RequestUnits(server, np.minimum(BLOCK, counts[server] - nth * BLOCK))


@dataclass(frozen=True, eq=False)
class Audience:
    """The lookup tables for one server's requests: shares of subnets, and pages by day and rank."""

    near: Floats
    anywhere: Floats
    longitudes: Degrees
    pages: Ints
    time_of_day: Floats


def audience(settings: PushSettings, world: World, server: int) -> Audience:
    """Return the audience of a server."""
    near = world.weights * np.exp(-world.miles(server) / NEAR_MILES)
    return Audience(
        cumulative_shares(near),
        cumulative_shares(world.weights),
        world.subnets.places.longitudes,
        server * settings.pages + pages_by_rank(settings, server),
        _time_of_day(settings.rhythm),
    )


def pages_by_rank(settings: PushSettings, server: int) -> Ints:
    """Return the page of each day and rank; every day the pages of a share of the ranks are shuffled."""
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
    """Return the share of a day's visits that begin by each minute of it, in local time."""
    hours = (np.arange(24 * 60) + 0.5) / 60
    return cumulative_shares(1.0 + rhythm * np.cos((hours - BUSIEST_HOUR) / 24 * 2 * np.pi))


@dataclass(frozen=True, eq=False)
class DrawnRequests:
    """Requests of one server, in no order."""

    time: Floats
    subnet: npt.NDArray[np.int32]
    page: Ints


def draw(settings: PushSettings, asking: Audience, unit: int, requests: int) -> DrawnRequests:
    """Return the requests of one unit; times wrap around, so that all are within the days of the trace."""
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
    return DrawnRequests(time, subnet[visit].astype(np.int32), asking.pages[today, rank])
