"""Compiled replay of policies that score pages: one function, or the dual strategies of chen2003.

The decisions are those of `newsstand.caching.pages.cache`, and of the dual strategies in
`newsstand.caching.pages.chen2003`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from newsstand.caching.kernels import jitable
from newsstand.caching.kernels.pages import HIT, MISS, REJECTED, STORED, PageReplayKernel
from newsstand.caching.kernels.pages import heap as heaps
from newsstand.caching.pages.chen2003 import gdstar, sub
from newsstand.caching.pages.policy import Entry, Policy


def scored(policy: Policy) -> PageReplayKernel:
    """Compile the replay of `policy` at one proxy."""
    assert policy.score is not None, f"policy '{policy.name}' has no scoring function and no kernel in KERNELS"
    score = jitable(policy.score)
    pushes = policy.push == "by-value"
    admits_always = policy.miss == "always"
    admits_by_value = policy.miss == "by-value"
    inflates = policy.inflates
    rescores = policy.rescores
    # Code is cached on disk by the sources of this package, which do not include those that a user's file calls.
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
                outcome[now] = REJECTED
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
    """Reject a score that is not a number."""
    if math.isnan(value):
        raise ValueError("the score is NaN")


jitable(gdstar)
jitable(sub)


@njit(cache=True)
def take_below(heap, sizes, missing, below, chosen):  # type: ignore[no-untyped-def]
    """Remove the lowest pages under `below` that free `missing` bytes; return their number, or -1 for none."""
    taken = 0
    while missing > 0 and heap.size[0] > 0:
        page = heaps.lowest(heap)
        if heap.value[page] >= below:
            break
        heaps.remove(heap, page)
        chosen[taken] = page
        taken += 1
        missing -= sizes[page]
    if missing > 0:
        put_back(heap, chosen, taken)
        return -1
    return taken


@njit(cache=True)
def put_back(heap, pages, count):  # type: ignore[no-untyped-def]
    """Return pages to the heap with their previous keys."""
    for i in range(count):
        heaps.insert(heap, pages[i], heap.value[pages[i]], heap.stamp[pages[i]])


@njit(cache=True, nogil=True)
def dual_methods(events, sizes, subscriptions, capacity, beta, outcome):  # type: ignore[no-untyped-def]
    """Replay DM at one proxy."""
    pages = len(sizes)
    by_subscription = heaps.make_heap(pages)
    by_access = heaps.make_heap(pages)
    accesses = np.zeros(pages, np.int64)
    chosen = np.empty(pages, np.int32)
    free = capacity
    inflation = 0.0
    for now in range(len(events)):
        event = events[now]
        if event < 0:
            page = ~event
            size = sizes[page]
            outcome[now] = REJECTED
            if by_access.place[page] >= 0 or size > capacity:
                continue
            value = sub(Entry(size, subscriptions[page], 0, 0, inflation, beta))
            taken = take_below(by_subscription, sizes, size - free, value, chosen)
            if taken < 0:
                continue
            for i in range(taken):
                heaps.remove(by_access, chosen[i])
                free += sizes[chosen[i]]
            accesses[page] = 0
            heaps.insert(by_access, page, inflation, now)
            outcome[now] = STORED
        else:
            page = event
            size = sizes[page]
            if by_access.place[page] >= 0:
                accesses[page] += 1
                value = gdstar(Entry(size, subscriptions[page], accesses[page], 0, inflation, beta))
                heaps.rekey(by_access, page, value, now)
                outcome[now] = HIT
                continue
            outcome[now] = MISS
            if size > capacity:
                continue
            while free < size:
                victim = heaps.lowest(by_access)
                inflation = by_access.value[victim]
                heaps.remove(by_access, victim)
                heaps.remove(by_subscription, victim)
                free += sizes[victim]
            accesses[page] = 1
            value = gdstar(Entry(size, subscriptions[page], 1, 0, inflation, beta))
            heaps.insert(by_access, page, value, now)
        free -= size
        value = sub(Entry(size, subscriptions[page], accesses[page], 0, inflation, beta))
        heaps.insert(by_subscription, page, value, now)


@njit(cache=True)
def take_stale(heap, sizes, missing, last_access, replaced, chosen, passed):  # type: ignore[no-untyped-def]
    """Remove the lowest pages accessed before `replaced` that free `missing` bytes; return their number, or -1."""
    taken = 0
    fresh = 0
    while missing > 0 and heap.size[0] > 0:
        page = heaps.lowest(heap)
        heaps.remove(heap, page)
        if last_access[page] < replaced:
            chosen[taken] = page
            taken += 1
            missing -= sizes[page]
        else:
            passed[fresh] = page
            fresh += 1
    put_back(heap, passed, fresh)
    if missing > 0:
        put_back(heap, chosen, taken)
        return -1
    return taken


def dual_caches(*, relabels: bool, bounded: bool) -> PageReplayKernel:
    """Compile the replay of DC-FP, DC-AP or DC-LAP at one proxy."""

    @njit(cache=True, nogil=True)
    def decide(events, sizes, subscriptions, capacity, beta, outcome):  # type: ignore[no-untyped-def]
        pages = len(sizes)
        pushed = heaps.make_heap(pages)
        accessed = heaps.make_heap(pages)
        accesses = np.zeros(pages, np.int64)
        last_access = np.zeros(pages, np.int64)
        chosen = np.empty(pages, np.int32)
        passed = np.empty(pages, np.int32)
        push_capacity = capacity // 2
        push_used = 0
        access_used = 0
        fresh_bytes = 0  # in the access cache, accessed at or after the last replacement
        replaced = -1
        inflation = 0.0
        for now in range(len(events)):
            event = events[now]
            if event < 0:
                page = ~event
                size = sizes[page]
                outcome[now] = REJECTED
                if pushed.place[page] >= 0 or accessed.place[page] >= 0:
                    continue
                value = sub(Entry(size, subscriptions[page], 0, 0, inflation, beta))
                missing = size - (push_capacity - push_used)
                taken = -1
                if size <= push_capacity:
                    taken = take_below(pushed, sizes, missing, value, chosen)
                if taken >= 0:
                    for i in range(taken):
                        push_used -= sizes[chosen[i]]
                else:
                    if not relabels or replaced < 0 or access_used - fresh_bytes < missing:
                        continue
                    taken = take_stale(accessed, sizes, missing, last_access, replaced, chosen, passed)
                    lent = 0
                    for i in range(taken):
                        lent += sizes[chosen[i]]
                    if bounded and 4 * (push_capacity + lent) > 3 * capacity:
                        put_back(accessed, chosen, taken)
                        continue
                    access_used -= lent
                    push_capacity += lent
                push_used += size
                heaps.insert(pushed, page, value, now)
                outcome[now] = STORED
                continue

            page = event
            size = sizes[page]
            outcome[now] = MISS
            if accessed.place[page] >= 0:
                outcome[now] = HIT
                accesses[page] += 1
                if last_access[page] < replaced:
                    fresh_bytes += size
                last_access[page] = now
                value = gdstar(Entry(size, subscriptions[page], accesses[page], 0, inflation, beta))
                heaps.rekey(accessed, page, value, now)
                continue
            if pushed.place[page] >= 0:
                outcome[now] = HIT
                if relabels and (not bounded or 4 * (push_capacity - size) >= capacity):
                    push_capacity -= size
                elif size > capacity - push_capacity:
                    continue
                heaps.remove(pushed, page)
                push_used -= size
            elif size > capacity - push_capacity:
                continue
            while capacity - push_capacity - access_used < size:
                if replaced < now:
                    replaced = now
                    fresh_bytes = 0
                victim = heaps.lowest(accessed)
                inflation = accessed.value[victim]
                heaps.remove(accessed, victim)
                access_used -= sizes[victim]
            access_used += size
            fresh_bytes += size
            accesses[page] = 1
            last_access[page] = now
            value = gdstar(Entry(size, subscriptions[page], 1, 0, inflation, beta))
            heaps.insert(accessed, page, value, now)

    return decide
