"""The experiments of survival2011 (Sourlas et al. 2011, section 7), as data, and the runner that executes them.

The paper varies one number at a time. What the others are in Figs. 5 to 7, and how far its axes go, is not in its
text: `CENTRE` and the values here are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from pyspark.sql import SparkSession

from newsstand.lab.survival import MessageClass
from newsstand.lab.survival2011_runs import Runs
from newsstand.lab.survival2011_tasks import BALANCED, EXACT, REDUCED, SIMULATE, Row, Task
from newsstand.model import OpportunisticPolicy
from newsstand.survival.setting import Setting

CENTRE = Setting(brokers=3, slots=10, publish_rate=1.0, client_rate=0.1, intensity=2.0)
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
class Curve:
    """What is varied, a field of the setting, and the setting at each of its values, with any policy."""

    axis: str
    points: Mapping[float, Setting]

    @classmethod
    def over(cls, axis: str, values: tuple[float, ...], around: Setting) -> Curve:
        """Around a setting."""
        return cls(axis, {value: replace(around, **{axis: value}) for value in values})  # type: ignore[arg-type]


def classes_of(ratio: float, mean: float | None, unpopular: float | None) -> tuple[MessageClass, ...]:
    """Unpopular and popular messages, equally many; who leaves does so at the same rate mu_c, whatever the class.

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
"""How popular the two classes of Fig. 7 are: the first is the reading taken, the others are tried beside it."""


@dataclass(frozen=True)
class Grid:
    """Where the models are compared with simulation, every combination."""

    brokers: tuple[int, ...] = (2, 3, 4, 5, 6)
    slots: tuple[int, ...] = (5, 10, 20, 30)
    intensities: tuple[float, ...] = (0.5, 2.0, 4.0)
    publish_rates: tuple[float, ...] = (0.1, 1.0, 2.0)
    most_states: int = 2_000_000
    """Where the paper's chain, its states put into multisets, has more, nothing is compared."""

    @property
    def settings(self) -> list[Setting]:
        """For each policy that is mapped."""
        points = product(MAPPED, self.brokers, self.slots, self.intensities, self.publish_rates)
        return [
            replace(CENTRE, policy=policy, brokers=n, slots=k, intensity=rho, publish_rate=rate)
            for policy, n, k, rho, rate in points
            if math.comb(n + k, n) <= self.most_states
        ]


def single_curves(intensities: tuple[float, ...], rates: tuple[float, ...]) -> tuple[Curve, ...]:
    """Fig. 4."""
    return Curve.over("intensity", intensities, SINGLE), Curve.over("publish_rate", rates, SINGLE)


def network_curves(
    slots: tuple[int, ...], intensities: tuple[float, ...], rates: tuple[float, ...], brokers: tuple[int, ...]
) -> tuple[Curve, ...]:
    """Figs. 5 and 6."""
    return (
        Curve.over("slots", slots, CENTRE),
        Curve.over("intensity", intensities, CENTRE),
        Curve.over("publish_rate", rates, CENTRE),
        Curve.over("brokers", brokers, CENTRE),
    )


@dataclass(frozen=True)
class Experiment:
    """Which points are simulated and solved, and how many messages are watched."""

    observations: int = 50_000
    replications: int = 10
    single: tuple[Curve, ...] = single_curves(INTENSITIES, PUBLISH_RATES)
    network: tuple[Curve, ...] = network_curves(SLOTS, INTENSITIES, PUBLISH_RATES, BROKERS)
    ratios: tuple[int, ...] = RATIOS
    grid: Grid = Grid()

    def curve(self, axis: str) -> Curve:
        """Of Figs. 5 and 6, by what is varied."""
        return next(curve for curve in self.network if curve.axis == axis)

    def simulation(self, setting: Setting, classes: tuple[MessageClass, ...] = ()) -> Task:
        """How a setting is simulated here."""
        return Task(setting, SIMULATE, self.observations, self.replications, classes)

    @property
    def tasks(self) -> list[Task]:
        """What is to be done, each once."""
        return list(dict.fromkeys([*self._single(), *self._network(), *self._classes(), *self._map()]))

    def _single(self) -> Iterator[Task]:
        for setting in (one for curve in self.single for one in curve.points.values()):
            yield self.simulation(setting)
            yield Task(setting, EXACT, spread=True)
            yield Task(setting, REDUCED, spread=True)

    def _network(self) -> Iterator[Task]:
        for curve, policy in product(self.network, POLICIES):
            for point in curve.points.values():
                setting = replace(point, policy=policy)
                yield self.simulation(setting)
                yield ours(setting)
                if policy == PRT:
                    yield Task(setting, REDUCED)

    def _classes(self) -> Iterator[Task]:
        for ratio, level, policy in product(self.ratios, LEVELS.values(), (PRT, NOP)):
            yield self.simulation(replace(CENTRE, policy=policy), classes_of(ratio, *level))

    def _map(self) -> Iterator[Task]:
        for setting in self.grid.settings:
            yield self.simulation(setting)
            yield Task(setting, REDUCED)
            yield ours(setting)


def ours(setting: Setting) -> Task:
    """The model of ours; of one broker, all that there is to know is in the two-dimensional chain."""
    return Task(setting, EXACT if setting.brokers == 1 else BALANCED)


QUICK = Experiment(
    10_000,
    5,
    single_curves((0.5, 1.0, 2.0, 4.0), (0.25, 0.5, 1.0, 2.0)),
    network_curves((5, 10, 15, 20), (0.5, 1.0, 2.0, 2.5, 4.0), (0.25, 0.5, 1.0, 2.0), (1, 2, 3, 4)),
    (1, 2, 5, 10),
    Grid((2, 3, 4), (5, 10), (0.5, 2.0, 4.0), (0.25, 1.0, 2.0)),
)
"""Few points, small networks."""


def run_experiment(
    spark: SparkSession, experiment: Experiment, out: Path, tell: Callable[[str], None] = lambda _: None
) -> list[Row]:
    """Run what is not done yet, what takes longest first; what is done is kept in `out`/runs."""
    return Runs(spark, out, tell).measured(experiment.tasks)
