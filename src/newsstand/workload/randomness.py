"""Counter-based random numbers: a draw depends on its key, never on the task that makes it."""

from __future__ import annotations

import numpy as np
from numba import njit


def generator(seed: int, stream: int, unit: int = 0) -> np.random.Generator:
    """Return the Philox generator of one unit (a page, a bin, a block) of one stream of draws."""
    return np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), (stream << 48) | unit]))


@njit(cache=True)
def mix(x):  # type: ignore[no-untyped-def]
    """Return the hash of a uint64 (the finalizer of SplitMix64)."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True)
def shuffled(place, items, key):  # type: ignore[no-untyped-def]
    """Return the item at a place of the random order of 0 … items - 1 that belongs to `key`.

    A Feistel network over the next power of four, walked until it lands among the items: a permutation that
    is never written down.
    """
    half = np.uint64(1)
    while (np.uint64(1) << (np.uint64(2) * half)) < np.uint64(items):
        half += np.uint64(1)
    mask = (np.uint64(1) << half) - np.uint64(1)
    at = np.uint64(place)
    while True:
        left, right = at >> half, at & mask
        for turn in range(4):
            left, right = right, left ^ (mix(right ^ mix(np.uint64(key) + np.uint64(turn))) & mask)
        at = (left << half) | right
        if at < np.uint64(items):
            return np.int64(at)


@njit(cache=True)
def uniform(a, b, c):  # type: ignore[no-untyped-def]
    """Return a number in (0, 1] that belongs to three integers."""
    mixed = mix(mix(mix(np.uint64(a)) ^ np.uint64(b)) ^ np.uint64(c))
    return (np.float64(mixed >> np.uint64(11)) + 1.0) * (1.0 / 9007199254740992.0)
