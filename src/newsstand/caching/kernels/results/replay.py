"""Compiled replay of broker events through result caches.

The decisions are those of `newsstand.caching.results.caches`.
The scoring function of the policy chooses the victim. The cost of a result does not depend on the number of online
subscribers, that of a retrieval not on the number of pending objects; only objects that leave are handled singly.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from newsstand.caching.kernels import borrowing, jitable
from newsstand.caching.kernels.results import broker as state
from newsstand.caching.kernels.results import subscribers as presence
from newsstand.caching.kernels.results.broker import BrokerCaches, ReplayRules
from newsstand.caching.kernels.results.subscribers import SubscriberTable
from newsstand.caching.kernels.results.table import LOGIN, LOGOUT, RESULT, SUBSCRIBE, ResultTable, Rows
from newsstand.caching.kernels.results.wide_integers import Sums, add, add_product, new_sums, product, share
from newsstand.caching.results.lifetimes import AVERAGE_OVER
from newsstand.caching.results.policies import ResultPolicy, Tail, TailScore


class Windows(NamedTuple):
    """The results of closed windows."""

    growth: npt.NDArray[np.int64]
    """The growth of each cache, one row for each of the latest windows."""
    expected: Sums
    """By window, the sum of D_i T_i."""


def new_windows(table: ResultTable, rules: ReplayRules) -> Windows:
    """Return windows before the first one is closed."""
    closings = rules.end_ms // rules.window_ms if rules.keeps else 0
    # If no window ever becomes too old to count, none has to be stored.
    remembered = rules.windows if rules.windows < closings else 0
    return Windows(np.zeros((remembered, len(table.first_position) - 1), np.int64), new_sums(closings))


@borrowing(cache=True)
def close_window(broker, windows, rules):  # type: ignore[no-untyped-def]
    """Set every time to live from measurements (equation 7)."""
    window = broker.numbers[state.CLOSED]
    broker.numbers[state.CLOSED] = window + 1
    if broker.numbers[state.MEASURED] == 0:
        return
    span_ms = (1 if rules.averages else min(rules.windows, window + 1)) * rules.window_ms
    low, high = product(np.uint64(rules.budget), np.uint64(span_ms))
    remembered = len(windows.growth)
    subscribers = 0
    for which in range(len(broker.caches)):
        subscribers += broker.caches[which].subscribers
    for which in range(len(broker.caches)):
        cache = broker.caches[which]
        if not cache.measured:
            continue
        cache.grown += cache.growth
        if remembered > 0:
            cache.grown -= windows.growth[window % remembered, which]
            windows.growth[window % remembered, which] = cache.growth
        cache.average += (cache.growth - cache.average) // AVERAGE_OVER if cache.averaged else cache.growth
        cache.averaged = 1
        if cache.growth != 0:
            cache.grew = window
        cache.growth = 0
        grown = cache.average if rules.averages else cache.grown
        if cache.subscribers == 0:
            cache.ttl_ms = rules.unmeasured_ms
            if window - cache.grew >= rules.windows:  # all that is remembered of it is zero
                cache.measured = cache.average = cache.averaged = 0
                broker.numbers[state.MEASURED] -= 1
        elif grown <= 0:
            cache.ttl_ms = rules.cap_ms
        else:
            cache.ttl_ms = share(cache.subscribers, subscribers, low, high, grown, rules.cap_ms)
            add_product(windows.expected, window, grown, cache.ttl_ms)
        state.rescore(broker, rules, which, True)


class ResultReplayKernel(Protocol):
    """The replay of a table under one policy, which fills in the broker's sums."""

    def __call__(
        self, rows: Rows, broker: BrokerCaches, subscribers: SubscriberTable, windows: Windows, rules: ReplayRules
    ) -> object: ...


@cache
def compiled_results(policy: ResultPolicy) -> ResultReplayKernel:
    """Return the kernel of a policy, made at most once in a process."""
    return run if policy.score is None else _scored(policy.score)


def _scored(function: TailScore) -> ResultReplayKernel:
    score = jitable(function)
    # Code is cached on disk by the sources of this package; functions from elsewhere may change without them.
    keep = function.__module__.partition(".")[0] == "newsstand"

    @borrowing(cache=keep, nogil=True)
    def replay(rows, broker, subscribers, windows, rules):  # type: ignore[no-untyped-def]
        while run(rows, broker, subscribers, windows, rules):
            unpushed = broker.numbers[state.FULL] if rules.evicts_on_put else state.NO_CACHE
            while broker.numbers[state.BYTES] > rules.budget:
                for i in range(broker.numbers[state.STALE]):
                    which = broker.stale[i]
                    cache = broker.caches[which]
                    cache.stale = 0
                    if cache.tail > cache.newest:
                        state.discard(broker.ranking, which)
                        continue
                    behind, lowest = cache.behind, math.inf
                    cache.victim = cache.tail
                    for position in range(cache.tail, (cache.newest if rules.anywhere else cache.tail) + 1):
                        if position > cache.tail:
                            behind += broker.acked_at[position - 1]
                            if not broker.held[position]:
                                continue
                        waiting = behind
                        if which == unpushed and position == cache.newest:
                            waiting += cache.online
                        size = state.size_of(broker, position)
                        inserted_ms = broker.positions[position].inserted_ms
                        accessed_ms = expires_ms = inserted_ms
                        if not rules.anywhere:
                            accessed_ms = cache.accessed_ms
                            expires_ms = state.expires_ms(broker, rules, cache, position)
                        value = float(score(Tail(size, waiting, inserted_ms, accessed_ms, expires_ms)))
                        if math.isnan(value):
                            raise ValueError("the score is NaN")
                        if value < lowest:
                            cache.victim, lowest = position, value
                    state.rank(broker.ranking, which, lowest)
                broker.numbers[state.STALE] = 0
                victim = state.lowest(broker.ranking)
                cache = broker.caches[victim]
                state.remove(broker, rules, cache, cache.victim, state.DROPPED)
                state.rescore(broker, rules, victim, True)

    return replay


