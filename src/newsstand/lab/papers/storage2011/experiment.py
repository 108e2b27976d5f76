"""The experiments of Sourlas et al. (2011, section 6), as data, the runner, and its measurements.

The paper's figures are drawn over brokers, SC, min k, s_p and s_l; where its axes cannot be read from the text,
the values here are ours. What else it leaves open is described in `workload`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from pyspark.sql import SparkSession

from newsstand.lab.papers.storage2011.plans import (
    EXACT,
    RELAXED,
    PlanningRow,
    PlanningSetting,
    PlanningStage,
    PlanningStep,
    PlanningTask,
    run_task,
)
from newsstand.lab.reporting.run_cache import RunCache, run_file, run_on_spark
from newsstand.lab.reporting.statistics import Interval, Sample

BROKERS = (40, 60, 80, 100, 150, 200)
CAPACITIES = (1, 2, 3, 5, 7, 10)
LEAST = (1, 2, 3, 4, 5)
EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
CHANGED = (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0)
STORAGES = (20, 10)
OVERLAY_BROKERS = 40

TREES = {
    "recursive-tree": "each broker joins any of those before it",
    "preferential-tree": "each broker joins one of those before it, rather one with many links",
    "random-tree": "all trees are equally likely",
}
"""The kinds of trees: the first is the reading taken, the others are tried beside it."""


@dataclass(frozen=True)
class PlanningCurve:
    """One experiment: what is varied, and the setting at each of its values."""

    figure: int
    axis: str
    series: str
    """The fixed parameter, where a figure has several experiments."""
    points: Mapping[float, PlanningSetting]

    @property
    def name(self) -> str:
        return f"{self.figure}, {self.series}" if self.series else str(self.figure)


def _curves() -> Iterator[PlanningCurve]:
    base = PlanningSetting()
    yield PlanningCurve(4, "brokers", "", {nodes: replace(base, nodes=nodes) for nodes in BROKERS})
    yield PlanningCurve(5, "storage capacity SC", "", {room: replace(base, capacity=room) for room in CAPACITIES})
    yield PlanningCurve(6, "min k", "", {least: replace(base, least=least) for least in LEAST})
    for storages in STORAGES:
        given = replace(base, storages=storages)
        yield PlanningCurve(7, "s_p", f"M = {storages}", {s: replace(given, s_p=s) for s in EXPONENTS})
    for storages in STORAGES:
        local = replace(base, storages=storages, s_p=0.0)
        yield PlanningCurve(8, "s_l", f"M = {storages}", {s: replace(local, s_l=s) for s in EXPONENTS})
    later = replace(base, storages=STORAGES[0], planned_for=CHANGED[0])
    yield PlanningCurve(9, "s_p", "", {s: replace(later, s_p=s) for s in CHANGED})
    yield PlanningCurve(10, "s_l", "", {s: replace(later, s_p=0.0, s_l=s) for s in CHANGED})


CURVES = tuple(_curves())


def thinned(curves: tuple[PlanningCurve, ...]) -> tuple[PlanningCurve, ...]:
    """Return the experiments with every other point."""
    return tuple(replace(curve, points=dict(list(curve.points.items())[::2])) for curve in curves)


@dataclass(frozen=True)
class PlanningExperiment:
    """Which experiments run on which trees over which seeds."""

    seeds: tuple[int, ...] = tuple(range(1, 21))
    curves: tuple[PlanningCurve, ...] = CURVES
    tree: str = next(iter(TREES))
    seeds_of_relaxed: int = 3
    """The number of seeds with which the linear program is solved, for a plan and a bound on all plans."""
    seeds_of_exact: int = 2
    """The number of seeds with which branch and bound looks for the best plan."""
    exact_limit_s: float = 60.0
    other_trees: tuple[str, ...] = tuple(TREES)

    @property
    def drawn(self) -> tuple[PlanningCurve, ...]:
        """The experiments on this experiment's trees."""
        return tuple(
            replace(curve, points={x: replace(setting, tree=self.tree) for x, setting in curve.points.items()})
            for curve in self.curves
        )

    def of_figures(self, *figures: int) -> list[PlanningCurve]:
        """Return the experiments of some figures."""
        return [curve for curve in self.drawn if curve.figure in figures]

    def points(self, *figures: int) -> Iterator[tuple[PlanningCurve, float, PlanningSetting]]:
        """Yield every point of some figures: the experiment, the value of what is varied, and the setting."""
        for curve in self.of_figures(*figures):
            for x, setting in curve.points.items():
                yield curve, x, setting

    @property
    def variants(self) -> dict[str, list[PlanningSetting]]:
        """The settings on each kind of trees: s_p = 1 with M open and with M given, then s_l = 1."""
        given = PlanningSetting(storages=STORAGES[0])
        compared = (PlanningSetting(), given, replace(given, s_p=0.0, s_l=1.0))
        return {tree: [replace(setting, tree=tree) for setting in compared] for tree in self.other_trees}

    @property
    def overlays(self) -> list[PlanningSetting]:
        """The settings that run in the overlay: topics with demand everywhere, and in some places only."""
        small = PlanningSetting(nodes=OVERLAY_BROKERS, tree=self.tree)
        return [small, replace(small, storages=8, s_p=0.0, s_l=1.0)]

    @property
    def proven(self) -> list[PlanningSetting]:
        """The settings of branch and bound: the last point of each experiment with M given."""
        return [list(curve.points.values())[-1] for curve in self.of_figures(7, 8)]

    def tasks(self, seed: int) -> list[PlanningTask]:
        """Return the tasks of a seed, each once, the longest first."""
        return list(dict.fromkeys(self._tasks(seed)))

    def _tasks(self, seed: int) -> Iterator[PlanningTask]:
        planned = [setting for _, _, setting in self.points(4, 5, 6, 7, 8)]
        if seed in self.seeds[: self.seeds_of_exact]:
            for setting in self.proven:
                yield PlanningTask(setting, PlanningStep.EXACT, self.exact_limit_s)
        steps = {
            PlanningStep.RELAXED: planned if seed in self.seeds[: self.seeds_of_relaxed] else [],
            PlanningStep.PLANNED: [*planned, *chain(*self.variants.values())],
            PlanningStep.REASSIGNED: [setting for _, _, setting in self.points(9, 10)],
            PlanningStep.OVERLAY: self.overlays,
        }
        for step, settings in steps.items():
            yield from (PlanningTask(setting, step) for setting in settings)


