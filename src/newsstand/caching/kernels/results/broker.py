"""The state of one broker's result caches in a replay, and its changes under every policy.

The decisions are those of `newsstand.caching.results.cache`. Online subscribers have all objects, so only offline
ones need a position: `behind` counts those of them that lack the tail, `acked_at` those at each position. Together
they show when no subscriber waits for a tail any more.

Caches are ordered by eviction in a tournament tree: `winner[1]` is the cache with the lowest score, among equals
the one with the smallest number, and each node's winner is the better one of its two children's. A new score
replays the matches from its leaf up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newsstand.caching.kernels import borrowing
from newsstand.caching.kernels.results.table import ResultTable
from newsstand.caching.kernels.results.wide_integers import Sums, add, add_product, new_sums, take

NO_CACHE = -1


class TournamentTree(NamedTuple):
    """Scores by cache, and winners by node; the leaves are the second half."""

    score: npt.NDArray[np.float64]
    winner: npt.NDArray[np.int32]


def new_tournament(caches: int) -> TournamentTree:
    """Return an empty tournament of this many caches."""
    leaves = 1 << max(0, caches - 1).bit_length()
    return TournamentTree(np.empty(caches, np.float64), np.full(2 * leaves, NO_CACHE, np.int32))


@borrowing(cache=True, forceinline=True)
def lowest(ranking):  # type: ignore[no-untyped-def]
    """Return the cache with the lowest score, NO_CACHE if none is ranked."""
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
    """Remove a cache if it is ranked."""
    leaf = len(ranking.winner) // 2 + cache
    if ranking.winner[leaf] != NO_CACHE:
        ranking.winner[leaf] = NO_CACHE
        _replay(ranking, leaf, cache)


@borrowing(cache=True)
def _replay(ranking, leaf, cache):  # type: ignore[no-untyped-def]
    node = leaf >> 1
    while node > 0:
        left, right = ranking.winner[2 * node], ranking.winner[2 * node + 1]
        best = left
        if left == NO_CACHE or (right != NO_CACHE and ranking.score[right] < ranking.score[left]):
            best = right
        if best == ranking.winner[node] and best != cache:
            return
        ranking.winner[node] = best
        node >>= 1


DROPPED, CONSUMED, ABANDONED = range(3)
"""The reasons for which an object leaves."""

SUMS = (
    *("dropped_objects", "consumed_objects", "abandoned_objects"),
    *("dropped_bytes", "consumed_bytes", "abandoned_bytes"),
    *("hold_dropped_ms", "hold_consumed_ms", "hold_abandoned_ms"),
    *("hits", "hit_bytes", "misses", "miss_bytes", "hits_push", "misses_push"),
    *("results", "orphans", "vol_bytes", "ignored_events", "undelivered", "pending_end"),
    *("size_integral", "size_integral_warm", "max_bytes", "max_bytes_warm", "ttl_insert_ms"),
    *("left_bytes", "left_objects"),
)
"""The sums of a replay in their order; those of the three reasons are adjacent."""

OBJECTS_OF, BYTES_OF, HOLD_OF = 0, 3, 6
HITS, HIT_BYTES, MISSES, MISS_BYTES, HITS_PUSH, MISSES_PUSH = range(9, 15)
RESULTS, ORPHANS, VOL_BYTES, IGNORED, UNDELIVERED, PENDING_END = range(15, 21)
INTEGRAL, INTEGRAL_WARM, MAX_BYTES, MAX_BYTES_WARM, TTL_INSERT, LEFT_BYTES, LEFT_OBJECTS = range(21, 28)

CACHE = np.dtype(
    [
        ("newest", np.int64),  # position of the latest result
        ("tail", np.int64),  # position of the oldest cached one; if none is, that after the newest
        ("subscribers", np.int64),
        ("online", np.int64),  # those of them who are online
        ("behind", np.int64),  # those of them who are offline and lack the tail
        ("accessed_ms", np.int64),
        ("ttl_ms", np.int64),
        ("growth", np.int64),  # bytes put minus bytes consumed or abandoned in the open window
        ("grown", np.int64),  # the same in the latest closed windows
        ("grew", np.int64),  # the latest window with growth
        ("average", np.int64),  # the exponential average of all closed windows
        ("averaged", np.int64),  # whether there was any
        ("measured", np.int64),  # whether windows are closed for it
        ("stale", np.int64),  # whether the tail may have another score than the ranking says
        ("victim", np.int64),  # the position of the object that has the lowest score
        ("put", np.int64),  # how many objects were put, and their times to live at that moment
        ("ttl_put_ms", np.int64),
        ("dropped", np.int64),  # how many the policy dropped, and how long they had been held
        ("hold_dropped_ms", np.int64),
    ],
    align=True,
)

NOW, BYTES, OBJECTS, STALE, MEASURED, CLOSED, ROW, FULL = range(8)
"""Numbers of the whole broker: the time, cached bytes and objects, stale and measured caches, closed windows, the
next row, and the cache with a new result for which there is no room yet."""


class ReplayRules(NamedTuple):
    """The setting of a replay for the kernel."""

    budget: int
    end_ms: int
    window_ms: int
    windows: int
    cap_ms: int
    unmeasured_ms: int
    """The time to live without measurements."""
    evicts_on_put: bool
    stamps: bool
    """Whether objects expire by the time to live at their insertion."""
    keeps: bool
    scores: bool
    expires: bool
    bounded: bool
    averages: bool
    """Whether the policy caches, scores tails, lets them expire, observes the budget, averages growth."""
    anywhere: bool
    """Whether every object is scored, not only tails."""


class BrokerCaches(NamedTuple):
    """The result caches."""

    caches: npt.NDArray[np.void]
    numbers: npt.NDArray[np.int64]
    sums: Sums
    positions: npt.NDArray[np.void]
    acked_at: npt.NDArray[np.int32]
    """By position, the number of offline subscribers that have acknowledged it last."""
    stamp_ms: npt.NDArray[np.int64]
    """By position, the expiry of the stamp; empty if objects have no stamps."""
    held: npt.NDArray[np.bool_]
    """By position, whether it is cached; empty if all objects from the tail on are."""
    stale: npt.NDArray[np.int64]
    """The caches with tails to score."""
    ranking: TournamentTree


def new_broker_caches(table: ResultTable, rules: ReplayRules) -> BrokerCaches:
    """Return empty caches without subscribers."""
    number = len(table.first_position) - 1
    caches = np.zeros(number, CACHE)
    caches["newest"] = table.first_position[:-1]
    caches["tail"] = table.first_position[:-1] + 1
    caches["ttl_ms"] = rules.unmeasured_ms
    caches["grew"] = -rules.windows
    numbers = np.zeros(8, np.int64)
    numbers[FULL] = NO_CACHE
    return BrokerCaches(
        caches,
        numbers,
        new_sums(len(SUMS)),
        table.positions,
        np.zeros(len(table.positions), np.int32),
        np.zeros(len(table.positions) if rules.stamps else 0, np.int64),
        np.zeros(len(table.positions) if rules.anywhere else 0, np.bool_),
        np.empty(number, np.int64),
        new_tournament(number),
    )


@borrowing(cache=True, forceinline=True)
def pass_to(broker, now, window_ms):  # type: ignore[no-untyped-def]
    """Advance the time without an event."""
    before = broker.numbers[NOW]
    if now > before:
        add_product(broker.sums, INTEGRAL, broker.numbers[BYTES], now - before)
        if now > window_ms:
            add_product(broker.sums, INTEGRAL_WARM, broker.numbers[BYTES], now - max(before, window_ms))
        broker.numbers[NOW] = now


@borrowing(cache=True, forceinline=True)
def size_of(broker, position):  # type: ignore[no-untyped-def]
    """Return the bytes of a result."""
    return broker.positions[position].bytes_upto - broker.positions[position - 1].bytes_upto


@borrowing(cache=True, forceinline=True)
def remove_tail(broker, cache, reason):  # type: ignore[no-untyped-def]
    """Remove the tail of a cache."""
    position = cache.tail
    count_out(broker, cache, position, reason)
    cache.behind += broker.acked_at[position]
    cache.tail = position + 1


@borrowing(cache=True, forceinline=True)
def remove(broker, rules, cache, position, reason):  # type: ignore[no-untyped-def]
    """Remove any object of a cache; the next cached object becomes the tail if it was the tail."""
    if not rules.anywhere:
        remove_tail(broker, cache, reason)
        return
    count_out(broker, cache, position, reason)
    broker.held[position] = False
    while cache.tail <= cache.newest and not broker.held[cache.tail]:
        cache.behind += broker.acked_at[cache.tail]
        cache.tail += 1


@borrowing(cache=True, forceinline=True)
def count_out(broker, cache, position, reason):  # type: ignore[no-untyped-def]
    """Count an object that leaves."""
    size = size_of(broker, position)
    broker.numbers[BYTES] -= size
    broker.numbers[OBJECTS] -= 1
    add(broker.sums, OBJECTS_OF + reason, 1)
    add(broker.sums, BYTES_OF + reason, size)
    add(broker.sums, HOLD_OF + reason, broker.numbers[NOW] - broker.positions[position].inserted_ms)
    if reason != DROPPED:
        cache.growth -= size
    else:
        cache.dropped += 1
        cache.hold_dropped_ms += broker.numbers[NOW] - broker.positions[position].inserted_ms


@borrowing(cache=True, forceinline=True)
def sweep(broker, rules, which, reason):  # type: ignore[no-untyped-def]
    """Remove objects that no subscriber waits for."""
    cache = broker.caches[which]
    before = cache.tail
    while cache.behind == 0 and cache.tail <= cache.newest:
        remove(broker, rules, cache, cache.tail, reason)
    rescore(broker, rules, which, cache.tail != before)


@borrowing(cache=True, forceinline=True)
def rescore(broker, rules, which, is_new_tail):  # type: ignore[no-untyped-def]
    """Rank an expiring tail at once, as it may leave now; note that a scored tail needs a new score."""
    cache = broker.caches[which]
    if rules.scores:
        if not cache.stale:
            cache.stale = 1
            broker.stale[broker.numbers[STALE]] = which
            broker.numbers[STALE] += 1
    elif rules.expires and is_new_tail:
        if cache.tail > cache.newest:
            discard(broker.ranking, which)
        else:
            expiry = max(broker.numbers[NOW], expires_ms(broker, rules, cache, cache.tail))
            rank(broker.ranking, which, float(expiry))


@borrowing(cache=True, forceinline=True)
def expires_ms(broker, rules, cache, position):  # type: ignore[no-untyped-def]
    """Return when an object of a cache expires."""
    if rules.stamps:
        return broker.stamp_ms[position]
    return broker.positions[position].inserted_ms + cache.ttl_ms


@borrowing(cache=True, forceinline=True)
def retrieve(broker, rules, cache, after):  # type: ignore[no-untyped-def]
    """Count the retrievals of a subscriber after a position, and its access."""
    newest = cache.newest
    missed = max(after, cache.tail - 1)  # what comes after it is cached
    missed_bytes = broker.positions[missed].bytes_upto
    add(broker.sums, HITS, newest - missed)
    add(broker.sums, HIT_BYTES, broker.positions[newest].bytes_upto - missed_bytes)
    add(broker.sums, MISSES, missed - after)
    add(broker.sums, MISS_BYTES, missed_bytes - broker.positions[after].bytes_upto)
    if rules.anywhere:
        for position in range(missed + 1, newest + 1):
            if not broker.held[position]:
                turn_into_miss(broker, size_of(broker, position))
    cache.accessed_ms = broker.numbers[NOW]


@borrowing(cache=True)
def turn_into_miss(broker, size):  # type: ignore[no-untyped-def]
    """Count a miss instead of a hit."""
    take(broker.sums, HITS, 1)
    take(broker.sums, HIT_BYTES, size)
    add(broker.sums, MISSES, 1)
    add(broker.sums, MISS_BYTES, size)


@borrowing(cache=True, forceinline=True)
def push(broker, rules, which):  # type: ignore[no-untyped-def]
    """Deliver the newest result to all online subscribers."""
    cache = broker.caches[which]
    if cache.online == 0:
        return
    is_hit = broker.held[cache.newest] if rules.anywhere else cache.tail <= cache.newest
    add(broker.sums, HITS if is_hit else MISSES, cache.online)
    add(broker.sums, HITS_PUSH if is_hit else MISSES_PUSH, cache.online)
    add_product(broker.sums, HIT_BYTES if is_hit else MISS_BYTES, cache.online, size_of(broker, cache.newest))
    cache.accessed_ms = broker.numbers[NOW]
    sweep(broker, rules, which, CONSUMED)
