"""Systems of equations of absorbing chains, solved without a subtraction.

Elimination in the way of Grassmann, Taksar and Heyman (1985): a state is taken out of the chain, and the moves
through it become moves between the others. Diagonals are sums of what remains, so nothing cancels, and means come
out with nearly full relative precision even where a message is moved about a billion times before it is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Floats = npt.NDArray[np.float64]

MOST_NUMBERS = 100_000_000
MOST_STEPS = 20e9


@dataclass(frozen=True)
class Band:
    """A chain after elimination: rates[s, below + t - s] between states s and t, in a band around the diagonal."""

    rates: Floats
    totals: Floats
    below: int
    above: int


def fits(moves: Any) -> bool:
    """Whether the moves stay so near to the diagonal that elimination is affordable."""
    below, above = _widths(moves)
    size = moves.shape[0]
    return bool(size * (below + above + 1) <= MOST_NUMBERS and size * (below + 1.0) * (above + 1.0) <= MOST_STEPS)


def band_of(moves: Any, exits: Floats) -> Band:
    """Eliminate all states, the first one first."""
    below, above = _widths(moves)
    listed = moves.tocoo()
    rates = np.zeros((moves.shape[0], below + above + 1))
    rates[listed.row, below + listed.col - listed.row] = listed.data
    return Band(rates, _eliminate(rates, exits.copy(), below, above), below, above)


def solve_band(band: Band, values: Floats) -> Floats:
    """What is collected until absorption when a state yields its value per unit of time."""
    return np.asarray(_substitute(band.rates, band.totals, values.astype(np.float64), band.below, band.above))


def _widths(moves: Any) -> tuple[int, int]:
    listed = moves.tocoo()
    if listed.nnz == 0:
        return 0, 0
    distance = listed.col.astype(np.int64) - listed.row
    return max(0, int(-distance.min())), max(0, int(distance.max()))


@njit(cache=True)
def _eliminate(rates: Floats, exits: Floats, below: int, above: int) -> Floats:
    size = rates.shape[0]
    totals = np.empty(size)
    for out in range(size):
        last = min(size - 1, out + above)
        total = exits[out]
        for target in range(out + 1, last + 1):
            total += rates[out, below + target - out]
        totals[out] = total
        for source in range(out + 1, min(size - 1, out + below) + 1):
            rate = rates[source, below + out - source]
            if rate == 0.0:
                continue
            share = rate / total
            rates[source, below + out - source] = share
            exits[source] += share * exits[out]
            here = below - source
            there = below - out
            for target in range(out + 1, last + 1):
                rates[source, here + target] += share * rates[out, there + target]
    return totals


@njit(cache=True)
def _substitute(rates: Floats, totals: Floats, values: Floats, below: int, above: int) -> Floats:
    size = rates.shape[0]
    for out in range(size):
        for source in range(out + 1, min(size - 1, out + below) + 1):
            values[source] += rates[source, below + out - source] * values[out]
    for state in range(size - 1, -1, -1):
        value = values[state]
        for target in range(state + 1, min(size - 1, state + above) + 1):
            value += rates[state, below + target - state] * values[target]
        values[state] = value / totals[state]
    return values
