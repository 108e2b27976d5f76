"""Markov chains of a message m in the cache of one broker (Sourlas et al. 2011, sections 4 and 5).

The states of a cache can be aggregated into a few groups without a change of the mean time that m is cached.
Within a group, states are assumed to be occupied in the proportions in which m occupies them on its way through
one cache. Groups are then occupied as long, and left as often, as their states: means for one cache do not depend
on the number of groups. The variance does, so states with a similar remaining time of m are grouped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import splu

from newsstand.survival.absorbing_chain import Floats, Ints, SparseChain
from newsstand.survival.setting import SurvivalSetting

GONE = -1
"""The target of a push from the last slot."""


@dataclass(frozen=True)
class CacheStates:
    """The states of m in one cache, some of which also describe the other messages."""

    slot: Ints
    """1 … k, for each state."""
    alive: npt.NDArray[np.bool_]
    """Whether m has clients, for each state."""
    moves: Any
    """The rates of all moves that clients cause, sparse."""
    pushed_to: Ints
    """The state after a push, or GONE."""
    entry: Floats
    """The probability of each state when m has just been cached."""

    @property
    def pushes(self) -> Any:
        """The moves of a push as a sparse matrix of zeros and ones; rows from which m is dropped are empty."""
        stays = np.flatnonzero(self.pushed_to != GONE)
        where = (stays, self.pushed_to[stays])
        size = self.entry.size
        return sparse.csr_array((np.ones(stays.size), where), shape=(size, size))

    def chain(self, push_rate: float, cached: float = 1.0) -> SparseChain:
        """Return the chain of m with pushes at this rate; m enters with probability `cached`."""
        exits = np.where(self.pushed_to == GONE, push_rate, 0.0)
        return SparseChain(cached * self.entry, self.moves + push_rate * self.pushes, exits)


def alive_counts(setting: SurvivalSetting, copy_rate: float = 0.0) -> Floats:
    """Return psi_0 … psi_k, the stationary distribution of the number of alive messages in a cache.

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


def alive_in_slot(setting: SurvivalSetting) -> Floats:
    """Return pi_alive of slots 1 … k: a message in slot i is alive if at least i messages are, which are in front.

    Under `nop` the order says nothing about clients, and a message in any slot is alive with probability 1 - pi_0.
    """
    if not setting.prioritized:
        return np.full(setting.slots, setting.interested)
    return np.asarray(np.cumsum(alive_counts(setting)[::-1])[::-1][1:])


def alive_in_front(setting: SurvivalSetting) -> Floats:
    """Return E[U_i] for slots i = 1 … k: the mean number of alive messages in front of slot i, summed to j = k."""
    counts = alive_counts(setting)
    number = np.arange(setting.slots + 1)
    return np.asarray([float(counts @ np.minimum(number, slot - 1)) for slot in range(1, setting.slots + 1)])


def fifo_states(setting: SurvivalSetting) -> CacheStates:
    """Return states 0 … k - 1 for m in slots 1 … k with clients, and k … 2k - 1 without; clients do not move m.

    m loses its last client at rate lambda_c / (e^rho - 1), the mean over the time that it has any.
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


def full_chain(setting: SurvivalSetting) -> SparseChain:
    """Return the chain of Eq. 2, corrected; all states without m are one, the absorbing state."""
    return full_states(setting).chain(setting.caching_rate, setting.cached)


def full_states(setting: SurvivalSetting, copy_rate: float = 0.0) -> CacheStates:
    """Return the states (i, j): i of k messages alive and m in slot j; m is alive if j <= i.

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
    # m enters slot 1 alive, and of the other messages N ~ psi are: min(N + 1, k) are alive then.
    counts = alive_counts(setting, copy_rate)
    entry = np.zeros((k + 1, k))
    entry[1:, 0] = counts[:k]
    entry[k, 0] += counts[k]
    return CacheStates(
        slot,
        ~dead,
        sparse.csr_array((np.concatenate(rates), where), shape=(alive.size, alive.size)),
        np.where(below, more * k + slot, GONE),
        entry.ravel(),
    )


def client_moves(setting: SurvivalSetting) -> Floats:
    """Return the rates of the moves of m between slots 1 … k that clients cause (Eq. 4 without t(1))."""
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


