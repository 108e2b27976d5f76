"""GDSF by libCacheSim's rule, on our heap: for a comparison of like with like.

The textbook (and our `gdsf`) makes room first and prices the newcomer with the L of the last eviction.
libCacheSim puts the newcomer in first, priced with the L from before, and then evicts the lowest until all
fits: a newcomer can evict others and then itself. A scoring function with a rule of admission cannot express this:
`by-value` would keep the others, and would price the newcomer again. Values are scaled by a million, as in
libCacheSim, so that both round alike.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from newsstand.caching.kernels.pages import HIT, MISS
from newsstand.caching.kernels.pages import heap as heaps


@njit(nogil=True)
def libcachesim_gdsf(events, sizes, subscriptions, capacity, beta, outcome):  # type: ignore[no-untyped-def]
    """Replay requests (no pushes) as `libcachesim.GDSF` does."""
    heap = heaps.make_heap(len(sizes))
    accesses = np.zeros(len(sizes), np.int64)
    free = capacity
    inflation = 0.0
    for now in range(len(events)):
        page = events[now]
        size = sizes[page]
        if heap.place[page] >= 0:
            outcome[now] = HIT
            accesses[page] += 1
            heaps.rekey(heap, page, inflation + accesses[page] * 1e6 / size, now)
            continue
        outcome[now] = MISS
        if size > capacity:
            continue
        accesses[page] = 1
        heaps.insert(heap, page, inflation + 1e6 / size, now)
        free -= size
        while free < 0:
            victim = heaps.lowest(heap)
            inflation = heap.value[victim]
            heaps.remove(heap, victim)
            free += sizes[victim]