@borrowing(cache=True, nogil=True)
def run(rows, broker, subscribers, windows, rules):  # type: ignore[no-untyped-def]
    """Replay until there is a victim to choose (True), or all of the table."""
    if broker.numbers[state.FULL] != state.NO_CACHE:
        room_made(broker, rules, broker.numbers[state.FULL])
        broker.numbers[state.FULL] = state.NO_CACHE
    for row in range(broker.numbers[state.ROW], len(rows.kind)):
        now = rows.time_ms[row]
        if now > broker.numbers[state.NOW] or rules.expires:
            advance(broker, windows, rules, now)
        kind = rows.kind[row]
        if kind == RESULT:
            if result(broker, rules, rows.subscription[row], rows.size[row]):
                broker.numbers[state.ROW] = row + 1
                return True
            continue
        who = rows.subscriber[row]
        if kind == LOGIN:
            done = presence.login(broker, subscribers, rules, who)
        elif kind == LOGOUT:
            done = presence.logout(broker, subscribers, who)
        elif kind == SUBSCRIBE:
            done = presence.subscribe(broker, subscribers, who, rows.subscription[row])
        else:
            done = presence.unsubscribe(broker, subscribers, rules, who, rows.subscription[row])
        if not done:
            add(broker.sums, state.IGNORED, 1)
    advance(broker, windows, rules, rules.end_ms)
    add(broker.sums, state.PENDING_END, presence.pending(broker, subscribers))
    add(broker.sums, state.LEFT_BYTES, broker.numbers[state.BYTES])
    add(broker.sums, state.LEFT_OBJECTS, broker.numbers[state.OBJECTS])
    return False


@borrowing(cache=True, forceinline=True)
def result(broker, rules, which, size):  # type: ignore[no-untyped-def]
    """Put a result and deliver it to all online subscribers; return True if room has to be made first."""
    cache = broker.caches[which]
    add(broker.sums, state.RESULTS, 1)
    cache.newest += 1
    if cache.subscribers == 0:
        cache.tail = cache.newest + 1
        add(broker.sums, state.ORPHANS, 1)
        return False
    add(broker.sums, state.VOL_BYTES, size)
    if rules.keeps:
        broker.numbers[state.BYTES] += size
        broker.numbers[state.OBJECTS] += 1
        add(broker.sums, state.TTL_INSERT, cache.ttl_ms)
        cache.put += 1
        cache.ttl_put_ms += cache.ttl_ms
        cache.growth += size
        cache.accessed_ms = broker.numbers[state.NOW]
        if rules.anywhere:
            broker.held[cache.newest] = True
        if rules.stamps:
            broker.stamp_ms[cache.newest] = broker.numbers[state.NOW] + cache.ttl_ms
        state.rescore(broker, rules, which, cache.tail == cache.newest)
    else:
        cache.tail = cache.newest + 1
        cache.behind = cache.subscribers - cache.online
    if not rules.evicts_on_put:
        state.push(broker, rules, which)
    if rules.scores and broker.numbers[state.BYTES] > rules.budget:
        broker.numbers[state.FULL] = which
        return True
    if rules.bounded:
        drop_next_to_expire(broker, rules)
    room_made(broker, rules, which)
    return False


@borrowing(cache=True)
def drop_next_to_expire(broker, rules):  # type: ignore[no-untyped-def]
    """Drop tails before they expire, the earliest first, while the caches exceed the budget."""
    while broker.numbers[state.BYTES] > rules.budget:
        lowest = state.lowest(broker.ranking)
        state.remove_tail(broker, broker.caches[lowest], state.DROPPED)
        state.rescore(broker, rules, lowest, True)


@borrowing(cache=True, forceinline=True)
def room_made(broker, rules, which):  # type: ignore[no-untyped-def]
    """Sample the size; deliver the new result now if room is made before the delivery."""
    held = np.uint64(broker.numbers[state.BYTES])
    broker.sums[state.MAX_BYTES, 0] = max(broker.sums[state.MAX_BYTES, 0], held)
    if broker.numbers[state.NOW] >= rules.window_ms:
        broker.sums[state.MAX_BYTES_WARM, 0] = max(broker.sums[state.MAX_BYTES_WARM, 0], held)
    if rules.evicts_on_put:
        state.push(broker, rules, which)


@borrowing(cache=True)
def advance(broker, windows, rules, now):  # type: ignore[no-untyped-def]
    """Let tails expire and windows close, in the order of time, up to and including now."""
    while rules.keeps and (broker.numbers[state.CLOSED] + 1) * rules.window_ms <= now:
        closing = (broker.numbers[state.CLOSED] + 1) * rules.window_ms
        expire(broker, rules, closing)
        state.pass_to(broker, closing, rules.window_ms)
        close_window(broker, windows, rules)
        expire(broker, rules, closing)
    expire(broker, rules, now)
    state.pass_to(broker, now, rules.window_ms)


@borrowing(cache=True)
def expire(broker, rules, now):  # type: ignore[no-untyped-def]
    """Drop expired tails, the earliest first."""
    if not rules.expires:
        return
    lowest = state.lowest(broker.ranking)
    while lowest != state.NO_CACHE and broker.ranking.score[lowest] <= now:
        state.pass_to(broker, np.int64(broker.ranking.score[lowest]), rules.window_ms)
        state.remove_tail(broker, broker.caches[lowest], state.DROPPED)
        state.rescore(broker, rules, lowest, True)
        lowest = state.lowest(broker.ranking)
