"""Measurements of survival2011.

Replications with the same number have the same random numbers in all settings, so they are compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from newsstand.lab.papers.survival2011.experiment import (
    AXES,
    CENTRE,
    EXACT,
    LEVELS,
    PRT,
    REDUCED,
    SurvivalExperiment,
    SurvivalRow,
    SurvivalTask,
    classes_of,
    ours,
)
from newsstand.lab.reporting.statistics import Interval, Sample
from newsstand.model import OpportunisticPolicy
from newsstand.survival.setting import SurvivalSetting

MODELS = {REDUCED: "the paper's model", "ours": "our model"}
UNPOPULAR, POPULAR = 0, 1


class SurvivalMeasurements:
    """The rows of what was simulated and solved, by setting."""

    def __init__(self, rows: Iterable[SurvivalRow], experiment: SurvivalExperiment) -> None:
        self.experiment = experiment
        self._rows = {row.task: row for row in rows}

    @property
    def singles(self) -> dict[str, SurvivalSetting]:
        """The points of Fig. 4, by names."""
        return {
            f"{AXES[curve.axis]} {x:g}": setting
            for curve in self.experiment.single
            for x, setting in curve.points.items()
        }

    @property
    def networks(self) -> dict[str, SurvivalSetting]:
        """The points of Figs. 5 and 6, by names; the centre, which is in all curves, once."""
        named = {
            setting: f"{AXES[curve.axis]} {x:g}"
            for curve in reversed(self.experiment.network)
            for x, setting in curve.points.items()
        }
        return {name: setting for setting, name in named.items()}

    def simulated(self, setting: SurvivalSetting) -> SurvivalRow:
        """Return the simulation of a setting."""
        return self._rows[self.experiment.simulation(setting)]

    def single(self, setting: SurvivalSetting, method: str) -> SurvivalRow:
        """Return a model of one broker, with quartiles."""
        return self._rows[SurvivalTask(setting, method, spread=True)]

    def model(self, setting: SurvivalSetting, model: str) -> float:
        """Return the mean survival time by a model: `reduced`, the paper's, or `ours`."""
        task = SurvivalTask(setting, REDUCED) if model == REDUCED else ours(setting)
        return self._rows[task].mst[0]

    def has_model(self, setting: SurvivalSetting, model: str) -> bool:
        """Return whether a model was solved."""
        return (SurvivalTask(setting, REDUCED) if model == REDUCED else ours(setting)) in self._rows

    def mst(self, setting: SurvivalSetting) -> Sample:
        """Return the simulated mean survival time."""
        return Sample.of(self.simulated(setting).mst)

    def error(self, setting: SurvivalSetting, model: str) -> Sample:
        """Return the share by which a model exceeds the simulation."""
        return self.model(setting, model) / self.mst(setting) - 1

    def excess(self, setting: SurvivalSetting, one: OpportunisticPolicy, other: OpportunisticPolicy) -> Sample:
        """Return the share by which the simulated survival time of a policy exceeds that of another."""
        return self.mst(replace(setting, policy=one)) / self.mst(replace(setting, policy=other)) - 1

    def copies(self, setting: SurvivalSetting, policy: OpportunisticPolicy) -> Sample:
        """Return the simulated rate at which a policy copies messages."""
        return Sample.of(self.simulated(replace(setting, policy=policy)).copy_rate)

    def loss(self, setting: SurvivalSetting, policy: OpportunisticPolicy) -> Interval:
        """Return the simulated share of messages that no broker caches."""
        return Sample.of(self.simulated(replace(setting, policy=policy)).p_loss).interval

    def of_class(
        self, place: int, ratio: float, policy: OpportunisticPolicy = PRT, level: str = next(iter(LEVELS))
    ) -> Sample:
        """Return the simulated survival time of popular or unpopular messages."""
        setting = replace(CENTRE, policy=policy)
        row = self._rows[self.experiment.simulation(setting, classes_of(ratio, *LEVELS[level]))]
        return Sample.of(row.class_mst[place])

    def single_difference(self, setting: SurvivalSetting, what: str) -> float:
        """Return the share by which the reduced chain differs from the two-dimensional one."""
        exact, reduced = (times(self.single(setting, method))[what][0] for method in (EXACT, REDUCED))
        return abs(reduced / exact - 1)

    def single_error(self, setting: SurvivalSetting, what: str, method: str) -> Interval:
        """Return the share by which a model of one broker exceeds the simulation."""
        (found,) = times(self.single(setting, method))[what]
        return (found / Sample.of(times(self.simulated(setting))[what]) - 1).interval


TIMES = ("mst", "sd", "low quartile", "median", "high quartile")
SPREAD = TIMES[1:]


def times(row: SurvivalRow) -> dict[str, tuple[float, ...]]:
    """Return the numbers that describe the survival times of one broker, by name."""
    return dict(zip(TIMES, (row.mean_time or row.mst, row.sd, *row.quartiles), strict=True))


def straightness(points: dict[float, float]) -> float:
    """R² of the line through points that fits best."""
    x, y = np.array(list(points)), np.array(list(points.values()))
    left = y - np.polyval(np.polyfit(x, y, 1), x)
    return float(1 - (left @ left) / ((y - y.mean()) @ (y - y.mean())))
