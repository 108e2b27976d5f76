"""The workload of bad2018 written as one table of broker events in the order of time, on Spark.

Spark never handles single events: the events of a unit for a part of the table are one binary value, and the task
that writes the part sorts them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from newsstand.spark import run_cancellable
from newsstand.workload.bad2018.events import (
    Ints,
    SimulationSettings,
    columns,
    packed_results,
    packed_subscriber_events,
    time_of,
)
from newsstand.workload.trace.folder import new_folder

HOLDS = EVENTS, DESCRIPTION = "events", "workload.json"
"""The files in the folder of the workload."""
SUBSCRIBERS_A_UNIT, SUBSCRIPTIONS_A_UNIT = 250, 200
"""The sizes of units whose events are drawn at a time: about 150,000 events with the settings of Table II."""
EVENTS_A_PART = 1_000_000
"""The approximate number of events that a task sorts and a file holds."""


def generate(spark: SparkSession, settings: SimulationSettings, out: Path, *, force: bool = False) -> int:
    """Write the table in parts named in the order of time, and the settings; return the number of events."""

    def fill(folder: Path) -> int:
        (folder / EVENTS).mkdir()
        events = write_parts(pieces(spark, settings), folder / EVENTS, len(part_edges(settings)) + 1)
        (folder / DESCRIPTION).write_text(json.dumps(settings.described(), indent=2) + "\n")
        return events

    with new_folder(out, force=force, holds=HOLDS) as folder:
        return run_cancellable(spark, lambda: fill(folder))


def pieces(spark: SparkSession, settings: SimulationSettings) -> DataFrame:
    """Return all events, packed, in no order: (part, events), one row for each unit and part with events."""
    shared = spark.sparkContext.broadcast((settings, part_edges(settings)))

    def draw_units(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settings, edges = shared.value
        for batch in batches:
            for unit in batch.column(0).to_pylist():
                packed = draw(settings, unit)
                part = np.searchsorted(edges, time_of(packed), side="right").astype(np.uint16)
                packed = packed[np.argsort(part, kind="stable")]
                ends = np.cumsum(np.bincount(part, minlength=len(edges) + 1))
                found = np.flatnonzero(np.diff(ends, prepend=0))
                cut = [piece.tobytes() for piece in np.split(packed, ends[:-1]) if len(piece)]
                yield pa.record_batch(
                    [pa.array(found, pa.int32()), pa.array(cut, pa.binary())], ["part", "events"]
                )

    return unit_numbers(spark, settings).mapInArrow(draw_units, "part int, events binary")


def write_parts(drawn: DataFrame, folder: Path, parts: int) -> int:
    """Sort and write each part in its own task; return the number of all events."""
    path = str(folder)

    def write_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part, got = 0, []
        for batch in batches:
            part = batch.column(0)[0].as_py()
            got += [np.frombuffer(piece.as_buffer(), np.int64).reshape(-1, 2) for piece in batch.column(1)]
        if got:
            table = columns(np.concatenate(got))
            del got
            file = Path(path) / f"part-{part:05d}.parquet"
            _write(table, file)
            yield pa.record_batch([pa.array([len(table)])], ["events"])

    counted = drawn.repartitionById(parts, "part").mapInArrow(write_part, "events long")
    return sum(row.events for row in counted.collect())


def _write(table: pa.Table, file: Path) -> None:
    """Write a file atomically: a task may run twice."""
    partial = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    # Without Arrow's own schema, readers see the kinds as texts.
    pq.write_table(table, partial, compression="zstd", use_dictionary=["kind"], store_schema=False)
    partial.replace(file)


def draw(settings: SimulationSettings, unit: int) -> Ints:
    """Return the events of one unit: of some subscribers or, in the units after theirs, of some subscriptions."""
    before = _blocks(settings.subscribers, SUBSCRIBERS_A_UNIT)
    if unit < before:
        first = unit * SUBSCRIBERS_A_UNIT
        return packed_subscriber_events(settings, first, min(first + SUBSCRIBERS_A_UNIT, settings.subscribers))
    first = (unit - before) * SUBSCRIPTIONS_A_UNIT
    return packed_results(
        settings, unit - before, first, min(first + SUBSCRIPTIONS_A_UNIT, settings.subscriptions)
    )


def part_edges(settings: SimulationSettings) -> Ints:
    """Return the times at which a new part begins, so that parts have similar lengths.

    They depend on the first subscribers and subscriptions only, never on the distribution of the work.
    """
    sampled = min(settings.subscribers, SUBSCRIBERS_A_UNIT), min(settings.subscriptions, SUBSCRIPTIONS_A_UNIT)
    times = time_of(draw(settings, 0)), time_of(draw(settings, _blocks(settings.subscribers, SUBSCRIBERS_A_UNIT)))
    stands_for = settings.subscribers / sampled[0], settings.subscriptions / sampled[1]
    time = np.concatenate(times)
    order = np.argsort(time, kind="stable")
    reached = np.cumsum(np.repeat(stands_for, [len(drawn) for drawn in times])[order])
    parts = max(1, round(reached[-1] / EVENTS_A_PART))
    places = np.searchsorted(reached, reached[-1] * np.arange(1, parts) / parts)
    return np.unique(time[order][places])


def units(settings: SimulationSettings) -> int:
    """Return the number of units in which events are drawn."""
    return _blocks(settings.subscribers, SUBSCRIBERS_A_UNIT) + _blocks(
        settings.subscriptions, SUBSCRIPTIONS_A_UNIT
    )


def _blocks(items: int, block: int) -> int:
    return -(-items // block)


def unit_numbers(spark: SparkSession, settings: SimulationSettings) -> DataFrame:
    """Return the numbers of all units, spread over enough tasks to show progress."""
    tasks = max(spark.sparkContext.defaultParallelism, units(settings) // 10)
    return spark.range(0, units(settings), 1, tasks)
