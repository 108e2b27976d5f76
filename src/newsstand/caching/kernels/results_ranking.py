"""Result caches in the order in which they would lose their tails: the twin of `newsstand.caching.tail_ranking`.

A tournament: `winner[1]` is the cache with the lowest score, among equal ones that of the smallest number, and
each node's winner is the better one of its two children's. A new score replays the matches from its leaf up.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newsstand.caching.kernels.results_jit import borrowing

NOBODY = -1


class Ranking(NamedTuple):
    """Scores by cache, and winners by node; the leaves are the second half."""

    score: npt.NDArray[np.float64]
    winner: npt.NDArray[np.int32]


def new_ranking(caches: int) -> Ranking:
    """A ranking of none out of so many caches."""
    leaves = 1 << max(0, caches - 1).bit_length()
    return Ranking(np.empty(caches, np.float64), np.full(2 * leaves, NOBODY, np.int32))


@borrowing(cache=True, forceinline=True)
def lowest(ranking):  # type: ignore[no-untyped-def]
    """The cache with the lowest score, NOBODY if none is ranked."""
    return np.int64(ranking.winner[1])


@borrowing(cache=True, forceinline=True)
def rank(ranking, cache, score):  # type: ignore[no-untyped-def]
    """Give a cache a score."""
    leaf = len(ranking.winner) // 2 + cache
    if ranking.winner[leaf] == cache and ranking.score[cache] == score:
        return
    ranking.score[cache] = score
    ranking.winner[leaf] = cache
    _replay(ranking, leaf, cache)


@borrowing(cache=True, forceinline=True)
def discard(ranking, cache):  # type: ignore[no-untyped-def]
    """Take a cache out, if it is in."""
    leaf = len(ranking.winner) // 2 + cache
    if ranking.winner[leaf] != NOBODY:
        ranking.winner[leaf] = NOBODY
        _replay(ranking, leaf, cache)


@borrowing(cache=True)
def _replay(ranking, leaf, cache):  # type: ignore[no-untyped-def]
    node = leaf >> 1
    while node > 0:
        left, right = ranking.winner[2 * node], ranking.winner[2 * node + 1]
        best = left
        if left == NOBODY or (right != NOBODY and ranking.score[right] < ranking.score[left]):
            best = right
        if best == ranking.winner[node] and best != cache:
            return
        ranking.winner[node] = best
        node >>= 1
