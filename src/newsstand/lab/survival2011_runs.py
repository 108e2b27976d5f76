"""Simulations and models of survival2011, each done once and kept; they do not know of each other: a task each."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from pyspark.sql import SparkSession

from newsstand.lab.kept_runs import digest, sources_digest, write_whole
from newsstand.lab.survival import MessageClass
from newsstand.lab.survival2011_tasks import REDUCED, SIMULATE, Row, Task, done
from newsstand.model import OpportunisticPolicy
from newsstand.spark import stoppable
from newsstand.survival.setting import Setting

SIMULATING = (
    "caching/kernels/slots.py",
    "lab/intervals.py",
    "lab/survival.py",
    "lab/survival2011_tasks.py",
    "model.py",
    "survival/setting.py",
)
"""The sources that simulations depend on, in the package's folder."""
SOLVING = ("lab/survival2011_tasks.py", "model.py", "survival/*.py")
"""The same of models."""

BATCH_SECONDS, BATCH = 15.0, 20
"""What is done is kept after so much work on each core, or so many tasks: an interruption costs little."""


class Runs:
    """What was computed is in `out`/runs."""

    def __init__(self, spark: SparkSession, out: Path, tell: Callable[[str], None]) -> None:
        self.spark = spark
        self._tell = tell
        folder = out / "runs"
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {
            is_simulation: folder / f"{name}-{_computed_by(sources)}.json"
            for is_simulation, name, sources in ((True, "simulations", SIMULATING), (False, "models", SOLVING))
        }
        self._kept: dict[Task, Row] = {}
        for file in self._files.values():
            rows = [_row(one) for one in json.loads(file.read_text())] if file.exists() else []
            self._kept |= {row.task: row for row in rows}

    def measured(self, tasks: Sequence[Task]) -> list[Row]:
        """What each task comes to."""
        todo = sorted((task for task in tasks if task not in self._kept), key=lambda task: -seconds_of(task))
        if todo:
            for method in {SIMULATE, REDUCED, *(task.method for task in todo if task.setting.brokers > 1)}:
                done(_warming(method))  # compiled here, found by the processes of tasks
        finished = 0
        for batch in batches(todo, self.spark.sparkContext.defaultParallelism):
            self._tell(f"{finished} of {len(todo)} done, now {len(batch)}")
            self._kept |= zip(batch, self._done(batch), strict=True)
            self._write()
            finished += len(batch)
        return [self._kept[task] for task in tasks]

    def _done(self, tasks: Sequence[Task]) -> list[Row]:
        listed = self.spark.sparkContext.parallelize(tasks, len(tasks))
        return stoppable(self.spark, lambda: listed.map(done).collect())

    def _write(self) -> None:
        for is_simulation, file in self._files.items():
            rows = [row for row in self._kept.values() if (row.task.method == SIMULATE) == is_simulation]
            write_whole(file, [asdict(row) | {"task": _described(row.task)} for row in rows])


def _computed_by(sources: tuple[str, ...]) -> str:
    return digest(f"{metadata.version('newsstand')} {sources_digest(sources)}")


def _warming(method: str) -> Task:
    is_simulation = method == SIMULATE
    return Task(Setting(1 if method == "exact" else 2, 3, 1.0, 0.1, 2.0), method, 10 if is_simulation else 0)


def seconds_of(task: Task) -> float:
    """About how long a task takes on one core, as measured on one machine: to do what takes longest first."""
    n, k = task.setting.brokers, task.setting.slots
    if task.method == SIMULATE:
        return task.observations / 50_000 * (n * k) ** 2 * (2e-4 + 1e-5 / task.setting.publish_rate)
    return 2e-5 * math.comb(n + k, n)


def batches(tasks: Sequence[Task], cores: int) -> Iterator[list[Task]]:
    """What is done, and then kept, at once."""
    batch: list[Task] = []
    for task in tasks:
        batch.append(task)
        # As many as there are cores, or a multiple, so that of large ones none waits for another batch.
        is_long = len(batch) % cores == 0 and sum(map(seconds_of, batch)) > BATCH_SECONDS * cores
        if is_long or len(batch) >= max(BATCH, 2 * cores):
            yield batch
            batch = []
    if batch:
        yield batch


def _described(task: Task) -> dict[str, object]:
    told = asdict(task)
    told["setting"] |= {"policy": str(task.setting.policy)}
    return told


def _row(kept: dict[str, object]) -> Row:
    task: dict[str, object] = kept["task"]  # type: ignore[assignment]
    setting: dict[str, object] = task["setting"]  # type: ignore[assignment]
    policy = OpportunisticPolicy.parse(str(setting["policy"]))
    classes = tuple(MessageClass(**one) for one in task["classes"])  # type: ignore[attr-defined]
    known = Task(**task | {"setting": Setting(**setting | {"policy": policy}), "classes": classes})  # type: ignore[arg-type]
    return Row(known, **{name: _tuples(values) for name, values in kept.items() if name != "task"})  # type: ignore[arg-type]


def _tuples(values: object) -> object:
    """Lists, as JSON has them, within lists."""
    return tuple(_tuples(one) for one in values) if isinstance(values, list) else values
