"""Counting what a replay decided."""

from __future__ import annotations

import numpy as np
from numba import njit

from newsstand.caching.kernels.outcome import HIT, MISS, STORED

COUNTS = (
    "requests",
    "hits",
    "hit_bytes",
    "fetched_pages",
    "fetched_bytes",
    "pushed_pages_always",
    "pushed_bytes_always",
    "pushed_pages_needed",
    "pushed_bytes_needed",
)
"""The counts of one proxy, hour or run, in this order."""


@njit(cache=True, nogil=True)
def tally(events, sizes, outcome, uses_push, counts):  # type: ignore[no-untyped-def]
    """Add the outcome of one proxy's events to `counts`."""
    for i in range(len(events)):
        _count(events[i], sizes, outcome[i], uses_push, counts)


@njit(cache=True, nogil=True)
def tally_hours(events, sizes, outcome, uses_push, hour, counts):  # type: ignore[no-untyped-def]
    """Add the outcome of one proxy's events to the row of `counts` of each event's hour."""
    for i in range(len(events)):
        _count(events[i], sizes, outcome[i], uses_push, counts[hour[i]])


@njit(cache=True)
def _count(event, sizes, outcome, uses_push, counts):  # type: ignore[no-untyped-def]
    size = sizes[event if event >= 0 else ~event]
    if event >= 0:
        counts[0] += 1
        if outcome == HIT:
            counts[1] += 1
            counts[2] += size
        elif outcome == MISS:
            counts[3] += 1
            counts[4] += size
    elif uses_push:
        counts[5] += 1
        counts[6] += size
        if outcome == STORED:
            counts[7] += 1
            counts[8] += size


def new_counts(rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Zeros for `rows` proxies or hours."""
    return np.zeros((rows, len(COUNTS)), np.int64)
