"""The replays of one workload of bad2018 under many settings, done once and kept.

What is kept is found again by what it was computed from: the workload, and the sources of all that takes part.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from pyspark.sql import SparkSession

from newsstand.caching.kernels.results_offline import late_retrievals
from newsstand.lab.broker_events import read_events
from newsstand.lab.kept_runs import digest, sources_digest, write_whole
from newsstand.lab.result_bound import bound_late
from newsstand.lab.result_counts import Measured
from newsstand.lab.result_kernel import OF_EACH_CACHE, arrange_events, replay_arranged
from newsstand.lab.result_replay import ReplaySetting
from newsstand.lab.result_sweep import sweep
from newsstand.workload.bad2018 import SimulationSettings
from newsstand.workload.bad2018_generate import generate

COMPUTING = (
    "caching/**/*.py",
    "broker/broker.py",
    "lab/broker_events.py",
    "lab/result_*.py",
    "workload/bad2018*.py",
    "workload/randomness.py",
)
"""The sources that measurements depend on, in the package's folder."""


class Runs:
    """What was measured is in `out`/runs, the events are in `out`/workloads as long as they are needed."""

    def __init__(self, spark: SparkSession, workload: SimulationSettings, out: Path) -> None:
        self.spark = spark
        self.workload = workload
        described = (
            f"{metadata.version('newsstand')} {sources_digest(COMPUTING)} {json.dumps(workload.described())}"
        )
        self._name = f"simulation-{workload.seed}-{digest(described)}"
        self._file = out / "runs" / f"{self._name}.json"
        self._events = out / "workloads" / self._name
        self._file.parent.mkdir(parents=True, exist_ok=True)
        kept = json.loads(self._file.read_text()) if self._file.exists() else []
        self._kept: dict[ReplaySetting, dict[str, Measured]] = {
            ReplaySetting(**one["setting"]): one["measured"] for one in kept
        }

    def measured(self, settings: Sequence[ReplaySetting]) -> list[dict[str, Measured]]:
        """The measures under each setting."""
        todo = [setting for setting in dict.fromkeys(settings) if setting not in self._kept]
        if todo:
            self._kept |= zip(todo, sweep(self.spark, self._made(), todo), strict=True)
            kept = [{"setting": asdict(setting), "measured": one} for setting, one in self._kept.items()]
            write_whole(self._file, kept)
        return [self._kept[setting] for setting in settings]

    def of_each_cache(self, setting: ReplaySetting) -> dict[str, list[float]]:
        """Sums of each result cache, by their names."""
        file = self._file.with_name(f"{self._name}-caches-{digest(str(setting))}.json")
        if not file.exists():
            events = read_events(self._made())
            measured = replay_arranged(arrange_events(events), setting, setting.end_of(events), each_cache=True)
            write_whole(file, {name: measured[f"each_{name}"] for name in OF_EACH_CACHE})
        sums: dict[str, list[float]] = json.loads(file.read_text())
        return sums

    def bounds(self, budgets: Sequence[int]) -> list[dict[str, float]]:
        """What no policy can exceed with each budget."""
        file = self._file.with_name(f"{self._name}-bounds.json")
        kept: dict[str, dict[str, float]] = json.loads(file.read_text()) if file.exists() else {}
        todo = [budget for budget in dict.fromkeys(budgets) if str(budget) not in kept]
        if todo:
            late = late_retrievals(arrange_events(read_events(self._made())))
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                found = pool.map(lambda budget: bound_late(late, budget, self.workload.end_ms), todo)
                kept |= zip(map(str, todo), found, strict=True)
            write_whole(file, kept)
        return [kept[str(budget)] for budget in budgets]

    def forget_events(self) -> None:
        """Remove the events: the same can be made again."""
        shutil.rmtree(self._events, ignore_errors=True)
        if self._events.parent.exists() and not any(self._events.parent.iterdir()):
            self._events.parent.rmdir()

    def _made(self) -> Path:
        """The events, made if they are not there."""
        if not self._events.exists():
            generate(self.spark, self.workload, self._events)
        return self._events
