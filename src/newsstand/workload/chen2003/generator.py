"""The news workload written as a trace, on Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from newsstand.spark import run_cancellable
from newsstand.workload.chen2003.publishing import Floats, News, PublishingStream, publish
from newsstand.workload.chen2003.requests import (
    BLOCK,
    Ints,
    Pools,
    day_counts,
    draw,
    pools,
    servers,
    subscriptions,
    units,
)
from newsstand.workload.trace.folder import new_folder, shards_for, write_requests, write_subscriptions


def generate(spark: SparkSession, news: News, out: Path, *, force: bool = False) -> None:
    """Write one trace of the workload to a folder."""

    def fill(folder: Path) -> None:
        stream = publish(news)
        write_publications(stream, folder / "publications.parquet")
        pool = pools(requests_by_day(spark, news, stream), news.proxies)
        shards = shards_for(news.requests, news.proxies)
        write_requests(
            requests(spark, news, stream, pool),
            folder / "requests",
            shards,
            f"proxy * {shards}L div {news.proxies}L",
        )
        subscribe(spark, news, folder)

    with new_folder(out, force=force) as folder:
        run_cancellable(spark, lambda: fill(folder))


def subscribe(spark: SparkSession, news: News, folder: Path) -> None:
    """Write the subscriptions for the requests in a folder, and replace existing ones."""
    shutil.rmtree(folder / "subscriptions", ignore_errors=True)
    seed, sq = news.seed, news.sq
    write_subscriptions(
        spark,
        folder / "requests",
        folder / "subscriptions",
        lambda proxy, page: subscriptions(seed, sq, proxy, page),
    )


def write_publications(stream: PublishingStream, path: Path) -> None:
    """Write the publishing stream as a table."""
    table = pa.table({"page": np.arange(len(stream.time)), "time": stream.time, "size": stream.size})
    pq.write_table(table, path, compression="zstd")


def requests_by_day(spark: SparkSession, news: News, stream: PublishingStream) -> Ints:
    """Return the requests for each page on each day; the table does not grow with the number of requests."""
    shared = spark.sparkContext.broadcast((news, stream))

    def count_units(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        news, stream = shared.value
        counted = np.zeros(news.days * news.pages, np.int64)
        for batch in batches:
            for unit in batch.column(0).to_pylist():
                counted += day_counts(news, stream, unit)
        cells = np.flatnonzero(counted)
        yield pa.record_batch([pa.array(cells), pa.array(counted[cells])], ["cell", "requests"])

    partial = unit_numbers(spark, news).mapInArrow(count_units, "cell long, requests long")
    summed = partial.groupBy("cell").agg(F.sum("requests").alias("requests")).toArrow()
    counts = np.zeros(news.days * news.pages, np.int64)
    counts[summed.column("cell").to_numpy()] = summed.column("requests").to_numpy()
    return counts.reshape(news.days, news.pages)


def requests(spark: SparkSession, news: News, stream: PublishingStream, pool: Pools) -> DataFrame:
    """Return all requests: (time, proxy, page)."""
    shared = spark.sparkContext.broadcast((news, stream, pool))

    def draw_units(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        news, stream, pool = shared.value
        drawn: list[tuple[Floats, Ints, Floats]] = []
        for batch in batches:
            for unit in batch.column(0).to_pylist():
                drawn.append(draw(news, stream, unit))
                if sum(len(time) for time, _, _ in drawn) >= BLOCK:
                    yield assigned(news, pool, drawn)
                    drawn = []
        if drawn:
            yield assigned(news, pool, drawn)

    def assigned(news: News, pool: Pools, drawn: list[tuple[Floats, Ints, Floats]]) -> pa.RecordBatch:
        time, page, picks = (np.concatenate(columns) for columns in zip(*drawn, strict=True))
        proxy = servers(news, pool, time, page, picks)
        return pa.record_batch([pa.array(time), pa.array(proxy), pa.array(page)], ["time", "proxy", "page"])

    return unit_numbers(spark, news).mapInArrow(draw_units, "time double, proxy int, page long")


def unit_numbers(spark: SparkSession, news: News) -> DataFrame:
    """Return the numbers of all units, spread over enough tasks to show progress."""
    cores = spark.sparkContext.defaultParallelism
    tasks = max(cores, min(units(news), news.requests // 1_000_000))
    return spark.range(0, units(news), 1, tasks)
