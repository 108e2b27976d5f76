"""The chain of several brokers that copy from each other (Sourlas et al. 2011, section 6)."""

from __future__ import annotations

import numpy as np

from newsstand.model import RequestPolicy
from newsstand.survival.alive import alive_in_slot
from newsstand.survival.chain import Floats
from newsstand.survival.exchangeable import Exchangeable
from newsstand.survival.reduced_chain import client_moves
from newsstand.survival.setting import Setting


def broker_network(setting: Setting) -> Exchangeable:
    """Slots 0 (absent) … k at every broker; publications push all holders at once, copies and clients one by one.

    Corrected: a publication pushes each holder with probability 1 - pi_0 (`sel`) or 1 (`all`), independently, so
    that exactly the holders B out of A are pushed at rate lambda_b (1 - pi_0)^|B| pi_0^(|A| - |B|). Under `nop` a
    request along subscriptions reaches a holder with probability 1 - pi_0, whatever the slot.
    """
    k = setting.slots
    local = np.zeros((k + 1, k + 1))
    local[1:, 1:] = client_moves(setting)
    pushed = np.diag(np.ones(k), 1)
    pushed[0, 1] = 0.0
    pushed[k, 0] = 1.0
    hit = setting.cached
    common = hit * pushed + (1.0 - hit) * np.eye(k + 1)
    common[0, 0] = 1.0
    entry = np.zeros(k + 1)
    entry[:2] = 1.0 - hit, hit
    flooded = setting.policy.request is RequestPolicy.FLOODED
    reachable = np.concatenate([[0.0], np.ones(k) if flooded else alive_in_slot(setting)])
    return Exchangeable(
        brokers=setting.brokers,
        slots=k,
        entry=entry,
        local=local,
        pushed=pushed,
        push_rates=copy_push_rates(setting),
        common=common,
        common_rate=setting.publish_rate,
        reachable=reachable,
        copy_rate=setting.client_rate,
    )


def copy_push_rates(setting: Setting) -> Floats:
    """lambda_cp for R = 0 … n holders: the rate of copies of other messages into a cache (before Eq. 5).

    Other messages are taken to be replicated as m is: floor(k (n / R - 1)) of them are elsewhere and not here.
    Each is copied at rate lambda_c, for `sub` only if one of its R holders has a client for it.
    """
    holders = np.arange(1, setting.brokers + 1)
    elsewhere = np.floor_divide(setting.slots * (setting.brokers - holders), holders)
    found = np.ones(setting.brokers)
    if setting.policy.request is RequestPolicy.SUBSCRIBED:
        found = -np.expm1(-setting.intensity * holders)
    return np.concatenate([[0.0], elsewhere * found * setting.client_rate])
