"""The experiments of survival2011 (Sourlas et al. 2011, section 7), as data, their tasks, and the runner.

A task is a simulation or a model of one setting. The paper varies one number at a time. What the others are in
Figs. 5 to 7, and how far its axes go, is not in its text: `CENTRE` and the values here are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from pyspark.sql import SparkSession

from newsstand.lab.reporting.run_cache import RunCache, run_file, run_on_spark
from newsstand.lab.survival.simulator import QUANTILES, MessageClass, Simulation, run_replication
from newsstand.model import OpportunisticPolicy
from newsstand.survival.methods import solve
from newsstand.survival.setting import SurvivalSetting

SIMULATE, EXACT, REDUCED, BALANCED = "simulate", "exact", "reduced", "balanced"
SEED = 2011
QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class SurvivalTask:
    """One simulation, or one model that is solved."""

    setting: SurvivalSetting
    method: str
    observations: int = 0
    """The watched messages of a simulation, in all replications together."""
    replications: int = 1
    classes: tuple[MessageClass, ...] = ()
    spread: bool = False
    """Whether deviation and quartiles of a model are wanted, which take many more solutions than the mean."""


@dataclass(frozen=True)
class SurvivalRow:
    """The outcome of a task: a number for each replication; a model has one."""

    task: SurvivalTask
    mst: tuple[float, ...]
    """Simulated by Little's law."""
    p_loss: tuple[float, ...]
    sd: tuple[float, ...] = ()
    quartiles: tuple[tuple[float, ...], ...] = ()
    """Low, middle and high, each with a number for each replication."""
    class_mst: tuple[tuple[float, ...], ...] = ()
    copy_rate: tuple[float, ...] = ()
    mean_time: tuple[float, ...] = ()
    """Simulated: the mean of the times. Little's law would say nothing of one broker, whose cache is full."""


def run_task(task: SurvivalTask) -> SurvivalRow:
    """Do a task."""
    return _simulated(task) if task.method == SIMULATE else _solved(task)


def _simulated(task: SurvivalTask) -> SurvivalRow:
    simulation = Simulation(task.setting, task.observations, task.replications, SEED, task.classes)
    found = [run_replication(simulation, number) for number in range(task.replications)]
    return SurvivalRow(
        task,
        mst=tuple(one.mst for one in found),
        p_loss=tuple(one.p_loss for one in found),
        sd=tuple(one.sd for one in found),
        quartiles=tuple(tuple(one.quantiles[QUANTILES.index(level)] for one in found) for level in QUARTILES),
        class_mst=tuple(zip(*(one.class_mst for one in found), strict=True)) if task.classes else (),
        copy_rate=tuple(one.copy_rate for one in found),
        mean_time=tuple(one.mean_time for one in found),
    )


def _solved(task: SurvivalTask) -> SurvivalRow:
    lifetime = solve(task.setting, task.method)
    if not task.spread:
        return SurvivalRow(task, (lifetime.mst,), (lifetime.p_loss,))
    quartiles = tuple((lifetime.quantile(level),) for level in QUARTILES)
    return SurvivalRow(task, (lifetime.mst,), (lifetime.p_loss,), (lifetime.sd,), quartiles)


CENTRE = SurvivalSetting(brokers=3, slots=10, publish_rate=1.0, client_rate=0.1, intensity=2.0)
SINGLE = replace(CENTRE, brokers=1, slots=15)
"""Fig. 4, as the paper has it."""

SLOTS = (5, 10, 15, 20, 25, 30)
INTENSITIES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
PUBLISH_RATES = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
BROKERS = (1, 2, 3, 4, 5, 6)
RATIOS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)

AXES = {"slots": "k", "intensity": "ρ_c", "publish_rate": "λ_b", "brokers": "n", "ratio": "λ_pop / λ_unpop"}
PRT, FLOODED, NOP, ALL = map(
    OpportunisticPolicy.parse, ("sel-sub-prt", "sel-fld-prt", "sel-sub-nop", "all-fld-nop")
)
POLICIES = (PRT, FLOODED, NOP, ALL)
MAPPED = (PRT, FLOODED)


@dataclass(frozen=True)
class SurvivalCurve:
    """The field that is varied, and the setting at each of its values, with any policy."""

    axis: str
    points: Mapping[float, SurvivalSetting]


