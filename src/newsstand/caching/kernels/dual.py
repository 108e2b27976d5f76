"""The replay of the dual strategies, compiled: the twins of `newsstand.caching.dual`."""

from __future__ import annotations

import numpy as np
from numba import njit

from newsstand.caching.chen2003 import gdstar, sub
from newsstand.caching.kernels import heap as heaps
from newsstand.caching.kernels.jitable import jitable
from newsstand.caching.kernels.outcome import HIT, MISS, REFUSED, STORED, Decide
from newsstand.caching.policy import Entry

jitable(gdstar)
jitable(sub)


@njit(cache=True)
def take_below(heap, sizes, missing, below, chosen):  # type: ignore[no-untyped-def]
    """Take the lowest pages under `below` that free `missing` bytes out of the heap: how many, or -1 and none."""
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
    """Return pages to the heap under the keys they had."""
    for i in range(count):
        heaps.insert(heap, pages[i], heap.value[pages[i]], heap.stamp[pages[i]])


@njit(cache=True, nogil=True)
def dual_methods(events, sizes, subscriptions, capacity, beta, outcome):  # type: ignore[no-untyped-def]
    """DM at one proxy."""
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
            outcome[now] = REFUSED
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
    """Take the lowest pages last accessed before `replaced` that free `missing` bytes: how many, or -1."""
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


def dual_caches(*, relabels: bool, bounded: bool) -> Decide:
    """DC-FP, DC-AP or DC-LAP at one proxy."""

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
                outcome[now] = REFUSED
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