QUICK = PlanningExperiment((1, 2, 3), thinned(CURVES), seeds_of_exact=0)

PLANNING_MODULES = ("newsstand.lab.papers.storage2011.plans",)
"""The modules that compute plans."""
WARM_UP = PlanningTask(PlanningSetting(nodes=12, storages=4), PlanningStep.PLANNED)
"""A small task that compiles the kernels; the processes of other tasks load them from disk."""


@dataclass(frozen=True)
class PlanningRun:
    """A task and its rows."""

    task: PlanningTask
    rows: list[PlanningRow]


def run_experiment(
    spark: SparkSession, experiment: PlanningExperiment, out: Path, tell: Callable[[str], None] = lambda _: None
) -> list[PlanningRow]:
    """Run the tasks that are not in the cache in `out`/runs; return the rows of all."""
    rows: list[PlanningRow] = []
    for seed in experiment.seeds:
        tell(f"seed {seed}")
        runs = RunCache(run_file(out, f"plans-{seed}", PLANNING_MODULES), PlanningRun)
        tasks = experiment.tasks(seed)
        if todo := runs.missing(tasks):
            run_task(WARM_UP, seed)
            runs.add(map(PlanningRun, todo, run_on_spark(spark, todo, partial(run_task, seed=seed))))
        rows += [row for task in tasks for row in runs[task].rows]
    return rows


NOTHING = 1e-12
"""Hops below this are none."""
PLANNED = PlanningStage.PLANNED


class PlanningMeasurements:
    """Measurements by setting, method and stage."""

    def __init__(self, rows: Iterable[PlanningRow], experiment: PlanningExperiment) -> None:
        self.experiment = experiment
        self._rows: dict[tuple[PlanningSetting, str, PlanningStage], dict[int, PlanningRow]] = {}
        for row in rows:
            self._rows.setdefault((row.setting, row.method, row.stage), {})[row.seed] = row

    def rows(
        self, setting: PlanningSetting, method: str, stage: PlanningStage = PLANNED
    ) -> Mapping[int, PlanningRow]:
        """Return the row of each seed; none if the method was not run."""
        return self._rows.get((setting, method, stage), {})

    def of(self, what: str, setting: PlanningSetting, method: str, stage: PlanningStage = PLANNED) -> Sample:
        """Return a field of the rows."""
        rows = self.rows(setting, method, stage)
        return Sample({seed: float(getattr(row, what)) for seed, row in rows.items()})

    def hops(self, setting: PlanningSetting, method: str, stage: PlanningStage = PLANNED) -> Sample:
        return self.of("mean_hops", setting, method, stage)

    def excess(
        self,
        setting: PlanningSetting,
        method: str,
        other: str,
        stage: PlanningStage = PLANNED,
        other_stage: PlanningStage = PLANNED,
    ) -> Interval:
        """Return the share by which one method's hops exceed another's; infinite if the other has none."""
        hops, others = self.hops(setting, method, stage), self.hops(setting, other, other_stage)
        both = hops.keys() & others.keys()
        if any(others[seed] < NOTHING for seed in both):
            return Interval(math.inf if any(hops[seed] > NOTHING for seed in both) else 0.0, 0.0)
        return (hops / others - 1).interval

    def gain(self, setting: PlanningSetting, method: str) -> Interval:
        """Return the share of hops that reassigning saves."""
        excess = self.excess(setting, method, method, PlanningStage.REASSIGNED, PlanningStage.STAYED)
        return Interval(0.0 - excess.mean, excess.half)

    def bound(self, setting: PlanningSetting) -> Sample:
        """Return the largest number of hops that a method has proven no plan to be below."""
        proven = Sample()
        for method in (RELAXED, EXACT):
            for seed, row in self.rows(setting, method).items():
                assert row.gap is not None
                proven[seed] = max(proven.get(seed, 0.0), row.mean_hops * (1 - row.gap))
        return proven

    def above_bound(self, setting: PlanningSetting, method: str) -> Interval:
        """Return the share by which a method's hops exceed the bound."""
        bounds = {seed: bound for seed, bound in self.bound(setting).items() if bound}
        return (self.hops(setting, method) / bounds - 1).interval

    def closed(self, setting: PlanningSetting, method: str) -> Interval:
        """Return the share of the distance from wrr to the bound that a method closes."""
        wrr = self.hops(setting, "wrr")
        distances = {seed: far for seed, far in (wrr - self.bound(setting)).items() if far > NOTHING}
        return ((wrr - self.hops(setting, method)) / distances).interval