def curves(around: SurvivalSetting, **values: tuple[float, ...]) -> tuple[SurvivalCurve, ...]:
    """Return a curve for each field of a setting that is varied around it."""
    return tuple(
        SurvivalCurve(axis, {value: replace(around, **{axis: value}) for value in varied})  # type: ignore[arg-type]
        for axis, varied in values.items()
    )


def classes_of(ratio: float, mean: float | None, unpopular: float | None) -> tuple[MessageClass, ...]:
    """Return unpopular and popular messages, equally many; clients of both leave at the same rate mu_c.

    Either the mean of both intensities is given, or the lower one.
    """
    low = 2 * mean / (1 + ratio) if mean is not None else unpopular
    assert low is not None
    leaving = CENTRE.client_rate / CENTRE.intensity
    return tuple(MessageClass(0.5, leaving * rho, rho) for rho in (low, low * ratio))


LEVELS: Mapping[str, tuple[float | None, float | None]] = {
    "mean ρ_c = 2": (2.0, None),
    "unpopular ρ_c = 2": (None, 2.0),
    "unpopular ρ_c = 0.5": (None, 0.5),
}
"""Popularities of the two classes of Fig. 7: the first reading is judged, the others are shown beside it."""


@dataclass(frozen=True)
class SurvivalGrid:
    """The grid of settings in which the models are compared with simulation."""

    brokers: tuple[int, ...] = (2, 3, 4, 5, 6)
    slots: tuple[int, ...] = (5, 10, 20, 30)
    intensities: tuple[float, ...] = (0.5, 2.0, 4.0)
    publish_rates: tuple[float, ...] = (0.1, 1.0, 2.0)
    most_states: int = 2_000_000
    """Settings in which the paper's chain, with states as multisets, has more states are left out."""

    @property
    def settings(self) -> list[SurvivalSetting]:
        """The settings of each policy in the map of errors."""
        points = product(MAPPED, self.brokers, self.slots, self.intensities, self.publish_rates)
        return [
            replace(CENTRE, policy=policy, brokers=n, slots=k, intensity=rho, publish_rate=rate)
            for policy, n, k, rho, rate in points
            if math.comb(n + k, n) <= self.most_states
        ]


@dataclass(frozen=True)
class SurvivalExperiment:
    """Which points are simulated and solved, and how many messages are watched."""

    observations: int = 50_000
    replications: int = 10
    single: tuple[SurvivalCurve, ...] = curves(SINGLE, intensity=INTENSITIES, publish_rate=PUBLISH_RATES)
    """Fig. 4."""
    network: tuple[SurvivalCurve, ...] = curves(
        CENTRE, slots=SLOTS, intensity=INTENSITIES, publish_rate=PUBLISH_RATES, brokers=BROKERS
    )
    """Figs. 5 and 6."""
    ratios: tuple[int, ...] = RATIOS
    grid: SurvivalGrid = SurvivalGrid()

    def curve(self, axis: str) -> SurvivalCurve:
        """Return a curve of Figs. 5 and 6 by the field that is varied."""
        return next(curve for curve in self.network if curve.axis == axis)

    def simulation(self, setting: SurvivalSetting, classes: tuple[MessageClass, ...] = ()) -> SurvivalTask:
        """Return the task of simulating a setting."""
        return SurvivalTask(setting, SIMULATE, self.observations, self.replications, classes)

    @property
    def tasks(self) -> list[SurvivalTask]:
        """All tasks, each once."""
        return list(dict.fromkeys([*self._single(), *self._network(), *self._classes(), *self._map()]))

    def _single(self) -> Iterator[SurvivalTask]:
        for setting in (one for curve in self.single for one in curve.points.values()):
            yield self.simulation(setting)
            yield SurvivalTask(setting, EXACT, spread=True)
            yield SurvivalTask(setting, REDUCED, spread=True)

    def _network(self) -> Iterator[SurvivalTask]:
        for curve, policy in product(self.network, POLICIES):
            for point in curve.points.values():
                setting = replace(point, policy=policy)
                yield self.simulation(setting)
                yield ours(setting)
                if policy == PRT:
                    yield SurvivalTask(setting, REDUCED)

    def _classes(self) -> Iterator[SurvivalTask]:
        for ratio, level, policy in product(self.ratios, LEVELS.values(), (PRT, NOP)):
            yield self.simulation(replace(CENTRE, policy=policy), classes_of(ratio, *level))

    def _map(self) -> Iterator[SurvivalTask]:
        for setting in self.grid.settings:
            yield self.simulation(setting)
            yield SurvivalTask(setting, REDUCED)
            yield ours(setting)


