"""How many messages of one cache are alive, that is have clients (Sourlas et al. 2011, section 5, Fig. 2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from newsstand.survival.setting import Setting

Floats = npt.NDArray[np.float64]


def alive_counts(setting: Setting, copy_rate: float = 0.0) -> Floats:
    """psi_0 … psi_k: the stationary distribution of the number of alive messages in a cache.

    psi_i is proportional to the product over j < i of ((k - j) lambda_c + lambda_n), over i! mu_d^i. Without
    degradation (`nop`) the number only grows, and ends at k. Copies from other caches come on top of lambda_n.
    """
    slots = setting.slots
    if setting.degradation_rate == 0.0:
        return np.asarray(np.eye(slots + 1)[slots])
    count = np.arange(slots)
    births = np.log((slots - count) * setting.client_rate + setting.caching_rate + copy_rate)
    deaths = np.log((count + 1.0) * setting.degradation_rate)
    weights = np.concatenate([[0.0], np.cumsum(births - deaths)])
    chances = np.exp(weights - weights.max())
    return np.asarray(chances / chances.sum())


def alive_in_slot(setting: Setting) -> Floats:
    """pi_alive of slots 1 … k: a message in slot i is alive if at least i messages are, for these stand in front.

    Under `nop` the order says nothing about clients, and a message in any slot is alive with probability 1 - pi_0.
    """
    if not setting.prioritized:
        return np.full(setting.slots, setting.interested)
    return np.asarray(np.cumsum(alive_counts(setting)[::-1])[::-1][1:])


def alive_in_front(setting: Setting) -> Floats:
    """E[U_i] for slots i = 1 … k: the mean number of alive messages in front of slot i, the sum going to j = k."""
    counts = alive_counts(setting)
    number = np.arange(setting.slots + 1)
    return np.asarray([float(counts @ np.minimum(number, slot - 1)) for slot in range(1, setting.slots + 1)])
