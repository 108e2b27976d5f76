"""Several brokers whose copies are in balance: the model that goes beyond the paper.

The paper guesses the rate at which copies of other messages push m from the number of copies that m itself has.
Here it is one number for every broker, and it is what the model itself says: every copy is a copy of some message,
and all messages are alike, so the copies that all brokers take per unit of time are those that are made of one
message in its life, times the rate of publications,

    n lambda_cp = lambda_b E[copies made of m],

which is solved for lambda_cp. One broker is described by the two-dimensional chain under all its pushes,
lambda_n + lambda_cp, in which it is also known whether m has clients; its states are put together in groups, so
few that the multisets of all brokers' groups can be listed. docs/explanations/balanced-copies.md derives it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.optimize import brentq

from newsstand.model import PriorityPolicy, RequestPolicy
from newsstand.survival.cache_states import CacheStates
from newsstand.survival.chain import Chain, Ints
from newsstand.survival.exchangeable import Exchangeable
from newsstand.survival.full_chain import full_states
from newsstand.survival.grouping import grouped, groups_of
from newsstand.survival.lumped_chain import LumpedChain, suited
from newsstand.survival.multisets import how_many
from newsstand.survival.plain_order import plain_states
from newsstand.survival.setting import Setting

MOST_STATES = {PriorityPolicy.PRIORITY: 20_000, PriorityPolicy.NONE: 60_000}
"""Of all brokers together; more make the model little more exact, and slow. Without priority all slots count."""
FEWEST_GROUPS = 4
NONE = 1e-9
"""Of the copies that were guessed at: so few are none, as where all caches are always the same."""
OFTEN = 2.0
"""Clients at a broker, from which on a cached message nearly always has some."""


def balanced_network(setting: Setting, most_states: int | None = None) -> tuple[Chain, float]:
    """The chain of all brokers, and lambda_cp, the rate of copies into one cache, with which it is in balance."""
    groups = most_groups(setting.brokers, most_states or MOST_STATES[setting.policy.priority])
    copy_rate = setting.client_rate * (setting.brokers - 1) * setting.slots / 8
    for apart, precision in ((2.0, 1e-2), (1.1, 1e-6)):  # the second time, groups are chosen where they are used
        if copy_rate == 0.0:
            break
        states = _states(setting, copy_rate)
        group = groups_of(states, setting.caching_rate + copy_rate, groups, apart=_apart(setting))
        copy_rate = _balance(setting, group, copy_rate, apart, precision)
    return suited(LumpedChain(_system(setting, copy_rate, group))), copy_rate


def most_groups(brokers: int, most_states: int) -> int:
    """How many groups a cache may have."""
    groups = FEWEST_GROUPS
    while how_many(brokers, groups + 2) <= most_states:
        groups += 1
    return groups


def _balance(setting: Setting, group: Ints, start: float, apart: float, precision: float) -> float:
    """The rate of copies that comes out if it is put in: the more copies push, the fewer are made.

    It is looked for around `start`, above and below by factors of `apart`, and not from 0 on: without copies that
    push, a message would be copied nearly for ever.
    """

    @cache
    def lacking(copy_rate: float) -> float:
        chain = LumpedChain(_system(setting, copy_rate, group))
        made = float(chain.entry @ suited(chain).solve(chain.copying))
        return setting.publish_rate * made / setting.brokers - copy_rate

    low = high = start
    while lacking(high) > 0.0:
        low, high = high, high * apart
    while lacking(low) < 0.0:
        low, high = low / apart, low
        if low < NONE * start:
            return 0.0
    return float(brentq(lacking, low, high, rtol=precision, xtol=precision * start))


def _system(setting: Setting, copy_rate: float, group: Ints) -> Exchangeable:
    states = _states(setting, copy_rate)
    cache = grouped(states, setting.caching_rate + copy_rate, group)
    size = cache.entry.size
    hit = setting.cached
    entry = hit * cache.entry
    entry[0] = 1.0 - hit
    pushed = cache.pushes - np.diag(np.diag(cache.pushes))
    flooded = setting.policy.request is RequestPolicy.FLOODED
    return Exchangeable(
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


def _apart(setting: Setting) -> bool:
    """Whether it has to be known if m has clients: if that moves it, or if copies depend on it and it is rare."""
    subscribed = setting.policy.request is RequestPolicy.SUBSCRIBED
    return setting.prioritized or (subscribed and setting.intensity < OFTEN)


def _states(setting: Setting, copy_rate: float) -> CacheStates:
    return full_states(setting, copy_rate) if setting.prioritized else plain_states(setting)
