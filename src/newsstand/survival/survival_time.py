"""The distribution of the time that a published message survives (Sourlas et al. 2011, section 3 and Eq. 3).

phi exp(Tr x) e (Eq. 3) is needed at many x, for chains with up to millions of states and very different rates.
Powers of the resolvent (p I - Tr)^-1 are applied to the column e. On the space that they span, Tr is a small dense
matrix with a cheap exponential (shift-and-invert Krylov projection).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import expm
from scipy.optimize import brentq

from newsstand.errors import BadOption
from newsstand.survival.absorbing_chain import Chain, Floats, dot, length_of
from newsstand.survival.setting import RATES

POLE = 20.0
"""In units of 1 / mean survival time; from 5 to 40 there is little difference."""
LARGEST = 150


class Accuracy(NamedTuple):
    """The accuracy of a distribution. Approximations are compared at times, each twice the one before."""

    tolerance: float
    """The largest difference of two successive approximations."""
    precision: float
    """The precision of each system of equations."""
    first: float
    """The first time, in units of the mean."""
    times: int
    step: int
    """Systems of equations between two approximations."""


HIGH_ACCURACY = Accuracy(1e-9, 1e-10, 1 / 256, 14, 5)
MEDIUM_ACCURACY = Accuracy(3e-7, 1e-10, 1 / 256, 14, 5)
LOW_ACCURACY = Accuracy(1e-3, 1e-6, 1 / 32, 9, 3)
"""For millions of states; the error of probabilities was about 2e-4."""


def accuracy_for(states: int) -> Accuracy:
    """Return the accuracy for a number of states, lower for more states."""
    if states < 5_000:
        return HIGH_ACCURACY
    return MEDIUM_ACCURACY if states < 500_000 else LOW_ACCURACY


@dataclass(frozen=True)
class SurvivalDistribution:
    """S(x) = row exp(small x) first, where `first` is the first unit column."""

    row: Floats
    small: Floats

    def survival(self, times: Floats) -> Floats:
        """Return the probability of surviving x, given that the message was cached."""
        return self._row_times(self.row, times)

    def density(self, times: Floats) -> Floats:
        """Return minus the derivative of the survival probability."""
        return self._row_times(-(self.row @ self.small), times)

    def at_doubling_times(self, first: float, count: int) -> Floats:
        """Return the survival at first, 2 first, 4 first …, by repeated squares of one exponential."""
        grown = expm(first * self.small)
        values = []
        for _ in range(count):
            values.append(float(self.row @ grown[:, 0]))
            grown = grown @ grown
        return np.array(values)

    def _row_times(self, row: Floats, times: Floats) -> Floats:
        flat = np.asarray(times, dtype=np.float64).reshape(-1)
        grown = expm(flat[:, None, None] * self.small)[:, :, 0] if flat.size else np.zeros((0, row.size))
        return np.asarray((grown @ row).reshape(np.shape(times)))


def fitted_curve(chain: Chain, mean: float) -> SurvivalDistribution:
    """Return the distribution of the time to absorption of cached messages, given its mean."""
    entry = chain.entry / chain.entry.sum()
    care = accuracy_for(entry.size)
    shift = POLE / mean
    start = np.ones_like(entry)
    length = length_of(start)
    basis = [start / length]
    columns: list[Floats] = []
    before: Floats | None = None
    while len(columns) < LARGEST:
        direction = chain.solve(basis[-1], shift, care.precision)
        size = length_of(direction)
        columns.append(_orthogonalize(direction, basis))
        rest = float(columns[-1][-1])
        complete = rest <= 1e-13 * size or len(columns) == entry.size
        if complete or len(columns) % care.step == 0:
            row = np.array([dot(entry, vector) for vector in basis]) * length
            curve = SurvivalDistribution(row, _projected(columns, shift))
            now = curve.at_doubling_times(care.first * mean, care.times)
            if complete or (before is not None and float(np.abs(now - before).max()) < care.tolerance):
                return curve
            before = now
        basis.append(direction / rest)
    raise BadOption(f"at these the distribution was not found by {LARGEST} systems of equations", **RATES)


def _orthogonalize(direction: Floats, basis: list[Floats]) -> Floats:
    """Remove the basis from `direction`, in place; return the share of each vector and the norm of the rest."""
    weights = np.zeros(len(basis) + 1)
    for _ in range(2):
        for place, vector in enumerate(basis):
            share = dot(vector, direction)
            weights[place] += share
            direction -= share * vector
    weights[-1] = length_of(direction)
    return weights


def _projected(columns: list[Floats], shift: float) -> Floats:
    """Return shift I - H^-1, where H is the resolvent on the basis."""
    count = len(columns)
    small = np.zeros((count, count))
    for place, weights in enumerate(columns):
        small[: weights.size, place] = weights[:count]
    return np.asarray(shift * np.eye(count) - np.linalg.inv(small))


LONGEST = 2.0**60
"""The largest quantile, in units of the mean."""


class SurvivalTime:
    """The survival time of a published message; 0 for a lost one, which no broker caches.

    Everything is computed on demand: the mean takes one system of equations, the deviation a second one, and the
    distribution a few dozen more, once for all arguments.
    """

    def __init__(self, chain: Chain, p_loss: float | None = None) -> None:
        self._chain = chain
        self.p_loss = max(0.0, 1.0 - float(chain.entry.sum())) if p_loss is None else p_loss
        """P_loss: the probability that no broker caches the message."""

    @cached_property
    def _means(self) -> Floats:
        return self._chain.solve(np.ones_like(self._chain.entry))

    @cached_property
    def mst(self) -> float:
        """MST = -phi Tr^-1 e: the mean survival time, to which lost messages contribute 0 (Eq. 3)."""
        return float(self._chain.entry @ self._means)

    @property
    def mean_cached(self) -> float:
        """The mean survival time of messages that were cached at all."""
        return self.mst / self._caught

    @cached_property
    def sd(self) -> float:
        """The standard deviation of the survival time of messages that were cached at all."""
        second = 2.0 * float(self._chain.entry @ self._chain.solve(self._means)) / self._caught
        return float(np.sqrt(max(0.0, second - self.mean_cached**2)))

    def below(self, x: npt.ArrayLike) -> Floats:
        """P(T < x), lost messages included, for each x."""
        times = np.asarray(x, dtype=np.float64)
        chance = 1.0 - self._curve.survival(np.maximum(times, 0.0)) * self._caught
        return np.where(times > 0.0, np.clip(chance, self.p_loss, 1.0), 0.0)

    def density(self, x: npt.ArrayLike) -> Floats:
        """Return the density of T for x > 0, whose integral is 1 - P_loss."""
        times = np.asarray(x, dtype=np.float64)
        dense = self._curve.density(np.maximum(times, 0.0)) * self._caught
        return np.where(times >= 0.0, np.maximum(dense, 0.0), 0.0)

    def quantile(self, p: float) -> float:
        """Return the time that a message that was cached outlives with probability 1 - p."""
        if not 0.0 <= p < 1.0:
            raise ValueError(f"{p}: the probability of a quantile must be at least 0 and below 1")
        if p == 0.0:
            return 0.0
        far = self.mean_cached
        while self._lacking(far, p) < 0.0:
            far *= 2.0
            if far > LONGEST * self.mean_cached:
                raise BadOption(f"at these the quantile {p} is beyond the precision of the distribution", **RATES)
        return float(brentq(self._lacking, 0.0, far, args=(p,), xtol=1e-12 * far, rtol=1e-12))

    def _lacking(self, x: float, p: float) -> float:
        return 1.0 - p - float(self._curve.survival(np.asarray(x)))

    @property
    def _caught(self) -> float:
        return float(self._chain.entry.sum())

    @cached_property
    def _curve(self) -> SurvivalDistribution:
        return fitted_curve(self._chain, self.mean_cached)
