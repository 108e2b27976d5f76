"""Means over seeds, and how certain they are: 95 % intervals by Student's t distribution."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import stdtrit


@dataclass(frozen=True)
class Interval:
    """A mean over the seeds and the half width of its 95 % interval; NaN if there is one seed only."""

    mean: float
    half: float = math.nan

    @property
    def is_known(self) -> bool:
        """Whether there is an interval; a single run has none."""
        return not math.isnan(self.half)

    @property
    def is_above(self) -> bool:
        """Whether all of it is above zero."""
        return self.mean - self.half > 0

    @property
    def is_below(self) -> bool:
        return self.mean + self.half < 0

    def is_inside(self, low: float, high: float) -> bool:
        """Return whether all of it is between two bounds."""
        return low < self.mean - self.half and self.mean + self.half < high

    def overlaps(self, low: float, high: float) -> bool:
        """Return whether any of it is between two bounds."""
        return self.mean + self.half >= low and self.mean - self.half <= high

    def text(self, factor: float = 1, digits: int = 2, sign: str = "+") -> str:
        """Return a text for people, in other units."""
        half = f" ± {factor * self.half:.{digits}f}" if self.is_known else ""
        return f"{factor * self.mean:{sign}.{digits}f}{half}"


def interval(values: Sequence[float]) -> Interval:
    """Return the 95 % interval of a mean."""
    if len(values) < 2:
        return Interval(fmean(values))
    quantile = float(stdtrit(len(values) - 1, 0.975))
    return Interval(fmean(values), quantile * stdev(values) / math.sqrt(len(values)))


class Sample(dict[int, float]):
    """A measurement by seed. Arithmetic goes seed by seed, over the seeds that both sides have.

    >>> hops, miles = Sample({1: 3.0, 2: 5.0}), Sample({1: 2.0, 2: 4.0, 3: 6.0})
    >>> hops - miles, hops / miles - 1
    ({1: 1.0, 2: 1.0}, {1: 0.5, 2: 0.25})
    """

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample:
        """Return the sample of values that are numbered from 0."""
        return cls(enumerate(values))

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the mean; not a number if the sample is empty."""
        return interval([*self.values()]) if self else Interval(math.nan)

    @property
    def mean(self) -> float:
        return self.interval.mean

    def __add__(self, other: Mapping[int, float] | float) -> Sample:
        return self._by_seed(operator.add, other)

    def __sub__(self, other: Mapping[int, float] | float) -> Sample:
        return self._by_seed(operator.sub, other)

    def __truediv__(self, other: Mapping[int, float] | float) -> Sample:
        return self._by_seed(operator.truediv, other)

    def __mul__(self, factor: float) -> Sample:
        return self._by_seed(operator.mul, factor)

    def __abs__(self) -> Sample:
        return Sample({seed: abs(one) for seed, one in self.items()})

    def __rsub__(self, one: float) -> Sample:
        return Sample({seed: one - other for seed, other in self.items()})

    def __rtruediv__(self, one: float) -> Sample:
        return Sample({seed: one / other for seed, other in self.items()})

    def _by_seed(self, operation: Callable[[float, float], float], other: Mapping[int, float] | float) -> Sample:
        others = other if isinstance(other, Mapping) else dict.fromkeys(self, other)
        return Sample({seed: operation(one, others[seed]) for seed, one in self.items() if seed in others})
