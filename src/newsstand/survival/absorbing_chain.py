"""Absorbing Markov chains written out state by state, and solvers for their systems of linear equations.

Sourlas et al. (2011, section 4). Small chains are solved by elimination in a band, large ones by a Krylov method.
Elimination is that of Grassmann, Taksar and Heyman (1985): a state is removed from the chain, and the moves
through it become moves between the others. Diagonals are sums without cancellation, so that means have nearly full
relative precision even if a message is moved about a billion times before it is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from numba import njit
from scipy import sparse
from scipy.sparse.linalg import splu

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PRECISION = 1e-10
"""The residual at which an iterative solver ends, relative to the right-hand side."""


class Chain(Protocol):
    """An absorbing Markov chain in continuous time, seen from its transient states."""

    @property
    def entry(self) -> Floats:
        """phi: the probability that a message enters at each transient state; the rest to 1 is lost."""
        ...

    def solve(self, values: Floats, shift: float = 0.0, precision: float = PRECISION) -> Floats:
        """Return (shift I - Tr)^-1 times a column; an iterative solver ends at a relative residual."""
        ...


class SparseChain:
    """A chain given by the rates of moves between transient states and of exits from each.

    Exits are separate because they can be smaller than the rounding error of the sum of the moves.
    """

    def __init__(self, entry: Floats, moves: Any, exits: Floats) -> None:
        self.entry = entry
        self.exits = exits
        self.moves = sparse.csr_array(moves)
        self.moves.setdiag(0.0)
        self.moves.sum_duplicates()
        self.moves.eliminate_zeros()
        self._leaving = np.asarray(self.moves.sum(axis=1)).ravel() + exits
        self._factors = lru_cache(maxsize=4)(self._factorized)

    @property
    def generator(self) -> Any:
        """Tr as a sparse array."""
        return sparse.csr_array(self.moves - sparse.diags_array(self._leaving))

    def solve(self, values: Floats, shift: float = 0.0, precision: float = PRECISION) -> Floats:
        return np.asarray(self._factors(shift).solve(values))

    def _factorized(self, shift: float) -> Any:
        eliminated = eliminate(self.moves, self.exits + shift)
        return eliminated or splu(sparse.csc_array(sparse.diags_array(self._leaving + shift) - self.moves))


MOST_BAND_ENTRIES = 100_000_000
MOST_ELIMINATION_STEPS = 20e9


@dataclass(frozen=True)
class Band:
    """A chain after elimination: rates[s, below + t - s] between states s and t, in a band around the diagonal."""

    rates: Floats
    totals: Floats
    below: int
    above: int

    def solve(self, values: Floats) -> Floats:
        """Return the sum until absorption of the values of the states, each per unit of time."""
        return np.asarray(_substitute(self.rates, self.totals, values.astype(np.float64), self.below, self.above))


def eliminate(moves: Any, exits: Floats) -> Band | None:
    """Eliminate all states, the first one first; None if the moves are too far from the diagonal for that."""
    listed, size = moves.tocoo(), moves.shape[0]
    distance = listed.col.astype(np.int64) - listed.row
    below, above = int(-distance.min(initial=0)), int(distance.max(initial=0))
    if size * (below + above + 1) > MOST_BAND_ENTRIES:
        return None
    if size * (below + 1.0) * (above + 1.0) > MOST_ELIMINATION_STEPS:
        return None
    rates = np.zeros((size, below + above + 1))
    rates[listed.row, below + distance] = listed.data
    return Band(rates, _eliminate(rates, exits.copy(), below, above), below, above)


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


Linear = Callable[[Floats], Floats]

MOST_ITERATIONS = 1500


@njit(cache=True, fastmath={"reassoc", "contract"})
def dot(left: Floats, right: Floats) -> float:
    """Return the product of two columns, on this thread: threads of a library would wait for each other."""
    total = 0.0
    for place in range(left.size):
        total += left[place] * right[place]
    return total


def length_of(values: Floats) -> float:
    """Return the Euclidean norm."""
    return math.sqrt(dot(values, values))


def bicgstab(operator: Linear, improved: Linear, values: Floats, precision: float) -> Floats:
    """Solve operator(x) = values by stabilized biconjugate gradients (van der Vorst 1992).

    `improved` returns an approximate solution for a right-hand side: the preconditioner, applied from the right.
    It ends when the norm of the residual is at most `precision` times that of `values`.
    """
    target = precision * length_of(values)
    solution = improved(values)
    residual = values - operator(solution)
    shadow, direction = residual.copy(), residual.copy()
    product = dot(shadow, residual)
    for _ in range(MOST_ITERATIONS):
        if length_of(residual) <= target or product == 0.0:
            residual = values - operator(solution)
            if length_of(residual) <= target:
                return solution
            shadow, direction = residual.copy(), residual.copy()
            product = dot(shadow, residual)
        better = improved(direction)
        image = operator(better)
        length = product / dot(shadow, image)
        solution += length * better
        residual -= length * image
        if length_of(residual) <= target:
            continue
        better = improved(residual)
        change = operator(better)
        weight = dot(change, residual) / dot(change, change)
        solution += weight * better
        residual -= weight * change
        before, product = product, dot(shadow, residual)
        direction = residual + (product / before) * (length / weight) * (direction - weight * image)
    raise ArithmeticError(f"no solution after {MOST_ITERATIONS} steps")
