"""States of a cache put together, so that few remain, and m stays cached for as long as before.

States of one group are taken to be occupied in the proportions in which m occupies them on its way through one
cache. Then the groups are occupied as long, and left as often, as their states were: means of what happens in one
cache do not change, however few groups there are. What changes is how regular it is, so those are put together
from which m has about the same time left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from newsstand.survival.cache_states import GONE, CacheStates
from newsstand.survival.chain import Floats, Ints

NEGLIGIBLE = 1e-13
"""Of the time in a cache: states so rare are put to others even if there is room."""


@dataclass(frozen=True)
class Grouped:
    """Groups of states; with them counts the absence of m, which is group 0. Group 1 is where copies enter."""

    moves: Floats
    """Rates between groups that clients cause; the diagonal is empty."""
    pushes: Floats
    """What a push does: a stochastic matrix."""
    alive: Floats
    """For each group how often m has clients."""
    entry: Floats
    """The group in which m is when it has just been cached."""


def groups_of(states: CacheStates, push_rate: float, most: int, *, apart: bool) -> Ints:
    """For each state its group, 1 … `most`: neighbouring slots, if `apart` all with clients or all without.

    The top slot is a group of its own. Of all neighbours those are put together, two by two, that add
    least to the spread of the time left within groups, weighted by how long m is there.
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


def grouped(states: CacheStates, push_rate: float, group: Ints) -> Grouped:
    """The cache seen group by group, if pushes come at this rate."""
    size, count = group.size, int(group.max()) + 1
    occupied = np.maximum(_occupied(states, push_rate), np.finfo(float).tiny)
    member = sparse.csr_array((np.ones(size), (np.arange(size), group)), shape=(size, count))
    whole = np.bincount(group, occupied, minlength=count)
    share = sparse.csr_array((occupied / whole[group], (group, np.arange(size))), shape=(count, size))
    moves = np.asarray((share @ states.moves @ member).todense())
    np.fill_diagonal(moves, 0.0)
    pushes = np.asarray((share @ states.pushes @ member).todense())
    pushes[:, 0] += share @ (states.pushed_to == GONE).astype(np.float64)
    pushes[0] = np.eye(count)[0]
    alive = share @ states.alive.astype(np.float64)
    return Grouped(
        moves, pushes, np.minimum(alive, 1.0), np.bincount(group, states.entry, minlength=count).astype(np.float64)
    )


def _occupied(states: CacheStates, push_rate: float) -> Floats:
    """How long m is in each state, from being cached to being dropped."""
    generator = states.chain(push_rate).generator
    return np.asarray(np.maximum(splu(sparse.csc_array(-generator.T)).solve(states.entry), 0.0))
