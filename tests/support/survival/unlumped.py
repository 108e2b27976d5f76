"""The chain of several brokers as the paper has it, one dimension a broker (Sourlas et al. 2011, section 6).

It has L^n states and serves to check the lumped chain, and the few brokers for which it is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt
from scipy import sparse

from newsstand.survival.absorbing_chain import SparseChain
from newsstand.survival.lumped_chain import ExchangeableBrokers


def unlumped_chain(system: ExchangeableBrokers) -> SparseChain:
    """Sums of Kronecker products: one dimension moves, or all at a common event."""
    members, states = system.brokers, system.entry.size
    grid = np.indices((states,) * members).reshape(members, -1)
    holders = np.count_nonzero(grid, axis=0)
    push = sparse.diags_array(system.push_rates[holders])
    copying = np.zeros((states, states))
    copying[0, system.copy_to] = 1.0
    missed = np.where(grid > 0, 1.0 - system.reachable[grid], 1.0)
    copies = sparse.diags_array(system.copy_rate * (1.0 - missed.prod(axis=0)))
    rates = system.common_rate * _product([system.common] * members)
    for member in range(members):
        rates = rates + _alone(system.local, member, members)
        rates = rates + push @ _alone(system.pushed, member, members)
        rates = rates + copies @ _alone(copying, member, members)
    rates = sparse.csr_array(rates)
    exits = rates[1:, [0]].toarray().ravel()
    entry = system.entry[grid].prod(axis=0)
    return SparseChain(entry[1:], rates[1:, 1:], exits)


def _alone(matrix: npt.NDArray[np.float64], member: int, members: int) -> sparse.sparray:
    """What `matrix` does to one member, all others staying as they are."""
    same = np.eye(matrix.shape[0])
    return _product([matrix if other == member else same for other in range(members)])


def _product(matrices: Sequence[npt.NDArray[np.float64]]) -> sparse.sparray:
    return reduce(lambda left, right: sparse.csr_array(sparse.kron(left, right)), matrices[1:], matrices[0])
