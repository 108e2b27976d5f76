"""Absorbing Markov chains, written out state by state (Sourlas et al. 2011, section 4)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import splu

from newsstand.survival.elimination import Band, band_of, fits, solve_band

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PRECISION = 1e-10
"""Of a system of equations that is iterated: its residual, relative to its right-hand side."""


class Chain(Protocol):
    """An absorbing Markov chain in continuous time, seen from its transient states."""

    @property
    def entry(self) -> Floats:
        """phi: with which probability a message enters at each transient state; what lacks to 1 is lost."""
        ...

    def apply(self, values: Floats) -> Floats:
        """Tr times a column: how fast the expectation of `values` changes from each state."""
        ...

    def solve(self, values: Floats, shift: float = 0.0, precision: float = PRECISION) -> Floats:
        """(shift I - Tr)^-1 times a column; where it is iterated, up to a relative residual."""
        ...


class SparseChain:
    """A chain given by the rates of its moves among transient states, and of its exits from each.

    Exits are apart from the moves because they can be smaller than the rounding of the moves' sum.
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

    @classmethod
    def of_generator(cls, entry: Floats, generator: npt.NDArray[np.float64] | sparse.sparray) -> SparseChain:
        """The chain with the generator Tr on its transient states; what a row lacks to 0 is its exit."""
        rates = sparse.csr_array(generator)
        exits = np.maximum(-np.asarray(rates.sum(axis=1)).ravel(), 0.0)
        return cls(entry, rates - sparse.diags_array(rates.diagonal()), exits)

    @property
    def generator(self) -> Any:
        """Tr as a sparse array."""
        return sparse.csr_array(self.moves - sparse.diags_array(self._leaving))

    def apply(self, values: Floats) -> Floats:
        return np.asarray(self.moves @ values - self._leaving * values)

    def solve(self, values: Floats, shift: float = 0.0, precision: float = PRECISION) -> Floats:
        factors = self._factors(shift)
        if isinstance(factors, Band):
            return solve_band(factors, values)
        return np.asarray(factors.solve(values))

    def _factorized(self, shift: float) -> Any:
        if fits(self.moves):
            return band_of(self.moves, self.exits + shift)
        return splu(sparse.csc_array(sparse.diags_array(self._leaving + shift) - self.moves))
