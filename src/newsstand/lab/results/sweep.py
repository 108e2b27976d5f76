"""Replays of broker events under many settings, in parallel on Spark: one task for each setting.

A table in the memory of this process is sent to the executors once; a path is read by them, so all have to see it.
A worker keeps its table for the next task. The results do not depend on how tasks are spread over workers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.core.broadcast import Broadcast
from pyspark.sql import SparkSession

from newsstand.errors import NewsstandError
from newsstand.lab.reporting.run_cache import run_on_spark
from newsstand.lab.results.compiled import compiled_replay
from newsstand.lab.results.events import COLUMNS, BrokerEvents, events_of, read_events
from newsstand.lab.results.replay import Implementation, Measure, ReplaySetting, replay

ROWS_A_PIECE = 4_000_000
"""Rows of a broadcast piece: the JVM takes no piece over 2 GB."""


@dataclass(frozen=True)
class BroadcastTable:
    """A table that Spark sends to the executors, in pieces."""

    rows: int
    pieces: tuple[Broadcast[bytes], ...]

    def load(self) -> BrokerEvents:
        time_ms, subscriber, subscription, size = (np.empty(self.rows, np.int64) for _ in range(4))
        events = BrokerEvents(time_ms, np.empty(self.rows, np.uint8), subscriber, subscription, size)
        first = 0
        for piece in self.pieces:
            table = pa.ipc.open_stream(piece.value).read_all()
            for name in COLUMNS:
                getattr(events, name)[first : first + len(table)] = table[name].to_numpy()
            first += len(table)
        return events


Table = Path | BroadcastTable
"""A table in the form in which executors load it; they read a path themselves."""
ReplayFunction = Callable[[ReplaySetting], dict[str, Measure]]


def sweep(
    spark: SparkSession,
    events: Path | BrokerEvents,
    settings: Sequence[ReplaySetting],
    *,
    implementation: Implementation = "compiled",
) -> list[dict[str, Measure]]:
    """Replay a table under every setting; return the measures of each, in the order of the settings."""
    if implementation == "compiled":
        prepare(settings)
    # No two sweeps share a name: what a worker keeps of one is never taken for a table of another.
    name, table = uuid.uuid4().hex, _reachable(spark, events)

    def answer(setting: ReplaySetting) -> dict[str, Measure] | NewsstandError:
        try:
            return _replay_function(name, table, implementation)(setting)
        except NewsstandError as error:  # reported as it is: Spark would wrap it in an error of its own
            return error

    try:
        # One partition a task: a worker holds one table in memory, and none waits for another's settings.
        answers = run_on_spark(spark, settings, answer)
    finally:
        for piece in table.pieces if isinstance(table, BroadcastTable) else ():
            piece.destroy()
    for answered in answers:
        if isinstance(answered, NewsstandError):
            raise answered
    return answers


def prepare(settings: Sequence[ReplaySetting]) -> None:
    """Compile every kernel here, so that workers on this machine find the code on disk."""
    rows = [(0, "subscribe", 0, 0, 0), (1, "result", 0, 0, 9), (2, "login", 0, 0, 0)]
    for policy in dict.fromkeys(setting.policy for setting in settings):
        compiled_replay(events_of(rows))(ReplaySetting(policy, 8))


def _reachable(spark: SparkSession, events: Path | BrokerEvents) -> Table:
    """Return a table in a form that executors can load."""
    if isinstance(events, Path):
        return events.absolute()
    firsts = range(0, len(events), ROWS_A_PIECE)
    packed = (_packed(events, slice(first, first + ROWS_A_PIECE)) for first in firsts)
    return BroadcastTable(len(events), tuple(spark.sparkContext.broadcast(piece) for piece in packed))


def _packed(events: BrokerEvents, rows: slice) -> bytes:
    batch = pa.record_batch([pa.array(getattr(events, name)[rows]) for name in COLUMNS], names=list(COLUMNS))
    packed = pa.BufferOutputStream()
    with pa.ipc.new_stream(packed, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(batch)
    return bytes(packed.getvalue())


_ready: dict[str, ReplayFunction] = {}
"""The table of this process's latest task, ready to be replayed."""


def _replay_function(name: str, table: Table, implementation: Implementation) -> ReplayFunction:
    if name not in _ready:
        _ready.clear()
        events = read_events(table) if isinstance(table, Path) else table.load()
        _ready[name] = partial(replay, events) if implementation == "core" else compiled_replay(events)
    return _ready[name]
