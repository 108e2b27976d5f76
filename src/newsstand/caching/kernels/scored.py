"""The replay of any policy that is one scoring function."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from newsstand.caching.kernels import heap as heaps
from newsstand.caching.kernels.jitable import jitable
from newsstand.caching.kernels.outcome import HIT, MISS, REFUSED, STORED, Decide
from newsstand.caching.policy import Entry, Policy


def scored(policy: Policy) -> Decide:
    """Compile the replay of `policy` at one proxy."""
    assert policy.score is not None
    score = jitable(policy.score)
    pushes = policy.push == "by-value"
    admits_always = policy.miss == "always"
    admits_by_value = policy.miss == "by-value"
    inflates = policy.inflates
    rescores = policy.rescores
    # Code is kept on disk under the sources of this package: a user's file may call what they do not cover.
    keep = not policy.is_users

    @njit(cache=keep, nogil=True)
    def decide(events, sizes, subscriptions, capacity, beta, outcome):  # type: ignore[no-untyped-def]
        heap = heaps.make_heap(len(sizes))
        accesses = np.zeros(len(sizes), np.int64)
        requests = np.zeros(len(sizes), np.int64)
        aside = np.empty(len(sizes), np.int32)
        free = capacity
        inflation = 0.0
        for now in range(len(events)):
            event = events[now]
            is_push = event < 0
            page = ~event if is_push else event
            size = sizes[page]
            cached = heap.place[page] >= 0
            if is_push:
                outcome[now] = REFUSED
                if cached or not pushes:
                    continue
            else:
                requests[page] += 1
                if cached:
                    outcome[now] = HIT
                    if rescores:
                        accesses[page] += 1
                        value = score(
                            Entry(size, subscriptions[page], accesses[page], requests[page], inflation, beta)
                        )
                        check(value)
                        heaps.rekey(heap, page, value, now)
                    continue
                outcome[now] = MISS
                if not (admits_always or admits_by_value):
                    continue
            if size > capacity:
                continue
            accesses[page] = 0 if is_push else 1
            if free < size and (is_push or admits_by_value):
                value = score(Entry(size, subscriptions[page], accesses[page], requests[page], inflation, beta))
                check(value)
                taken = 0
                room = free
                while room < size and heap.size[0] > 0:
                    victim = heaps.lowest(heap)
                    if heap.value[victim] >= value:
                        break
                    heaps.remove(heap, victim)
                    aside[taken] = victim
                    taken += 1
                    room += sizes[victim]
                if room < size:
                    for i in range(taken):
                        heaps.insert(heap, aside[i], heap.value[aside[i]], heap.stamp[aside[i]])
                    continue
                free = room
                if inflates:
                    inflation = heap.value[aside[taken - 1]]
            while free < size:
                victim = heaps.lowest(heap)
                heaps.remove(heap, victim)
                free += sizes[victim]
                if inflates:
                    inflation = heap.value[victim]
            free -= size
            value = score(Entry(size, subscriptions[page], accesses[page], requests[page], inflation, beta))
            check(value)
            heaps.insert(heap, page, value, now)
            if is_push:
                outcome[now] = STORED

    return decide


@njit(cache=True)
def check(value: float) -> None:
    """A score that is not a number has no place in the order."""
    if math.isnan(value):
        raise ValueError("the score is NaN")
