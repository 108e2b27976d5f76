"""What the experiments of survival2011 came to: means over replications, and intervals.

Replications with the same number have the same random numbers in all settings, so they are compared one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from newsstand.lab.intervals import Interval, interval
from newsstand.lab.survival2011 import AXES, CENTRE, LEVELS, PRT, Experiment, classes_of, ours
from newsstand.lab.survival2011_tasks import EXACT, REDUCED, Row, Task
from newsstand.model import OpportunisticPolicy
from newsstand.survival.setting import Setting

MODELS = {REDUCED: "the paper's model", "ours": "our model"}
UNPOPULAR, POPULAR = 0, 1


class Measured:
    """Looks up what was simulated and solved."""

    def __init__(self, rows: Iterable[Row], experiment: Experiment) -> None:
        self.experiment = experiment
        self._rows = {row.task: row for row in rows}

    @property
    def singles(self) -> dict[str, Setting]:
        """The points of Fig. 4, by names."""
        return {
            f"{AXES[curve.axis]} {x:g}": setting
            for curve in self.experiment.single
            for x, setting in curve.points.items()
        }

    @property
    def networks(self) -> dict[str, Setting]:
        """The points of Figs. 5 and 6, by names; the centre, which is in all curves, once."""
        named = {
            setting: f"{AXES[curve.axis]} {x:g}"
            for curve in reversed(self.experiment.network)
            for x, setting in curve.points.items()
        }
        return {name: setting for setting, name in named.items()}

    def simulated(self, setting: Setting) -> Row:
        """The simulation of a setting."""
        return self._rows[self.experiment.simulation(setting)]

    def single(self, setting: Setting, method: str) -> Row:
        """A model of one broker, with quartiles."""
        return self._rows[Task(setting, method, spread=True)]

    def model(self, setting: Setting, model: str) -> float:
        """The mean survival time by a model: `reduced`, the paper's, or `ours`."""
        task = Task(setting, REDUCED) if model == REDUCED else ours(setting)
        return self._rows[task].mst[0]

    def has_model(self, setting: Setting, model: str) -> bool:
        """Whether it was solved."""
        return (Task(setting, REDUCED) if model == REDUCED else ours(setting)) in self._rows

    def mst(self, setting: Setting) -> Interval:
        """Simulated."""
        return interval(self.simulated(setting).mst)

    def error(self, setting: Setting, model: str) -> Interval:
        """By which share a model exceeds the simulation."""
        found = self.model(setting, model)
        return interval([found / one - 1 for one in self.simulated(setting).mst])

    def over(self, setting: Setting, one: OpportunisticPolicy, other: OpportunisticPolicy) -> Interval:
        """By which share the simulated survival time of a policy exceeds that of another."""
        return interval(_shares(*(self._of(setting, policy).mst for policy in (one, other))))

    def copies_over(self, setting: Setting, one: OpportunisticPolicy, other: OpportunisticPolicy) -> Interval:
        """How many more copies a policy makes than another, as a rate."""
        pair = (self._of(setting, policy).copy_rate for policy in (one, other))
        return interval([a - b for a, b in zip(*pair, strict=True)])

    def loss(self, setting: Setting, policy: OpportunisticPolicy) -> Interval:
        """The simulated share of messages that no broker caches."""
        return interval(self._of(setting, policy).p_loss)

    def grows(self, share: Callable[[Setting], Sequence[float]], smaller: Setting, larger: Setting) -> Interval:
        """How much more a measurement is in one setting than in another, replication by replication."""
        return interval([b - a for a, b in zip(share(smaller), share(larger), strict=True)])

    def gains(self, one: OpportunisticPolicy, other: OpportunisticPolicy) -> Callable[[Setting], list[float]]:
        """The measurement `over`, before its mean is taken."""
        return lambda setting: _shares(*(self._of(setting, policy).mst for policy in (one, other)))

    def errors(self, model: str) -> Callable[[Setting], list[float]]:
        """How far a model is off, whatever the direction."""
        return lambda setting: [abs(self.model(setting, model) / one - 1) for one in self.simulated(setting).mst]

    def classes(self, ratio: float, policy: OpportunisticPolicy = PRT, level: str = next(iter(LEVELS))) -> Row:
        """Two classes of messages, simulated."""
        setting = replace(CENTRE, policy=policy)
        return self._rows[self.experiment.simulation(setting, classes_of(ratio, *LEVELS[level]))]

    def single_difference(self, setting: Setting, what: str) -> float:
        """By which share the reduced chain differs from the two-dimensional one: `mst`, `sd` or a quartile."""
        exact, reduced = (_single(self.single(setting, method), what)[0] for method in (EXACT, REDUCED))
        return abs(reduced / exact - 1)

    def single_error(self, setting: Setting, what: str, method: str) -> Interval:
        """By which share a model of one broker exceeds the simulation."""
        (found,) = _single(self.single(setting, method), what)
        return interval([found / one - 1 for one in _single(self.simulated(setting), what)])

    def _of(self, setting: Setting, policy: OpportunisticPolicy) -> Row:
        return self.simulated(replace(setting, policy=policy))


SPREAD = ("sd", "low quartile", "median", "high quartile")


def _single(row: Row, what: str) -> tuple[float, ...]:
    return (
        (row.mean_time or row.mst)
        if what == "mst"
        else row.sd
        if what == "sd"
        else row.quartiles[SPREAD.index(what) - 1]
    )


def _shares(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [a / b - 1 for a, b in zip(above, below, strict=True)]


def straightness(points: dict[float, float]) -> float:
    """R² of the line through points that fits best."""
    x, y = np.array(list(points)), np.array(list(points.values()))
    left = y - np.polyval(np.polyfit(x, y, 1), x)
    return float(1 - (left @ left) / ((y - y.mean()) @ (y - y.mean())))
