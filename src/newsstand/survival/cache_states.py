"""What one broker does with a message m that it has cached: states, moves, and what a push does in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from newsstand.survival.chain import Floats, Ints, SparseChain

GONE = -1
"""Where a push leads to from the last slot."""


@dataclass(frozen=True)
class CacheStates:
    """m in one cache, of whose other messages as much is known as the states tell."""

    slot: Ints
    """1 … k, for each state."""
    alive: npt.NDArray[np.bool_]
    """Whether m has clients, for each state."""
    moves: Any
    """Sparse: the rates of all moves that clients cause."""
    pushed_to: Ints
    """The state after a push, or GONE."""
    entry: Floats
    """The state in which m is when it has just been cached."""

    @property
    def pushes(self) -> Any:
        """Sparse: what a push does, as a matrix of zeros and ones; a row from which m is gone is empty."""
        stays = np.flatnonzero(self.pushed_to != GONE)
        where = (stays, self.pushed_to[stays])
        size = self.entry.size
        return sparse.csr_array((np.ones(stays.size), where), shape=(size, size))

    def chain(self, push_rate: float, cached: float = 1.0) -> SparseChain:
        """How m leaves the cache if pushes come at this rate; it enters at all with probability `cached`."""
        exits = np.where(self.pushed_to == GONE, push_rate, 0.0)
        return SparseChain(cached * self.entry, self.moves + push_rate * self.pushes, exits)
