"""Compiled replay of the policies that keep pages in queues: LRU, SIEVE, S3-FIFO, W-TinyLFU.

Memory access determines their speed, so a hit accesses one word of one page: the queues of the first three are
logs that are read in order, and a stale entry of a page is skipped when the reader reaches it. A log never has
more entries than there are events.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.caching.kernels.pages import HIT, MISS, REJECTED


@njit(cache=True, nogil=True)
def lru(events, sizes, subscriptions, capacity, beta, outcome):  # type: ignore[no-untyped-def]
    """Replay LRU: the events are the log, in which a page is at its last request."""
    place = np.zeros(len(sizes), np.uint32)  # 1 + the event of the last request; 0: not cached
    oldest = 0
    free = capacity
    for now in range(len(events)):
        page = events[now]
        if page < 0:
            outcome[now] = REJECTED
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
    """Replay SIEVE: pages that the hand spares move behind it, so the log has no gaps ahead of the hand."""
    ABSENT, UNVISITED, VISITED = np.uint8(0), np.uint8(1), np.uint8(2)
    state = np.full(len(sizes), ABSENT)
    log = np.empty(len(events), np.int32)  # oldest first: log[:spared], a gap, log[hand:end]
    spared = hand = end = 0
    free = capacity
    for now in range(len(events)):
        page = events[now]
        if page < 0:
            outcome[now] = REJECTED
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
    """Replay S3-FIFO: a page's state is its queue and, in the two lowest bits, its hits up to three."""
    ABSENT, SMALL, MAIN, HITS = np.uint8(0), np.uint8(4), np.uint8(8), np.uint8(3)
    state = np.full(len(sizes), ABSENT)
    ghost_place = np.zeros(len(sizes), np.uint32)  # 1 + the place in the ghost's log; 0: not there
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
            outcome[now] = REJECTED
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
        returns = ghost_place[page] != 0
        if returns:
            ghost_place[page] = 0
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
                        if ghost_place[forgotten] == ghost_first:
                            ghost_place[forgotten] = 0
                            ghost_free += sizes[forgotten]
                    ghost_free -= victim_size
                    ghost[ghost_end] = victim
                    ghost_end += 1
                    ghost_place[victim] = ghost_end
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


Links = npt.NDArray[np.int32]


@njit(cache=True)
def _unlink(before: Links, after: Links, page: int) -> None:
    after[before[page]] = after[page]
    before[after[page]] = before[page]


@njit(cache=True)
def _append(before: Links, after: Links, segment: int, page: int) -> None:
    last = before[segment]
    after[last] = page
    before[page] = last
    after[page] = segment
    before[segment] = page


@njit(cache=True)
def _frequency(count: npt.NDArray[np.int8], era: npt.NDArray[np.int32], now: int, page: int) -> int:
    return int(count[page] >> min(now - era[page], 4))


@njit(cache=True, nogil=True)
def w_tinylfu(events, sizes, subscriptions, capacity, beta, outcome):  # type: ignore[no-untyped-def]
    """Replay W-TinyLFU with the rules of the live cache.

    The segments are circular lists of pages through `before` and `after`, each with a head node after the pages.
    Counters are halved when they are read: `era` is the number of halvings that a counter has seen.
    """
    pages = len(sizes)
    window, probation, protected = pages, pages + 1, pages + 2
    before = np.arange(pages + 3).astype(np.int32)
    after = np.arange(pages + 3).astype(np.int32)
    segment = np.zeros(pages, np.int32)  # 0: not cached
    count = np.zeros(pages, np.int8)
    era = np.zeros(pages, np.int32)
    halvings = additions = entries = 0
    window_free = window_capacity = capacity // 100
    main_free = main_capacity = capacity - window_capacity
    protected_free = protected_capacity = main_capacity * 4 // 5
    for now in range(len(events)):
        page = events[now]
        if page < 0:
            outcome[now] = REJECTED
            continue
        count[page] = min(_frequency(count, era, halvings, page) + 1, 15)
        era[page] = halvings
        additions += 1
        if additions >= 10 * max(entries, 1):
            additions //= 2
            halvings += 1
        size = sizes[page]
        if segment[page] != 0:
            outcome[now] = HIT
            _unlink(before, after, page)
            if segment[page] == probation and size <= protected_capacity:
                segment[page] = protected
                protected_free -= size
                while protected_free < 0:
                    demoted = after[protected]
                    _unlink(before, after, demoted)
                    _append(before, after, probation, demoted)
                    segment[demoted] = probation
                    protected_free += sizes[demoted]
            _append(before, after, segment[page], page)
            continue
        outcome[now] = MISS
        if size > main_capacity:
            continue
        while True:
            if size > window_capacity:
                candidate = page
            elif window_free < size:
                candidate = after[window]
                _unlink(before, after, candidate)
                segment[candidate] = 0
                window_free += sizes[candidate]
                entries -= 1
            else:
                _append(before, after, window, page)
                segment[page] = window
                window_free -= size
                entries += 1
                break
            room = main_free
            frequency = _frequency(count, era, halvings, candidate)
            admitted = True
            victim = probation
            while admitted and room < sizes[candidate]:
                victim = after[victim]
                if victim == probation:
                    victim = after[protected]
                room += sizes[victim]
                frequency -= _frequency(count, era, halvings, victim)
                admitted = frequency > 0
            if admitted:
                while main_free < sizes[candidate]:
                    victim = after[probation]
                    if victim == probation:
                        victim = after[protected]
                        protected_free += sizes[victim]
                    _unlink(before, after, victim)
                    segment[victim] = 0
                    main_free += sizes[victim]
                    entries -= 1
                _append(before, after, probation, candidate)
                segment[candidate] = probation
                main_free -= sizes[candidate]
                entries += 1
            if candidate == page:
                break
