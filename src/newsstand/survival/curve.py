"""The distribution of a survival time for all times at once, from a few dozen systems of equations.

phi exp(Tr x) e (Sourlas et al. 2011, Eq. 3) is asked for at many x, of chains with up to millions of states and
rates of very different sizes. The column e is followed through powers of the resolvent (p I - Tr)^-1; on the
space that they span, Tr is a small dense matrix, whose exponential is cheap (shift-and-invert Krylov projection).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import expm

from newsstand.errors import BadOption
from newsstand.survival.chain import Chain
from newsstand.survival.krylov import dot, length_of
from newsstand.survival.setting import RATES

Floats = npt.NDArray[np.float64]

POLE = 20.0
"""In units of 1 / mean survival time; from 5 to 40 there is little difference."""
LARGEST = 150


class Care(NamedTuple):
    """How exact a distribution is made. Approximations are compared at times, each twice the one before."""

    tolerance: float
    """By how much two successive approximations may differ."""
    precision: float
    """Of each system of equations."""
    first: float
    """The first time, in units of the mean."""
    times: int
    step: int
    """Systems of equations between two approximations."""


FULL_CARE = Care(1e-9, 1e-10, 1 / 256, 14, 5)
LESS_CARE = Care(3e-7, 1e-10, 1 / 256, 14, 5)
LEAST_CARE = Care(1e-3, 1e-6, 1 / 32, 9, 3)
"""For millions of states; probabilities came out right to some 2e-4."""


def care_for(states: int) -> Care:
    """The more states, the less."""
    if states < 5_000:
        return FULL_CARE
    return LESS_CARE if states < 500_000 else LEAST_CARE


@dataclass(frozen=True)
class Curve:
    """S(x) = row exp(small x) first, where `first` is the first unit column."""

    row: Floats
    small: Floats

    def survival(self, times: Floats) -> Floats:
        """The probability of surviving x, given that the message was cached."""
        return self._row_times(self.row, times)

    def density(self, times: Floats) -> Floats:
        """Minus the derivative of it."""
        return self._row_times(-(self.row @ self.small), times)

    def at_doubling_times(self, first: float, count: int) -> Floats:
        """The survival at first, 2 first, 4 first …: one exponential, squared and squared again."""
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


def fitted_curve(chain: Chain, mean: float) -> Curve:
    """The distribution of the time to absorption of messages that were cached, whose mean is known."""
    entry = chain.entry / chain.entry.sum()
    care = care_for(entry.size)
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
            curve = Curve(row, _projected(columns, shift))
            now = curve.at_doubling_times(care.first * mean, care.times)
            if complete or (before is not None and float(np.abs(now - before).max()) < care.tolerance):
                return curve
            before = now
        basis.append(direction / rest)
    raise BadOption(f"{RATES}: at these the distribution was not found by {LARGEST} systems of equations")


def _orthogonalize(direction: Floats, basis: list[Floats]) -> Floats:
    """Take the basis out of `direction`, in place: how much of each vector it was, and how long the rest is."""
    weights = np.zeros(len(basis) + 1)
    for _ in range(2):
        for place, vector in enumerate(basis):
            share = dot(vector, direction)
            weights[place] += share
            direction -= share * vector
    weights[-1] = length_of(direction)
    return weights


def _projected(columns: list[Floats], shift: float) -> Floats:
    """shift I - H^-1, where H is what the resolvent does to the basis."""
    count = len(columns)
    small = np.zeros((count, count))
    for place, weights in enumerate(columns):
        small[: weights.size, place] = weights[:count]
    return np.asarray(shift * np.eye(count) - np.linalg.inv(small))
