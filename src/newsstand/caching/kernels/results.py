"""The replay of broker events through result caches, compiled: the twin of `newsstand.caching.results`.

The victim is chosen by the policy's own scoring function. A result costs the same whoever is online, and a
retrieval the same however much is pending; only what leaves the caches does so one by one.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from newsstand.caching.bad2018 import ResultPolicy, Tail, TailScore
from newsstand.caching.kernels import results_broker as state
from newsstand.caching.kernels import results_crowd as crowds
from newsstand.caching.kernels import results_ranking as rankings
from newsstand.caching.kernels.jitable import jitable
from newsstand.caching.kernels.results_broker import Broker, Rules
from newsstand.caching.kernels.results_crowd import Crowd
from newsstand.caching.kernels.results_jit import borrowing
from newsstand.caching.kernels.results_sums import add
from newsstand.caching.kernels.results_table import LOGIN, LOGOUT, RESULT, SUBSCRIBE, Rows
from newsstand.caching.kernels.results_windows import Windows, close_window


class Replay(Protocol):
    """The replay of a table under one policy; the broker's sums are what it comes to."""

    def __call__(self, rows: Rows, broker: Broker, crowd: Crowd, windows: Windows, rules: Rules) -> object: ...


_compiled: dict[ResultPolicy, Replay] = {}


def compiled_results(policy: ResultPolicy) -> Replay:
    """The kernel of a policy, made at most once in a process."""
    if policy not in _compiled:
        _compiled[policy] = run if policy.score is None else _scored(policy.score)
    return _compiled[policy]


def _scored(function: TailScore) -> Replay:
    score = jitable(function)
    # Code is kept on disk under the sources of this package: a function from elsewhere may change without them.
    keep = function.__module__.partition(".")[0] == "newsstand"

    @borrowing(cache=keep, nogil=True)
    def replay(rows, broker, crowd, windows, rules):  # type: ignore[no-untyped-def]
        while run(rows, broker, crowd, windows, rules):
            unpushed = broker.numbers[state.FULL] if rules.evicts_on_put else rankings.NOBODY
            while broker.numbers[state.BYTES] > rules.budget:
                for i in range(broker.numbers[state.STALE]):
                    which = broker.stale[i]
                    cache = broker.caches[which]
                    cache.stale = 0
                    if cache.tail > cache.newest:
                        rankings.discard(broker.ranking, which)
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
                    rankings.rank(broker.ranking, which, lowest)
                broker.numbers[state.STALE] = 0
                victim = rankings.lowest(broker.ranking)
                cache = broker.caches[victim]
                state.remove(broker, rules, cache, cache.victim, state.DROPPED)
                state.rescore(broker, rules, victim, True)

    return replay


@borrowing(cache=True, nogil=True)
def run(rows, broker, crowd, windows, rules):  # type: ignore[no-untyped-def]
    """Replay until there is a victim to choose (True), or all of the table."""
    if broker.numbers[state.FULL] != rankings.NOBODY:
        room_made(broker, rules, broker.numbers[state.FULL])
        broker.numbers[state.FULL] = rankings.NOBODY
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
            done = crowds.login(broker, crowd, rules, who)
        elif kind == LOGOUT:
            done = crowds.logout(broker, crowd, who)
        elif kind == SUBSCRIBE:
            done = crowds.subscribe(broker, crowd, who, rows.subscription[row])
        else:
            done = crowds.unsubscribe(broker, crowd, rules, who, rows.subscription[row])
        if not done:
            add(broker.sums, state.IGNORED, 1)
    advance(broker, windows, rules, rules.end_ms)
    add(broker.sums, state.PENDING_END, crowds.pending(broker, crowd))
    add(broker.sums, state.LEFT_BYTES, broker.numbers[state.BYTES])
    add(broker.sums, state.LEFT_OBJECTS, broker.numbers[state.OBJECTS])
    return False


@borrowing(cache=True, forceinline=True)
def result(broker, rules, which, size):  # type: ignore[no-untyped-def]
    """Put a result and hand it to all who are online; True if room has to be made first."""
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
        lowest = rankings.lowest(broker.ranking)
        state.remove_tail(broker, broker.caches[lowest], state.DROPPED)
        state.rescore(broker, rules, lowest, True)


@borrowing(cache=True, forceinline=True)
def room_made(broker, rules, which):  # type: ignore[no-untyped-def]
    """Sample the size; if room comes first, those who are online get what was put only now."""
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
    """Drop the tails whose time has come, the earliest first."""
    if not rules.expires:
        return
    lowest = rankings.lowest(broker.ranking)
    while lowest != rankings.NOBODY and broker.ranking.score[lowest] <= now:
        state.pass_to(broker, np.int64(broker.ranking.score[lowest]), rules.window_ms)
        state.remove_tail(broker, broker.caches[lowest], state.DROPPED)
        state.rescore(broker, rules, lowest, True)
        lowest = rankings.lowest(broker.ranking)
