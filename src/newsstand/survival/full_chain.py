"""The two-dimensional chain of one broker: alive messages and the slot of m (Sourlas et al. 2011, section 4)."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from newsstand.survival.alive import alive_counts
from newsstand.survival.cache_states import GONE, CacheStates
from newsstand.survival.chain import Floats, SparseChain
from newsstand.survival.setting import Setting


def full_chain(setting: Setting) -> SparseChain:
    """Eq. 2, corrected; all states without m are one, the absorbing state."""
    return full_states(setting).chain(setting.caching_rate, setting.cached)


def full_states(setting: Setting, copy_rate: float = 0.0) -> CacheStates:
    """State (i, j): i of k messages alive and m in slot j; m is alive if j <= i.

    The rates of degradations of others, t(7), hold from i = 1 and j = 1 on, so that all degradations together
    happen at rate i mu_d. A push, t(1), is by a new message, which has clients.
    """
    k = setting.slots
    regenerate, degrade = setting.regeneration_rate, setting.degradation_rate
    alive, slot = (grid.ravel() for grid in np.meshgrid(np.arange(k + 1), np.arange(1, k + 1), indexing="ij"))
    more = np.minimum(alive + 1, k)
    below, dead = slot < k, alive < slot
    moves = [
        (more, slot + 1, below * np.minimum(k - alive, k - slot) * regenerate),  # t(5)
        (alive, slot + 1, below * np.maximum(0, alive - slot) * regenerate),  # t(4)
        (alive, np.ones_like(slot), ~dead * regenerate),  # t(2)
        (more, np.ones_like(slot), dead * regenerate),  # t(3)
        (more, slot, dead * (slot - alive - 1) * regenerate),  # t(5)
        (alive - 1, np.full_like(slot, k), ~dead * degrade),  # t(6)
        (alive - 1, slot - 1, np.minimum(alive, slot - 1) * degrade),  # t(7)
        (alive - 1, slot, np.maximum(0, alive - slot) * degrade),  # t(7)
    ]
    here = np.arange(alive.size)
    rows, columns, rates = [], [], []
    for alive_then, slot_then, rate in moves:
        happens = rate > 0.0
        rows.append(here[happens])
        columns.append((alive_then * k + slot_then - 1)[happens])
        rates.append(np.asarray(rate, dtype=np.float64)[happens])
    where = (np.concatenate(rows), np.concatenate(columns))
    return CacheStates(
        slot,
        ~dead,
        sparse.csr_array((np.concatenate(rates), where), shape=(alive.size, alive.size)),
        np.where(below, more * k + slot, GONE),
        _entry(setting, copy_rate),
    )


def _entry(setting: Setting, copy_rate: float) -> Floats:
    """m enters slot 1 alive and meets the other messages as they are: min(N + 1, k) are alive, N ~ psi."""
    k = setting.slots
    counts = alive_counts(setting, copy_rate)
    entry = np.zeros((k + 1, k))
    entry[1:, 0] = counts[:k]
    entry[k, 0] += counts[k]
    return np.asarray(entry.ravel())
