"""The workload of bad2018 written as one table of broker events in the order of time, on Spark.

Spark never sees an event by itself: what a unit draws for a part of the table travels as one piece of bytes, and
the task that writes the part sorts it.
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

from newsstand.spark import stoppable
from newsstand.workload.bad2018 import Ints, SimulationSettings
from newsstand.workload.bad2018_events import columns, doings_packed, results_packed, time_of
from newsstand.workload.store import new_folder

HOLDS = EVENTS, DESCRIPTION = "events", "workload.json"
"""What the folder of the workload holds."""
SUBSCRIBERS_A_UNIT, SUBSCRIPTIONS_A_UNIT = 250, 200
"""Of how many the events are drawn at a time; about 150,000 events with the settings of Table II."""
EVENTS_A_PART = 1_000_000
"""What a task sorts and a file holds, about."""


def generate(spark: SparkSession, settings: SimulationSettings, out: Path, *, force: bool = False) -> int:
    """Write the table in parts named in the order of time, and what was asked for; the number of all events."""

    def fill(folder: Path) -> int:
        (folder / EVENTS).mkdir()
        events = write_parts(pieces(spark, settings), folder / EVENTS, len(part_edges(settings)) + 1)
        (folder / DESCRIPTION).write_text(json.dumps(settings.described(), indent=2) + "\n")
        return events

    with new_folder(out, force=force, holds=HOLDS) as folder:
        return stoppable(spark, lambda: fill(folder))


def pieces(spark: SparkSession, settings: SimulationSettings) -> DataFrame:
    """All events, packed, in no order: (part, events), a piece for each unit and part that has any."""
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

    return _units(spark, settings).mapInArrow(draw_units, "part int, events binary")


def write_parts(drawn: DataFrame, folder: Path, parts: int) -> int:
    """Sort and write each part in a task of its own; the number of all events."""
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
    """Write a file whole or not at all: a task may be tried twice."""
    partial = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    # Without Arrow's own schema the kinds are texts for whoever reads them.
    pq.write_table(table, partial, compression="zstd", use_dictionary=["kind"], store_schema=False)
    partial.replace(file)


def draw(settings: SimulationSettings, unit: int) -> Ints:
    """The events of one unit: of some subscribers or, in the units after theirs, of some subscriptions."""
    before = _blocks(settings.subscribers, SUBSCRIBERS_A_UNIT)
    if unit < before:
        first = unit * SUBSCRIBERS_A_UNIT
        return doings_packed(settings, first, min(first + SUBSCRIBERS_A_UNIT, settings.subscribers))
    first = (unit - before) * SUBSCRIPTIONS_A_UNIT
    return results_packed(
        settings, unit - before, first, min(first + SUBSCRIPTIONS_A_UNIT, settings.subscriptions)
    )


def part_edges(settings: SimulationSettings) -> Ints:
    """The times at which a new part begins, so that parts are of about one length.

    They follow from the first subscribers and subscriptions alone, never from how the work is divided.
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
    """How many units the events are drawn in."""
    return _blocks(settings.subscribers, SUBSCRIBERS_A_UNIT) + _blocks(
        settings.subscriptions, SUBSCRIPTIONS_A_UNIT
    )


def _blocks(items: int, block: int) -> int:
    return -(-items // block)


def _units(spark: SparkSession, settings: SimulationSettings) -> DataFrame:
    """The numbers of all units, spread over enough tasks to show progress."""
    tasks = max(spark.sparkContext.defaultParallelism, units(settings) // 10)
    return spark.range(0, units(settings), 1, tasks)
