"""The state of one broker's result caches in a replay, and what happens to it under every policy.

The twin of `newsstand.caching.result_cache`. Whoever is online has everything, so only those who are offline need
a position each: `behind` counts those of them who lack the tail, `acked_at` those who stopped at a position, and
both together tell at each step when nobody wants a tail any more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newsstand.caching.kernels.results_jit import borrowing
from newsstand.caching.kernels.results_ranking import NOBODY, Ranking, discard, new_ranking, rank
from newsstand.caching.kernels.results_sums import Sums, add, add_product, new_sums, take
from newsstand.caching.kernels.results_table import ResultTable

DROPPED, CONSUMED, ABANDONED = range(3)
"""Why an object leaves."""

SUMS = (
    *("dropped_objects", "consumed_objects", "abandoned_objects"),
    *("dropped_bytes", "consumed_bytes", "abandoned_bytes"),
    *("hold_dropped_ms", "hold_consumed_ms", "hold_abandoned_ms"),
    *("hits", "hit_bytes", "misses", "miss_bytes", "hits_push", "misses_push"),
    *("results", "orphans", "vol_bytes", "ignored_events", "undelivered", "pending_end"),
    *("size_integral", "size_integral_warm", "max_bytes", "max_bytes_warm", "ttl_insert_ms"),
    *("left_bytes", "left_objects"),
)
"""What a replay counts, in the order of its sums; those of the three reasons lie side by side."""

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
"""Numbers of the whole broker: the moment, what is cached, how many caches are stale and measured, windows closed,
the next row, and the cache that a result was put into for which there is no room yet."""


class Rules(NamedTuple):
    """A setting, as the kernel takes it."""

    budget: int
    end_ms: int
    window_ms: int
    windows: int
    cap_ms: int
    unmeasured_ms: int
    """The time to live where nothing was measured."""
    evicts_on_put: bool
    stamps: bool
    """Whether objects expire by the time to live at their insertion."""
    keeps: bool
    scores: bool
    expires: bool
    bounded: bool
    averages: bool
    """What the policy does: keep anything, score tails, let them expire, within the budget, by average growth."""
    anywhere: bool
    """Whether every object is scored, not only tails."""


class Broker(NamedTuple):
    """The result caches."""

    caches: npt.NDArray[np.void]
    numbers: npt.NDArray[np.int64]
    sums: Sums
    positions: npt.NDArray[np.void]
    acked_at: npt.NDArray[np.int32]
    """By position, how many who are offline have everything up to it and no more."""
    stamp_ms: npt.NDArray[np.int64]
    """By position, when it expires by its stamp; empty if objects have none."""
    held: npt.NDArray[np.bool_]
    """By position, whether it is cached; empty if all from the tail on are."""
    stale: npt.NDArray[np.int64]
    """The caches whose tails have to be scored."""
    ranking: Ranking


def new_broker(table: ResultTable, rules: Rules) -> Broker:
    """All caches empty, and nobody attached."""
    number = len(table.first_position) - 1
    caches = np.zeros(number, CACHE)
    caches["newest"] = table.first_position[:-1]
    caches["tail"] = table.first_position[:-1] + 1
    caches["ttl_ms"] = rules.unmeasured_ms
    caches["grew"] = -rules.windows
    numbers = np.zeros(8, np.int64)
    numbers[FULL] = NOBODY
    return Broker(
        caches,
        numbers,
        new_sums(len(SUMS)),
        table.positions,
        np.zeros(len(table.positions), np.int32),
        np.zeros(len(table.positions) if rules.stamps else 0, np.int64),
        np.zeros(len(table.positions) if rules.anywhere else 0, np.bool_),
        np.empty(number, np.int64),
        new_ranking(number),
    )


@borrowing(cache=True, forceinline=True)
def pass_to(broker, now, window_ms):  # type: ignore[no-untyped-def]
    """Let time pass in which nothing happens."""
    before = broker.numbers[NOW]
    if now > before:
        add_product(broker.sums, INTEGRAL, broker.numbers[BYTES], now - before)
        if now > window_ms:
            add_product(broker.sums, INTEGRAL_WARM, broker.numbers[BYTES], now - max(before, window_ms))
        broker.numbers[NOW] = now


@borrowing(cache=True, forceinline=True)
def size_of(broker, position):  # type: ignore[no-untyped-def]
    """The bytes of a result."""
    return broker.positions[position].bytes_upto - broker.positions[position - 1].bytes_upto


@borrowing(cache=True, forceinline=True)
def remove_tail(broker, cache, reason):  # type: ignore[no-untyped-def]
    """Let the tail of a cache go."""
    position = cache.tail
    count_out(broker, cache, position, reason)
    cache.behind += broker.acked_at[position]
    cache.tail = position + 1


@borrowing(cache=True, forceinline=True)
def remove(broker, rules, cache, position, reason):  # type: ignore[no-untyped-def]
    """Let any object of a cache go; what is cached then begins with the next one that is."""
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
    """Remove what nobody waits for."""
    cache = broker.caches[which]
    before = cache.tail
    while cache.behind == 0 and cache.tail <= cache.newest:
        remove(broker, rules, cache, cache.tail, reason)
    rescore(broker, rules, which, cache.tail != before)


@borrowing(cache=True, forceinline=True)
def rescore(broker, rules, which, is_new_tail):  # type: ignore[no-untyped-def]
    """Tails that expire are ranked at once: one whose time is past leaves now. Scores can wait."""
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
    """When an object of a cache expires."""
    if rules.stamps:
        return broker.stamp_ms[position]
    return broker.positions[position].inserted_ms + cache.ttl_ms


@borrowing(cache=True, forceinline=True)
def retrieve(broker, rules, cache, after):  # type: ignore[no-untyped-def]
    """Count what somebody gets who has everything up to a position, and that it came to get it."""
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
    """One hit less, one miss more."""
    take(broker.sums, HITS, 1)
    take(broker.sums, HIT_BYTES, size)
    add(broker.sums, MISSES, 1)
    add(broker.sums, MISS_BYTES, size)


@borrowing(cache=True, forceinline=True)
def push(broker, rules, which):  # type: ignore[no-untyped-def]
    """Hand the newest result to all who are online."""
    cache = broker.caches[which]
    if cache.online == 0:
        return
    is_hit = broker.held[cache.newest] if rules.anywhere else cache.tail <= cache.newest
    add(broker.sums, HITS if is_hit else MISSES, cache.online)
    add(broker.sums, HITS_PUSH if is_hit else MISSES_PUSH, cache.online)
    add_product(broker.sums, HIT_BYTES if is_hit else MISS_BYTES, cache.online, size_of(broker, cache.newest))
    cache.accessed_ms = broker.numbers[NOW]
    sweep(broker, rules, which, CONSUMED)
