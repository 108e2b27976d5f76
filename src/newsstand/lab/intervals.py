"""Means over seeds, and how certain they are: 95 % intervals by Student's t distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

NORMAL = 1.959964
"""Of the normal distribution 2.5 % lie above."""
STUDENT = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157)
"""The same for Student's t distribution with 1, 2, ... degrees of freedom."""


@dataclass(frozen=True)
class Interval:
    """A mean over the seeds and the half width of its 95 % interval: not a number if there is one seed only."""

    mean: float
    half: float = math.nan

    @property
    def is_known(self) -> bool:
        """Whether there is an interval: a single run tells nothing about how runs differ."""
        return not math.isnan(self.half)

    @property
    def is_above(self) -> bool:
        """Whether all of it is above zero."""
        return self.mean - self.half > 0

    @property
    def is_below(self) -> bool:
        return self.mean + self.half < 0

    def told(self, factor: float = 1, digits: int = 2, sign: str = "+") -> str:
        """For people, in other units."""
        half = f" ± {factor * self.half:.{digits}f}" if self.is_known else ""
        return f"{factor * self.mean:{sign}.{digits}f}{half}"


def interval(values: Sequence[float]) -> Interval:
    """The 95 % interval of a mean."""
    if len(values) < 2:
        return Interval(fmean(values))
    return Interval(fmean(values), student(len(values) - 1) * stdev(values) / math.sqrt(len(values)))


def student(freedom: int) -> float:
    """What 2.5 % of Student's t distribution lie above."""
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    z = NORMAL  # the expansion of Cornish and Fisher, from here on right to three decimals
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def apart(one: Mapping[int, float], other: Mapping[int, float]) -> Interval:
    """One's values less another's, seed by seed, over the seeds that both have; not a number if there are none."""
    differences = [one[seed] - other[seed] for seed in one if seed in other]
    return interval(differences) if differences else Interval(math.nan)
