"""One cache without priority: the slot of m, and whether it has clients (Sourlas et al. 2011, policy `nop`)."""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse

from newsstand.survival.cache_states import GONE, CacheStates
from newsstand.survival.setting import Setting


def plain_states(setting: Setting) -> CacheStates:
    """States 0 … k - 1: m in slots 1 … k with clients; k … 2k - 1: without. Clients move nothing.

    m loses its last client at rate lambda_c / (e^rho - 1), as a mean over the time that it has any.
    """
    k = setting.slots
    place = np.arange(k)
    slot = np.concatenate([place, place]) + 1
    empties = setting.client_rate / math.expm1(setting.intensity)
    moves = np.concatenate([np.full(k, empties), np.full(k, setting.client_rate)])
    where = (np.arange(2 * k), np.concatenate([place + k, place]))
    entry = np.zeros(2 * k)
    entry[0] = 1.0 if setting.selective else setting.interested
    entry[k] = 1.0 - entry[0]
    return CacheStates(
        slot,
        np.arange(2 * k) < k,
        sparse.csr_array((moves, where), shape=(2 * k, 2 * k)),
        np.where(slot < k, np.arange(2 * k) + 1, GONE),
        entry,
    )
