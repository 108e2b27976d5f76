"""Replays of broker events under many settings, in parallel on Spark: one task for each table and setting.

A table in the memory of this process is sent to the executors once; a path is read by them, so all have to see it.
A worker keeps the table that it has for the next task. Nothing is drawn or summed: how tasks are spread over
workers does not show in what they come to.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from pyspark.core.broadcast import Broadcast
from pyspark.sql import SparkSession

from newsstand.errors import BadOption, NewsstandError
from newsstand.lab.broker_events import COLUMNS, BrokerEvents, events_of, read_events
from newsstand.lab.result_counts import Measured
from newsstand.lab.result_kernel import arrange_events, is_compiled, replay_arranged, replay_compiled
from newsstand.lab.result_replay import ReplaySetting, replay
from newsstand.spark import stoppable

Engine = Literal["compiled", "objects"]
"""The compiled replay, or the core of the live broker, which comes to the same."""

ROWS_A_PIECE = 4_000_000
"""Rows of a table that are sent at once: the JVM takes no piece over 2 GB."""


@dataclass(frozen=True)
class Stored:
    """A table that whoever needs it reads from a path."""

    path: Path

    def load(self) -> BrokerEvents:
        return read_events(self.path)

    def forget(self) -> None:
        """Nothing was sent."""


@dataclass(frozen=True)
class Sent:
    """A table that Spark brings, in pieces."""

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

    def forget(self) -> None:
        """Let Spark drop what it sent."""
        for piece in self.pieces:
            piece.destroy()


Tables = dict[str, Stored | Sent]
Replayed = Callable[[ReplaySetting], dict[str, Measured]]


def sweep(
    spark: SparkSession,
    events: Path | BrokerEvents,
    settings: Sequence[ReplaySetting],
    *,
    engine: Engine = "compiled",
) -> list[dict[str, Measured]]:
    """Replay a table under every setting; the measures of each, in the order of the settings."""
    return sweep_runs(spark, [events], settings, engine=engine)[0]


def sweep_runs(
    spark: SparkSession,
    runs: Sequence[Path | BrokerEvents],
    settings: Sequence[ReplaySetting],
    *,
    engine: Engine = "compiled",
) -> list[list[dict[str, Measured]]]:
    """`sweep` for several tables, such as those of other seeds: a list for each of them, in their order."""
    if engine not in get_args(Engine):
        raise BadOption(f"engine is '{engine}', not one of {', '.join(get_args(Engine))}")
    if engine == "compiled":
        prepare(settings)
    # No two sweeps share a name: what a worker keeps of one is never taken for a table of another.
    tables = {uuid.uuid4().hex: _reachable(spark, run) for run in runs}
    tasks = [(name, setting) for name in tables for setting in settings]
    try:
        answers = iter(_answers(spark, tables, tasks, engine))
    finally:
        for table in tables.values():
            table.forget()
    return [[next(answers) for _ in settings] for _ in runs]


def prepare(settings: Sequence[ReplaySetting]) -> None:
    """Compile every kernel here, so that workers on this machine find the code on disk."""
    rows = [(0, "subscribe", 0, 0, 0), (1, "result", 0, 0, 9), (2, "login", 0, 0, 0)]
    for policy in dict.fromkeys(setting.policy for setting in settings):
        replay_compiled(events_of(rows), ReplaySetting(policy, 8))


def _reachable(spark: SparkSession, events: Path | BrokerEvents) -> Stored | Sent:
    """A table as executors can have it."""
    if isinstance(events, Path):
        return Stored(events.absolute())
    firsts = range(0, len(events), ROWS_A_PIECE)
    packed = (_packed(events, slice(first, first + ROWS_A_PIECE)) for first in firsts)
    return Sent(len(events), tuple(spark.sparkContext.broadcast(piece) for piece in packed))


def _packed(events: BrokerEvents, rows: slice) -> bytes:
    batch = pa.record_batch([pa.array(getattr(events, name)[rows]) for name in COLUMNS], names=list(COLUMNS))
    packed = pa.BufferOutputStream()
    with pa.ipc.new_stream(packed, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(batch)
    return bytes(packed.getvalue())


def _answers(
    spark: SparkSession, tables: Tables, tasks: Sequence[tuple[str, ReplaySetting]], engine: Engine
) -> list[dict[str, Measured]]:
    def answer(task: tuple[str, ReplaySetting]) -> dict[str, Measured] | NewsstandError:
        name, setting = task
        try:
            return _kept(name, tables[name], engine)(setting)
        except NewsstandError as error:  # the user's to know: Spark would bury it in its own
            return error

    if not tasks:
        return []
    # One partition a task: a worker holds one table in memory, and none waits for another's settings.
    listed = spark.sparkContext.parallelize(tasks, len(tasks))
    measured = []
    for answered in stoppable(spark, lambda: listed.map(answer).collect()):
        if isinstance(answered, NewsstandError):
            raise answered
        measured.append(answered)
    return measured


_ready: dict[str, Replayed] = {}
"""The table of this process's latest task, ready to be replayed."""


def _kept(name: str, table: Stored | Sent, engine: Engine) -> Replayed:
    if name not in _ready:
        _ready.clear()
        events = table.load()
        if engine == "objects":
            _ready[name] = partial(replay, events)
        else:
            arranged = arrange_events(events)

            def replayed(setting: ReplaySetting) -> dict[str, Measured]:
                if not is_compiled(setting):
                    return replay(events, setting)
                return replay_arranged(arranged, setting, setting.end_of(events))

            _ready[name] = replayed
    return _ready[name]
