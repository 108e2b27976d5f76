"""The experiments of Sourlas et al. (2011, section 6), as data, and the runner that executes them.

The paper's figures are drawn over brokers, SC, min k, s_p and s_l; where its axes cannot be read from the text,
the values here are ours. What else it leaves open is told in `storage2011_workload`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from newsstand.lab.storage2011_plans import Part, Row, Task
from newsstand.lab.storage2011_runs import Runs
from newsstand.lab.storage2011_workload import Setting

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
class Curve:
    """One experiment: what is varied, and the setting at each of its values."""

    figure: int
    axis: str
    series: str
    """What is fixed, where a figure has several."""
    points: Mapping[float, Setting]

    @property
    def name(self) -> str:
        return f"{self.figure}, {self.series}" if self.series else str(self.figure)


def _curves() -> Iterator[Curve]:
    base = Setting()
    yield Curve(4, "brokers", "", {nodes: replace(base, nodes=nodes) for nodes in BROKERS})
    yield Curve(5, "storage capacity SC", "", {room: replace(base, capacity=room) for room in CAPACITIES})
    yield Curve(6, "min k", "", {least: replace(base, least=least) for least in LEAST})
    for storages in STORAGES:
        given = replace(base, storages=storages)
        yield Curve(7, "s_p", f"M = {storages}", {s: replace(given, s_p=s) for s in EXPONENTS})
    for storages in STORAGES:
        local = replace(base, storages=storages, s_p=0.0)
        yield Curve(8, "s_l", f"M = {storages}", {s: replace(local, s_l=s) for s in EXPONENTS})
    later = replace(base, storages=STORAGES[0], planned_for=CHANGED[0])
    yield Curve(9, "s_p", "", {s: replace(later, s_p=s) for s in CHANGED})
    yield Curve(10, "s_l", "", {s: replace(later, s_p=0.0, s_l=s) for s in CHANGED})


CURVES = tuple(_curves())


def thinned(curves: tuple[Curve, ...]) -> tuple[Curve, ...]:
    """Every other point of each experiment."""
    return tuple(replace(curve, points=dict(list(curve.points.items())[::2])) for curve in curves)


@dataclass(frozen=True)
class Experiment:
    """Which experiments run on which trees over which seeds."""

    seeds: tuple[int, ...] = tuple(range(1, 21))
    curves: tuple[Curve, ...] = CURVES
    tree: str = next(iter(TREES))
    seeds_of_relaxed: int = 3
    """With how many seeds the linear program is solved, for a plan and a bound on all plans."""
    seeds_of_exact: int = 2
    """With how many seeds the best plan of all is looked for."""
    exact_limit_s: float = 60.0
    other_trees: tuple[str, ...] = tuple(TREES)

    def on_trees(self, setting: Setting) -> Setting:
        """A setting on this experiment's trees."""
        return replace(setting, tree=self.tree)

    @property
    def drawn(self) -> tuple[Curve, ...]:
        """The experiments on this experiment's trees."""
        return tuple(
            replace(curve, points={x: self.on_trees(setting) for x, setting in curve.points.items()})
            for curve in self.curves
        )

    def of_figures(self, *figures: int) -> list[Curve]:
        """The experiments of some figures."""
        return [curve for curve in self.drawn if curve.figure in figures]

    @property
    def variants(self) -> dict[str, list[Setting]]:
        """By kinds of trees, what is compared among them: s_p = 1 with M open, then with M given, then s_l = 1."""
        given = Setting(storages=STORAGES[0])
        compared = (Setting(), given, replace(given, s_p=0.0, s_l=1.0))
        return {tree: [replace(setting, tree=tree) for setting in compared] for tree in self.other_trees}

    @property
    def overlays(self) -> list[Setting]:
        """What the overlay itself carries out: topics that are asked for everywhere, and some places only."""
        small = self.on_trees(Setting(nodes=OVERLAY_BROKERS))
        return [small, replace(small, storages=8, s_p=0.0, s_l=1.0)]

    @property
    def proven(self) -> list[Setting]:
        """Of which the best plan is looked for: the last point of each experiment with M given."""
        return [list(curve.points.values())[-1] for curve in self.of_figures(7, 8)]

    def tasks(self, seed: int) -> list[Task]:
        """What is to be done with a seed, each once, what takes longest first."""
        found: list[Task] = []
        if seed in self.seeds[: self.seeds_of_exact]:
            found += [Task(setting, Part.EXACT, self.exact_limit_s) for setting in self.proven]
        planned = [setting for curve in self.of_figures(4, 5, 6, 7, 8) for setting in curve.points.values()]
        if seed in self.seeds[: self.seeds_of_relaxed]:
            found += [Task(setting, Part.RELAXED) for setting in planned]
        found += [Task(setting, Part.PLANNED) for setting in planned]
        found += [Task(setting, Part.PLANNED) for settings in self.variants.values() for setting in settings]
        found += [
            Task(setting, Part.REASSIGNED) for curve in self.of_figures(9, 10) for setting in curve.points.values()
        ]
        found += [Task(setting, Part.OVERLAY) for setting in self.overlays]
        return list(dict.fromkeys(found))


def run_experiment(
    spark: SparkSession, experiment: Experiment, out: Path, tell: Callable[[str], None] = lambda _: None
) -> list[Row]:
    """Run what is not done yet; what is done is kept in `out`/runs, so that a stopped run goes on."""
    rows: list[Row] = []
    for seed in experiment.seeds:
        tell(f"seed {seed}")
        rows += Runs(spark, seed, out).measured(experiment.tasks(seed))
    return rows
