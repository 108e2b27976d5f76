"""The chain of the slot alone, for one broker (Sourlas et al. 2011, section 5)."""

from __future__ import annotations

import numpy as np

from newsstand.survival.alive import alive_in_front, alive_in_slot
from newsstand.survival.chain import Floats, SparseChain
from newsstand.survival.setting import Setting


def client_moves(setting: Setting) -> Floats:
    """The moves of m from slot to slot that clients cause, as rates between slots 1 … k (Eq. 4 without t(1))."""
    k = setting.slots
    regenerate, degrade = setting.regeneration_rate, setting.degradation_rate
    alive, front = alive_in_slot(setting), alive_in_front(setting)
    rates = np.zeros((k, k))
    slot = np.arange(k)
    rates[slot[:-1], slot[1:]] += (k - 1 - slot[:-1]) * regenerate  # t(3): one from behind m goes to the top
    rates[slot, 0] += regenerate  # t(2)
    rates[slot, k - 1] += alive * degrade  # t(4)
    rates[slot[1:], slot[:-1]] += front[1:] * degrade  # t(5)
    np.fill_diagonal(rates, 0.0)
    return rates


def reduced_chain(setting: Setting) -> SparseChain:
    """Eq. 4, corrected: m enters slot 1 with probability 1 - pi_0 (`sel`) or 1 (`all`), and leaves from slot k."""
    k = setting.slots
    rates = client_moves(setting)
    rates += np.diag(np.full(k - 1, setting.caching_rate), 1)
    entry, exits = np.zeros(k), np.zeros(k)
    entry[0] = setting.cached
    exits[-1] = setting.caching_rate
    return SparseChain(entry, rates, exits)
