"""Chains of several brokers that copy from each other: the paper's, and one with a balance of copies.

Sourlas et al. (2011, section 6) estimate the rate at which copies of other messages push m from the number of
copies of m itself. In the balanced model, which goes beyond the paper, it is one number for every broker and
follows from the model: every copy is a copy of some message, and all messages are equal, so the copies that all
brokers make per unit of time are the copies made of one message in its life, times the rate of publications,

    n lambda_cp = lambda_b E[copies made of m],

which is solved for lambda_cp. One broker is described by the two-dimensional chain with all its pushes,
lambda_n + lambda_cp, which includes whether m has clients. Its states are aggregated into groups, few enough to
list the multisets of the groups of all brokers. docs/explanations/balanced-copies.md derives the model.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.optimize import brentq

from newsstand.model import PriorityPolicy, RequestPolicy
from newsstand.survival.absorbing_chain import Chain, Floats, Ints
from newsstand.survival.lumped_chain import ExchangeableBrokers, LumpedChain, compact_form
from newsstand.survival.lumped_kernels import multiset_count
from newsstand.survival.one_broker import (
    CacheStates,
    aggregate,
    alive_in_slot,
    choose_groups,
    client_moves,
    fifo_states,
    full_states,
)
from newsstand.survival.setting import SurvivalSetting


def broker_network(setting: SurvivalSetting) -> ExchangeableBrokers:
    """Return the paper's system with slots 0 (absent) … k at every broker.

    Publications push all holders at once; copies and clients move them one by one.

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
    return ExchangeableBrokers(
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


def copy_push_rates(setting: SurvivalSetting) -> Floats:
    """Return lambda_cp for R = 0 … n holders: the rate of copies of other messages into a cache (before Eq. 5).

    Other messages are assumed to be replicated as m is: floor(k (n / R - 1)) of them are elsewhere and not here.
    Each is copied at rate lambda_c, for `sub` only if one of its R holders has a client for it.
    """
    holders = np.arange(1, setting.brokers + 1)
    elsewhere = np.floor_divide(setting.slots * (setting.brokers - holders), holders)
    found = np.ones(setting.brokers)
    if setting.policy.request is RequestPolicy.SUBSCRIBED:
        found = -np.expm1(-setting.intensity * holders)
    return np.concatenate([[0.0], elsewhere * found * setting.client_rate])


MOST_STATES = {PriorityPolicy.PRIORITY: 20_000, PriorityPolicy.NONE: 60_000}
"""States of all brokers together; more would be slow and little more exact. Without priority all slots count."""
FEWEST_GROUPS = 4
NONE = 1e-9
"""The ratio to the first estimate below which the rate of copies is 0, as where all caches are always equal."""
OFTEN = 2.0
"""The number of clients at a broker above which a cached message nearly always has some."""


def balanced_network(setting: SurvivalSetting, most_states: int | None = None) -> tuple[Chain, float]:
    """Return the chain of all brokers, and the balanced rate of copies lambda_cp."""
    groups = most_groups(setting.brokers, most_states or MOST_STATES[setting.policy.priority])
    copy_rate = setting.client_rate * (setting.brokers - 1) * setting.slots / 8
    for apart, precision in ((2.0, 1e-2), (1.1, 1e-6)):  # the second time, groups are chosen where they are used
        if copy_rate == 0.0:
            break
        states = _states(setting, copy_rate)
        group = choose_groups(states, setting.caching_rate + copy_rate, groups, apart=_apart(setting))
        copy_rate = _balance(setting, group, copy_rate, apart, precision)
    return compact_form(LumpedChain(_system(setting, copy_rate, group))), copy_rate


def most_groups(brokers: int, most_states: int) -> int:
    """Return the largest number of groups of a cache."""
    groups = FEWEST_GROUPS
    while multiset_count(brokers, groups + 2) <= most_states:
        groups += 1
    return groups


def _balance(setting: SurvivalSetting, group: Ints, start: float, apart: float, precision: float) -> float:
    """Return the rate of copies that is a fixed point: the more copies push, the fewer are made.

    The search begins at `start` and moves by factors of `apart`, not from 0: without copies that push, a message
    would be copied without end.
    """

    @cache
    def lacking(copy_rate: float) -> float:
        chain = LumpedChain(_system(setting, copy_rate, group))
        made = float(chain.entry @ compact_form(chain).solve(chain.copying))
        return setting.publish_rate * made / setting.brokers - copy_rate

    low = high = start
    while lacking(high) > 0.0:
        low, high = high, high * apart
    while lacking(low) < 0.0:
        low, high = low / apart, low
        if low < NONE * start:
            return 0.0
    return float(brentq(lacking, low, high, rtol=precision, xtol=precision * start))


def _system(setting: SurvivalSetting, copy_rate: float, group: Ints) -> ExchangeableBrokers:
    states = _states(setting, copy_rate)
    cache = aggregate(states, setting.caching_rate + copy_rate, group)
    size = cache.entry.size
    hit = setting.cached
    entry = hit * cache.entry
    entry[0] = 1.0 - hit
    pushed = cache.pushes - np.diag(np.diag(cache.pushes))
    flooded = setting.policy.request is RequestPolicy.FLOODED
    return ExchangeableBrokers(
        brokers=setting.brokers,
        slots=setting.slots,
        entry=entry,
        local=cache.moves + copy_rate * pushed,
        pushed=np.zeros((size, size)),
        push_rates=np.zeros(setting.brokers + 1),
        common=hit * cache.pushes + (1.0 - hit) * np.eye(size),
        common_rate=setting.publish_rate,
        reachable=np.concatenate([[0.0], np.ones(size - 1)]) if flooded else cache.alive,
        copy_rate=setting.client_rate,
    )


def _apart(setting: SurvivalSetting) -> bool:
    """Return whether states tell if m has clients: they move m, or copies depend on them and they are rare."""
    subscribed = setting.policy.request is RequestPolicy.SUBSCRIBED
    return setting.prioritized or (subscribed and setting.intensity < OFTEN)


def _states(setting: SurvivalSetting, copy_rate: float) -> CacheStates:
    return full_states(setting, copy_rate) if setting.prioritized else fifo_states(setting)
