"""What the experiments of storage2011 measured: means over the seeds, and intervals.

Methods plan for the same networks, so they are compared seed by seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from newsstand.lab.intervals import Interval, apart, interval
from newsstand.lab.storage2011 import Experiment
from newsstand.lab.storage2011_plans import RELAXED, Row, Stage
from newsstand.lab.storage2011_workload import Setting

NOTHING = 1e-12
"""Hops below this are none."""


class Measured:
    """Looks measurements up, by setting, method and stage."""

    def __init__(self, rows: Iterable[Row], experiment: Experiment) -> None:
        self.experiment = experiment
        self.is_single = len(experiment.seeds) == 1
        """Whether there was one run only, so that there are no intervals."""
        self._rows: dict[tuple[Setting, str, Stage], dict[int, Row]] = {}
        for row in rows:
            self._rows.setdefault((row.setting, row.method, row.stage), {})[row.seed] = row

    def rows(self, setting: Setting, method: str, stage: Stage = Stage.PLANNED) -> Mapping[int, Row]:
        """By seed; none if it was not run."""
        return self._rows.get((setting, method, stage), {})

    def values(self, what: str, setting: Setting, method: str, stage: Stage = Stage.PLANNED) -> dict[int, float]:
        """A measurement by seed."""
        return {seed: float(getattr(row, what)) for seed, row in self.rows(setting, method, stage).items()}

    def of(self, what: str, setting: Setting, method: str, stage: Stage = Stage.PLANNED) -> Interval:
        """The mean of a measurement over the seeds."""
        return _mean(self.values(what, setting, method, stage))

    def hops(self, setting: Setting, method: str, stage: Stage = Stage.PLANNED) -> Interval:
        return self.of("mean_hops", setting, method, stage)

    def over(
        self,
        setting: Setting,
        one: str,
        other: str,
        stage: Stage = Stage.PLANNED,
        other_stage: Stage = Stage.PLANNED,
    ) -> Interval:
        """By which share one method's hops exceed another's, seed by seed; infinite if the other has none."""
        above, below = (
            self.values("mean_hops", setting, one, stage),
            self.values("mean_hops", setting, other, other_stage),
        )
        both = [seed for seed in above if seed in below]
        if any(below[seed] < NOTHING for seed in both):
            return Interval(math.inf if any(above[seed] > NOTHING for seed in both) else 0.0, 0.0)
        return _mean({seed: above[seed] / below[seed] - 1 for seed in both})

    def less(self, setting: Setting, one: str, other: str, times: float = 1.0) -> Interval:
        """One method's hops less so many times another's, seed by seed."""
        multiplied = {seed: times * hops for seed, hops in self.values("mean_hops", setting, other).items()}
        return apart(self.values("mean_hops", setting, one), multiplied)

    def grows(self, what: str, smaller: Setting, larger: Setting, method: str) -> Interval:
        """What a method has more in one setting than in another, seed by seed."""
        return apart(self.values(what, larger, method), self.values(what, smaller, method))

    def gain(self, setting: Setting, method: str) -> Interval:
        """The share of hops that assigning anew spares."""
        spared = self.over(setting, method, method, Stage.REASSIGNED, Stage.STAYED)
        return Interval(0.0 - spared.mean, spared.half)

    def bound(self, setting: Setting) -> dict[int, float]:
        """By seed the hops below which no plan can be, as far as that is proven by any method."""
        proven: dict[int, float] = {}
        for method in (RELAXED, "exact"):
            for seed, row in self.rows(setting, method).items():
                assert row.gap is not None
                proven[seed] = max(proven.get(seed, 0.0), row.mean_hops * (1 - row.gap))
        return proven

    def above_bound(self, setting: Setting, method: str) -> Interval:
        """By which share a method's hops exceed the bound."""
        bound, hops = self.bound(setting), self.values("mean_hops", setting, method)
        return _mean({seed: hops[seed] / bound[seed] - 1 for seed in bound if seed in hops and bound[seed]})

    def closed(self, setting: Setting, method: str, start: str = "wrr") -> Interval:
        """The share of the distance from another method to the bound that a method closes."""
        bound, hops, far = (
            self.bound(setting),
            self.values("mean_hops", setting, method),
            self.values("mean_hops", setting, start),
        )
        shares = {
            seed: (far[seed] - hops[seed]) / (far[seed] - bound[seed])
            for seed in bound
            if seed in hops and seed in far and far[seed] - bound[seed] > NOTHING
        }
        return _mean(shares)


def _mean(values: Mapping[int, float]) -> Interval:
    return interval(list(values.values())) if values else Interval(math.nan)
