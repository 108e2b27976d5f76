"""The replays of the policies that keep pages in queues: LRU, SIEVE, S3-FIFO.

Memory decides their speed, so a hit touches one word of one page: the queues are logs that are read in order,
and an entry that its page has left behind is passed over when the reader comes by. A log never holds more
entries than there are events.
"""

import numpy as np
from numba import njit

from newsstand.caching.kernels.outcome import HIT, MISS, REFUSED


@njit(cache=True, nogil=True)
def lru(events, sizes, subscriptions, capacity, beta, outcome):  # type: ignore[no-untyped-def]
    """LRU: the events themselves are the log, and a page is where it was requested last."""
    place = np.zeros(len(sizes), np.uint32)  # 1 + the event of the last request; 0: not cached
    oldest = 0
    free = capacity
    for now in range(len(events)):
        page = events[now]
        if page < 0:
            outcome[now] = REFUSED
            continue
        if place[page] != 0:
            outcome[now] = HIT
            place[page] = now + 1
            continue
        outcome[now] = MISS
        size = sizes[page]
        if size > capacity:
            continue
        while free < size:
            victim = events[oldest]
            oldest += 1
            if victim >= 0 and place[victim] == oldest:
                place[victim] = 0
                free += sizes[victim]
        free -= size
        place[page] = now + 1


@njit(cache=True, nogil=True)
def sieve(events, sizes, subscriptions, capacity, beta, outcome):  # type: ignore[no-untyped-def]
    """SIEVE: what the hand spares moves up behind it, so the log has no holes ahead of the hand."""
    ABSENT, UNVISITED, VISITED = np.uint8(0), np.uint8(1), np.uint8(2)
    state = np.full(len(sizes), ABSENT)
    log = np.empty(len(events), np.int32)  # oldest first: log[:spared], a gap, log[hand:end]
    spared = hand = end = 0
    free = capacity
    for now in range(len(events)):
        page = events[now]
        if page < 0:
            outcome[now] = REFUSED
            continue
        known = state[page]
        if known != ABSENT:
            outcome[now] = HIT
            if known != VISITED:
                state[page] = VISITED
            continue
        outcome[now] = MISS
        size = sizes[page]
        if size > capacity:
            continue
        while free < size:
            victim = log[hand]
            hand += 1
            if state[victim] == VISITED:
                state[victim] = UNVISITED
                log[spared] = victim
                spared += 1
            else:
                state[victim] = ABSENT
                free += sizes[victim]
            if hand == end:
                end = spared
                hand = spared = 0
        free -= size
        state[page] = UNVISITED
        log[end] = page
        end += 1


@njit(cache=True, nogil=True)
def s3_fifo(events, sizes, subscriptions, capacity, beta, outcome):  # type: ignore[no-untyped-def]
    """S3-FIFO: a page's state is its queue and, in the two lowest bits, its hits up to three."""
    ABSENT, SMALL, MAIN, HITS = np.uint8(0), np.uint8(4), np.uint8(8), np.uint8(3)
    state = np.full(len(sizes), ABSENT)
    haunts = np.zeros(len(sizes), np.uint32)  # 1 + the place in the ghost's log; 0: not there
    small = np.empty(len(events), np.int32)
    main = np.empty(len(events), np.int32)
    ghost = np.empty(len(events), np.int32)
    small_first = small_end = main_first = main_end = ghost_first = ghost_end = 0
    small_capacity = capacity // 10
    small_free = small_capacity
    main_free = capacity - small_capacity
    ghost_free = ghost_capacity = capacity * 9 // 10
    evicted = False
    for now in range(len(events)):
        page = events[now]
        if page < 0:
            outcome[now] = REFUSED
            continue
        known = state[page]
        if known != ABSENT:
            outcome[now] = HIT
            if known & HITS < HITS:
                state[page] = known + np.uint8(1)
            continue
        outcome[now] = MISS
        size = sizes[page]
        if size > capacity:
            continue
        returns = haunts[page] != 0
        if returns:
            haunts[page] = 0
            ghost_free += size
        while small_free + main_free < size:
            evicted = True
            if main_free < 0 or small_first == small_end:
                while True:
                    victim = main[main_first]
                    main_first += 1
                    if state[victim] == MAIN:
                        state[victim] = ABSENT
                        main_free += sizes[victim]
                        break
                    state[victim] -= np.uint8(1)
                    main[main_end] = victim
                    main_end += 1
                continue
            while small_first < small_end:
                victim = small[small_first]
                small_first += 1
                victim_size = sizes[victim]
                small_free += victim_size
                if state[victim] & HITS >= 2:
                    state[victim] = MAIN
                    main[main_end] = victim
                    main_end += 1
                    main_free -= victim_size
                    continue
                state[victim] = ABSENT
                if victim_size <= ghost_capacity:
                    while ghost_free < victim_size:
                        forgotten = ghost[ghost_first]
                        ghost_first += 1
                        if haunts[forgotten] == ghost_first:
                            haunts[forgotten] = 0
                            ghost_free += sizes[forgotten]
                    ghost_free -= victim_size
                    ghost[ghost_end] = victim
                    ghost_end += 1
                    haunts[victim] = ghost_end
                break
        if returns or (not evicted and small_free <= 0):
            state[page] = MAIN
            main[main_end] = page
            main_end += 1
            main_free -= size
        else:
            state[page] = SMALL
            small[small_end] = page
            small_end += 1
            small_free -= size