def ours(setting: SurvivalSetting) -> SurvivalTask:
    """Return the task of our model; for one broker that is the two-dimensional chain."""
    return SurvivalTask(setting, EXACT if setting.brokers == 1 else BALANCED)


QUICK_RATES = (0.25, 0.5, 1.0, 2.0)
QUICK = SurvivalExperiment(
    10_000,
    5,
    curves(SINGLE, intensity=(0.5, 1.0, 2.0, 4.0), publish_rate=QUICK_RATES),
    curves(
        CENTRE,
        slots=(5, 10, 15, 20),
        intensity=(0.5, 1.0, 2.0, 2.5, 4.0),
        publish_rate=QUICK_RATES,
        brokers=(1, 2, 3, 4),
    ),
    (1, 2, 5, 10),
    SurvivalGrid((2, 3, 4), (5, 10), (0.5, 2.0, 4.0), (0.25, 1.0, 2.0)),
)
"""Few points, small networks."""


SURVIVAL_MODULES = ("newsstand.lab.papers.survival2011.experiment",)
"""Tasks depend on the imports of these modules."""

BATCH_SECONDS, BATCH = 15.0, 20
"""Runs are stored after this much work on each core, or this many tasks, so an interruption costs little."""


def run_experiment(
    spark: SparkSession, experiment: SurvivalExperiment, out: Path, tell: Callable[[str], None] = lambda _: None
) -> list[SurvivalRow]:
    """Run the tasks that are not in the caches in `out`/runs, the longest first; return the rows of all."""
    simulations, models = (
        RunCache(run_file(out, name, SURVIVAL_MODULES), SurvivalRow) for name in ("simulations", "models")
    )

    def cache_of(task: SurvivalTask) -> RunCache[SurvivalRow]:
        return simulations if task.method == SIMULATE else models

    todo = sorted(
        (task for task in experiment.tasks if cache_of(task).missing([task])), key=seconds_of, reverse=True
    )
    if todo:
        for method in {SIMULATE, REDUCED, *(task.method for task in todo if task.setting.brokers > 1)}:
            run_task(_warm_up(method))  # compiles the kernels, which the processes of the tasks load from disk
    finished = 0
    for batch in batches(todo, spark.sparkContext.defaultParallelism):
        tell(f"{finished} of {len(todo)} done, now {len(batch)}")
        rows = run_on_spark(spark, batch, run_task)
        for cache in (simulations, models):
            if some := [row for row in rows if cache_of(row.task) is cache]:
                cache.add(some)
        finished += len(batch)
    return [cache_of(task)[task] for task in experiment.tasks]


def _warm_up(method: str) -> SurvivalTask:
    setting = SurvivalSetting(1 if method == EXACT else 2, 3, 1.0, 0.1, 2.0)
    return SurvivalTask(setting, method, 10 if method == SIMULATE else 0)


def seconds_of(task: SurvivalTask) -> float:
    """Estimate how long a task takes on one core, as measured on one machine, to run the longest first."""
    n, k = task.setting.brokers, task.setting.slots
    if task.method == SIMULATE:
        return task.observations / 50_000 * (n * k) ** 2 * (2e-4 + 1e-5 / task.setting.publish_rate)
    return 2e-5 * math.comb(n + k, n)


def batches(tasks: Sequence[SurvivalTask], cores: int) -> Iterator[list[SurvivalTask]]:
    """Yield the batches of tasks that are computed, and then stored, together."""
    batch: list[SurvivalTask] = []
    for task in tasks:
        batch.append(task)
        # As many as there are cores, or a multiple, so that of large ones none waits for another batch.
        is_long = len(batch) % cores == 0 and sum(map(seconds_of, batch)) > BATCH_SECONDS * cores
        if is_long or len(batch) >= max(BATCH, 2 * cores):
            yield batch
            batch = []
    if batch:
        yield batch
