"""The distribution of a survival time for all times at once, from a few dozen systems of equations.

phi exp(Tr x) e (Sourlas et al. 2011, Eq. 3) is asked for at many x, of chains with up to millions of states and
rates of very different sizes. The column e is followed through the resolvents (p I - Tr)^-1 at a few poles p; on the
space that they span, Tr is a small dense matrix, whose exponential is cheap (rational Krylov projection, Ruhe 1984).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

import numpy as np
import numpy.typing as npt
from scipy.linalg import expm

from newsstand.survival.chain import Chain

Floats = npt.NDArray[np.float64]

POLES = (3.0, 30.0)
"""In units of 1 / mean survival time: one for the bulk of the distribution, one for its beginning."""
PROBES = np.geomspace(0.003, 30.0, 40)
"""Where successive approximations are compared, in units of the mean."""
TOLERANCE = 1e-9
LARGEST = 150
STEP = 5


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

    def _row_times(self, row: Floats, times: Floats) -> Floats:
        flat = np.asarray(times, dtype=np.float64).reshape(-1)
        grown = expm(flat[:, None, None] * self.small)[:, :, 0] if flat.size else np.zeros((0, row.size))
        return np.asarray((grown @ row).reshape(np.shape(times)))


def fitted_curve(chain: Chain, mean: float, tolerance: float = TOLERANCE) -> Curve:
    """The distribution of the time to absorption of messages that were cached, whose mean is known."""
    entry = chain.entry / chain.entry.sum()
    start = np.ones_like(entry)
    length = float(np.linalg.norm(start))
    basis = [start / length]
    columns: list[Floats] = []
    used: list[float] = []
    best: Curve | None = None
    before: Floats | None = None
    for pole in cycle(POLES):
        shift = pole / mean
        direction = chain.solve(basis[-1], shift)
        size = float(np.linalg.norm(direction))
        weights = np.zeros(len(basis) + 1)
        for _ in range(2):
            for place, vector in enumerate(basis):
                share = float(vector @ direction)
                weights[place] += share
                direction -= share * vector
        weights[-1] = float(np.linalg.norm(direction))
        columns.append(weights)
        used.append(shift)
        complete = weights[-1] <= 1e-13 * size or len(columns) == entry.size
        if complete or len(columns) % STEP == 0:
            best = _projected(np.array([entry @ vector for vector in basis]) * length, columns, used)
            now = best.survival(PROBES * mean)
            if complete or (before is not None and float(np.abs(now - before).max()) < tolerance):
                return best
            before = now
        if len(columns) == LARGEST:
            raise ArithmeticError(f"no distribution after {LARGEST} systems of equations")
        basis.append(direction / weights[-1])
    raise AssertionError


def _projected(row: Floats, columns: list[Floats], used: list[float]) -> Curve:
    """Tr V H = V (H D - 1), of which the last row is left out; D holds the poles."""
    count = len(columns)
    square = np.zeros((count, count))
    for place, weights in enumerate(columns):
        square[: min(count, weights.size), place] = weights[:count]
    right = square * np.array(used) - np.eye(count)
    return Curve(row, np.asarray(np.linalg.solve(square.T, right.T).T))
