"""The replay of W-TinyLFU.

The segments are circles of pages through `before` and `after`, each closed by a node of its own behind the
pages. Halving every counter is done when one is looked at: `era` is the number of halvings it has seen.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.caching.kernels.outcome import HIT, MISS, REFUSED

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
    """W-TinyLFU, as the live cache has it."""
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
            outcome[now] = REFUSED
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
