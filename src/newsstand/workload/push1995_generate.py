"""The push-caching workload written as a push trace, on Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from newsstand.spark import stoppable
from newsstand.workload.push1995 import Floats, PushSettings
from newsstand.workload.push1995_trace import HOLDS, shards_of, write_push_requests
from newsstand.workload.push1995_visits import BLOCK, Audience, audience, draw, units
from newsstand.workload.push1995_world import Catalogue, Sites, World, catalogue
from newsstand.workload.store import new_folder, shards_for

DESCRIPTION = "workload.json"
COLUMNS = ["time", "server", "subnet", "page", "shard"]


def generate(
    spark: SparkSession, settings: PushSettings, world: World, out: Path, *, force: bool = False
) -> dict[str, int]:
    """Write one trace of the workload to a folder, and what was asked for; the rows of each table."""
    rows = {"servers": settings.servers, "subnets": settings.subnets}

    def fill(folder: Path) -> None:
        _write_sites(folder / "servers.parquet", "server", world.servers)
        _write_sites(folder / "subnets.parquet", "subnet", world.subnets, weight=world.weights)
        pages = catalogue(settings)
        _write_pages(folder / "pages.parquet", pages)
        shards = shards_for(settings.requests, settings.servers)
        write_push_requests(requests(spark, settings, world, shards), folder / "requests", shards)
        (folder / DESCRIPTION).write_text(json.dumps(settings.described(), indent=2) + "\n")
        rows["pages"], rows["versions"] = settings.pages * settings.servers, len(pages.page)

    with new_folder(out, force=force, holds=HOLDS) as folder:
        stoppable(spark, lambda: fill(folder))
    return {**rows, "requests": settings.requests}


def _write_sites(path: Path, number: str, sites: Sites, **more: Floats) -> None:
    columns = {
        number: np.arange(len(sites.names), dtype=np.int32),
        "name": pa.array(sites.names),
        "latitude": sites.latitudes,
        "longitude": sites.longitudes,
        **more,
    }
    pq.write_table(pa.table(columns), path, compression="zstd")


def _write_pages(path: Path, pages: Catalogue) -> None:
    columns = {name: getattr(pages, name) for name in ("page", "server", "size", "modified", "version")}
    pq.write_table(pa.table(columns), path, compression="zstd")


def requests(spark: SparkSession, settings: PushSettings, world: World, shards: int) -> DataFrame:
    """All requests: (time, server, subnet, page, shard), the last being the file they belong into."""
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
