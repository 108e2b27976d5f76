"""Replay of any trace: Spark brings each proxy's events together and in order, Arrow hands them to the kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from newsstand.lab.pages.replay import ReplayJob, replay_timeline
from newsstand.lab.pages.results import RESULT_DDL, batches
from newsstand.lab.pages.timeline import Timeline, timeline
from newsstand.workload.trace.folder import Trace
from newsstand.workload.trace.tables import ROW

ENOUGH = 1 << 18
"""Events after which the complete proxies are replayed."""

PRESENT, PUSH, REQUEST = 0, 1, 2
"""Kinds of events, in their order at equal times; PRESENT only says that the proxy exists."""


def events(trace: Trace) -> DataFrame:
    """Return the events of every proxy: (proxy, time, kind, row, page, size, count)."""
    publications = trace.publications.select("page", "time", "size", ROW)
    requests = trace.requests.join(publications.select("page", "size"), "page")
    requests = requests.withColumns({"kind": F.lit(REQUEST), "count": F.lit(0)})
    pushes = trace.subscriptions.drop(ROW).join(publications, "page")
    pushes = pushes.withColumn("kind", F.when(F.col("count") > 0, PUSH).otherwise(PRESENT))
    columns = ("proxy", "time", "kind", ROW, "page", "size", "count")
    return requests.select(*columns).unionByName(pushes.select(*columns))


def replay_shuffled(trace: Trace, job: ReplayJob, partitions: int) -> DataFrame:
    """Repartition all events by proxy, sort them, and replay partition by partition."""
    ordered = (
        events(trace).repartition(partitions, "proxy").sortWithinPartitions("proxy", "time", "kind", ROW).drop(ROW)
    )

    def replay_partition(events: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for seen in timelines(events, hourly=job.hourly):
            yield from batches(replay_timeline(seen, job))

    return ordered.mapInArrow(replay_partition, RESULT_DDL)


def timelines(batches: Iterator[pa.RecordBatch], *, hourly: bool) -> Iterator[Timeline]:
    """Yield sorted events, batch by batch, as timelines of complete proxies."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= ENOUGH and batch.num_rows and held[0].column("proxy")[0] != batch.column("proxy")[-1]:
            table = pa.Table.from_batches(held)
            proxies = table.column("proxy").to_numpy()
            complete = int(np.searchsorted(proxies, proxies[-1], side="left"))
            yield _timeline(table.slice(0, complete), hourly)
            held = table.slice(complete).combine_chunks().to_batches()
            rows = table.num_rows - complete
    if rows:
        yield _timeline(pa.Table.from_batches(held), hourly)


def _timeline(table: pa.Table, hourly: bool) -> Timeline:
    proxies = np.unique(table.column("proxy").to_numpy()).astype(np.int32)
    real = table.filter(pc.field("kind") != PRESENT)
    proxy = real.column("proxy").to_numpy()
    offset = np.concatenate([[0], np.searchsorted(proxy, proxies, side="right")]).astype(np.int64)
    return timeline(
        proxies,
        offset,
        real.column("page").to_numpy(),
        real.column("kind").to_numpy() == PUSH,
        real.column("size").to_numpy(),
        real.column("count").to_numpy().astype(np.int64),
        real.column("time").to_numpy() if hourly else None,
    )
