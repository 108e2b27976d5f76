"""The kinds of claims that the experiments of storage2011 can judge, each as data.

A number that the paper gives for all points of some figures fails if at any of them the 95 % interval lies wholly
outside what it says; that something is larger fails unless all of the interval is above zero; a trend fails if any
step of the mean goes against it. One run has no intervals, so that nothing is judged by it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from newsstand.lab.claims import Claim
from newsstand.lab.intervals import Interval
from newsstand.lab.storage2011 import Curve
from newsstand.lab.storage2011_measured import Measured
from newsstand.lab.storage2011_plans import Stage
from newsstand.lab.storage2011_workload import Setting

PROPOSED = ("srl", "wrr")
Found = Mapping[str, Interval]
"""By the name of a point."""


@dataclass(frozen=True)
class Within:
    """A share is between two bounds at every point of some figures, for each of some methods."""

    id: str
    text: str
    paper: str
    figures: tuple[int, ...]
    share: Callable[[Measured, Setting, str], Interval]
    low: float = -math.inf
    high: float = math.inf
    methods: tuple[str, ...] = PROPOSED
    where: Callable[[float], bool] = lambda _: True
    """At which values of what is varied."""
    strict: bool = False
    """All of the interval has to be within the bounds."""

    def judged(self, m: Measured) -> list[Claim]:
        """The claim with its verdict, if its figures were run."""
        found = {
            method: {
                f"{curve.name} at {x:g}": self.share(m, setting, method)
                for curve in m.experiment.of_figures(*self.figures)
                for x, setting in curve.points.items()
                if self.where(x)
            }
            for method in self.methods
        }
        every = [one for of in found.values() for one in of.values()]
        if not every:
            return []
        holds = all(self._is_within(one) for one in every)
        told = "; ".join(f"{method} {self._told(of)}" for method, of in found.items())
        return [Claim(self.id, self.text, self.paper, told, verdict(holds, every))]

    def _is_within(self, one: Interval) -> bool:
        if self.strict:
            return one.mean - one.half > self.low and one.mean + one.half < self.high
        return one.mean + one.half >= self.low and one.mean - one.half <= self.high

    def _told(self, of: Found) -> str:
        inside = sum(self._is_within(one) for one in of.values()) if _all_known(of.values()) else None
        least, most = (pick(of, key=lambda name: of[name].mean) for pick in (min, max))
        ends = f"{_percent(of[least])} (Fig. {least}) to {_percent(of[most])} (Fig. {most})"
        return ends if inside is None else f"{ends}, as said at {inside} of {len(of)} points"


@dataclass(frozen=True)
class Trend:
    """Along a figure a measurement goes one way, with every method named."""

    id: str
    text: str
    paper: str
    figure: int
    what: str
    grows: bool
    methods: tuple[str, ...]

    def judged(self, m: Measured) -> list[Claim]:
        """The claim with its verdict, if its figure was run."""
        curves = m.experiment.of_figures(self.figure)
        return [self._judged(m, curve) for curve in curves if len(curve.points) > 1]

    def _judged(self, m: Measured, curve: Curve) -> Claim:
        xs = list(curve.points)
        told, wrong, every = [], [], []
        for method in self.methods:
            first, last = (m.of(self.what, curve.points[x], method).mean for x in (xs[0], xs[-1]))
            told.append(f"{method} {first:,.4g} to {last:,.4g}")
            for a, b in itertools.pairwise(xs):
                step = m.grows(self.what, curve.points[a], curve.points[b], method)
                every.append(step)
                if (step.mean <= 0) if self.grows else (step.mean >= 0):
                    wrong.append(f"{method} from {a:g} to {b:g} ({step.told()})")
        against = f"; against it: {', '.join(wrong)}" if wrong and _all_known(every) else ""
        measured = f"{', '.join(told)}{against}"
        return Claim(self.id, self.text, self.paper, measured, verdict(not wrong, every))


def over(other: str, stage: Stage = Stage.PLANNED) -> Callable[[Measured, Setting, str], Interval]:
    """By which share a method has more hops than another, at some stage, has when it plans."""
    return lambda m, setting, method: m.over(setting, method, other, stage)


def over_replanned(m: Measured, setting: Setting, method: str) -> Interval:
    """By which share a method has more hops if it assigns anew than if it plans anew."""
    return m.over(setting, method, method, Stage.REASSIGNED)


def verdict(holds: bool, intervals: Sequence[Interval]) -> bool | None:
    """A verdict that rests on intervals: there is none without them."""
    return holds if _all_known(intervals) else None


def _all_known(intervals: Iterable[Interval]) -> bool:
    return all(one.is_known for one in intervals)


def _percent(one: Interval) -> str:
    if math.isinf(one.mean):
        return "without limit"
    return f"{one.told(100, 1)} %"
