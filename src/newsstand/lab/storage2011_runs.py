"""What planning comes to with one seed, done once and kept; settings do not know of each other: a task each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from pyspark.sql import SparkSession

from newsstand.lab.kept_runs import digest, sources_digest, write_whole
from newsstand.lab.storage2011_plans import Part, Row, Stage, Task, done
from newsstand.lab.storage2011_workload import Setting
from newsstand.spark import stoppable

COMPUTING = (
    "lab/storage2011_workload.py",
    "lab/storage2011_overlay.py",
    "lab/storage2011_plans.py",
    "model.py",
    "overlay/*_table.py",
    "overlay/batches.py",
    "overlay/covering_forest.py",
    "overlay/filter*.py",
    "overlay/generators.py",
    "overlay/messages.py",
    "overlay/network.py",
    "overlay/node.py",
    "overlay/open_requests.py",
    "overlay/outcomes.py",
    "overlay/storage.py",
    "overlay/topology.py",
    "overlay/value_sets.py",
    "planning/[!n]*.py",
    "planning/neighbourhood.py",
)
"""The sources that measurements depend on, in the package's folder."""

WARMING = Task(Setting(nodes=12, storages=4), Part.PLANNED)
"""Small, and enough to have all compiled here, where the tasks' processes find it."""


class Runs:
    """What was measured with a seed is in `out`/runs."""

    def __init__(self, spark: SparkSession, seed: int, out: Path) -> None:
        self.spark = spark
        self.seed = seed
        computed_by = digest(f"{metadata.version('newsstand')} {sources_digest(COMPUTING)}")
        self._file = out / "runs" / f"plans-{seed}-{computed_by}.json"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        kept = json.loads(self._file.read_text()) if self._file.exists() else []
        self._kept = {_task(one["task"]): [_row(row) for row in one["rows"]] for one in kept}

    def measured(self, tasks: Sequence[Task]) -> list[Row]:
        """What each task comes to."""
        todo = [task for task in tasks if task not in self._kept]
        if todo:
            done(WARMING, self.seed)
            self._kept |= zip(todo, self._done(todo), strict=True)
            kept = [
                {"task": asdict(task), "rows": [asdict(row) for row in rows]} for task, rows in self._kept.items()
            ]
            write_whole(self._file, kept)
        return [row for task in tasks for row in self._kept[task]]

    def _done(self, tasks: Sequence[Task]) -> list[list[Row]]:
        seed = self.seed
        listed = self.spark.sparkContext.parallelize(tasks, len(tasks))
        return stoppable(self.spark, lambda: listed.map(lambda task: done(task, seed)).collect())


def _task(kept: dict[str, object]) -> Task:
    return Task(**kept | {"setting": Setting(**kept["setting"]), "part": Part(str(kept["part"]))})  # type: ignore[arg-type]


def _row(kept: dict[str, object]) -> Row:
    return Row(**kept | {"setting": Setting(**kept["setting"]), "stage": Stage(str(kept["stage"]))})  # type: ignore[arg-type]