def reduced_chain(setting: SurvivalSetting) -> SparseChain:
    """Return Eq. 4, corrected: m enters slot 1 with probability 1 - pi_0 (`sel`) or 1 (`all`), leaves slot k."""
    k = setting.slots
    rates = client_moves(setting)
    rates += np.diag(np.full(k - 1, setting.caching_rate), 1)
    entry, exits = np.zeros(k), np.zeros(k)
    entry[0] = setting.cached
    exits[-1] = setting.caching_rate
    return SparseChain(entry, rates, exits)


NEGLIGIBLE = 1e-13
"""The share of the time in a cache below which a state has no group of its own."""


@dataclass(frozen=True)
class StateGroups:
    """Groups of states. Group 0 is the absence of m, and copies enter group 1."""

    moves: Floats
    """Rates between groups that clients cause; the diagonal is empty."""
    pushes: Floats
    """The moves of a push, as a stochastic matrix."""
    alive: Floats
    """The probability that m has clients in each group."""
    entry: Floats
    """The probability of each group when m has just been cached."""


def choose_groups(states: CacheStates, push_rate: float, most: int, *, apart: bool) -> Ints:
    """Return the group of each state, 1 … `most`: neighbouring slots, if `apart` all with clients or all without.

    The top slot is a group of its own. Two neighbours at a time are merged: those that add least to the variance
    of the remaining time within groups, weighted by the time that m spends there.
    """
    chain = states.chain(push_rate)
    occupied = _occupied(states, push_rate)
    left = chain.solve(np.ones_like(states.entry))
    key = states.slot + np.where(states.alive, 0, states.slot.max() * apart)
    names, of_state = np.unique(key, return_inverse=True)
    weight = np.bincount(of_state, occupied)
    mean = np.bincount(of_state, occupied * left) / np.maximum(weight, np.finfo(float).tiny)
    alive = names <= states.slot.max()
    members = [[place] for place in range(names.size)]
    while True:
        joined = weight[:-1] + weight[1:]
        spread = np.divide(weight[:-1] * weight[1:], joined, out=np.zeros_like(joined), where=joined > 0.0)
        spread *= (mean[:-1] - mean[1:]) ** 2
        spread[:1] = np.inf
        spread[alive[:-1] != alive[1:]] = np.inf
        if not np.isfinite(spread).any():
            break
        first = int(np.argmin(spread))
        if len(members) <= most and joined[first] > NEGLIGIBLE * weight.sum():
            break
        if joined[first] > 0.0:
            mean[first] = (weight[first] * mean[first] + weight[first + 1] * mean[first + 1]) / joined[first]
        weight[first] = joined[first]
        members[first] += members.pop(first + 1)
        weight, mean, alive = (np.delete(array, first + 1) for array in (weight, mean, alive))
    group = np.empty(names.size, dtype=np.int64)
    for number, places in enumerate(members, start=1):
        group[places] = number
    return np.asarray(group[of_state])


def aggregate(states: CacheStates, push_rate: float, group: Ints) -> StateGroups:
    """Return the groups of a cache with pushes at this rate."""
    size, count = group.size, int(group.max()) + 1
    occupied = np.maximum(_occupied(states, push_rate), np.finfo(float).tiny)
    member = sparse.csr_array((np.ones(size), (np.arange(size), group)), shape=(size, count))
    total = np.bincount(group, occupied, minlength=count)
    share = sparse.csr_array((occupied / total[group], (group, np.arange(size))), shape=(count, size))
    moves = np.asarray((share @ states.moves @ member).todense())
    np.fill_diagonal(moves, 0.0)
    pushes = np.asarray((share @ states.pushes @ member).todense())
    pushes[:, 0] += share @ (states.pushed_to == GONE).astype(np.float64)
    pushes[0] = np.eye(count)[0]
    alive = share @ states.alive.astype(np.float64)
    return StateGroups(
        moves, pushes, np.minimum(alive, 1.0), np.bincount(group, states.entry, minlength=count).astype(np.float64)
    )


def _occupied(states: CacheStates, push_rate: float) -> Floats:
    """Return the mean time of m in each state until it is dropped."""
    generator = states.chain(push_rate).generator
    return np.asarray(np.maximum(splu(sparse.csc_array(-generator.T)).solve(states.entry), 0.0))
