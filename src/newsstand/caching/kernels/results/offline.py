"""The retrievals of a table of broker events and their value, for bounds that know the future.

Online subscribers have all objects, whatever the policy. So the retrievals that a cache can save, the *late* ones,
are those at logins, and follow from the table alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.caching.kernels import borrowing
from newsstand.caching.kernels.results import broker as state
from newsstand.caching.kernels.results import subscribers as presence
from newsstand.caching.kernels.results.broker import ReplayRules, new_broker_caches
from newsstand.caching.kernels.results.replay import result
from newsstand.caching.kernels.results.subscribers import new_subscriber_table
from newsstand.caching.kernels.results.table import LOGIN, LOGOUT, RESULT, SUBSCRIBE, ResultTable

Numbers = npt.NDArray[np.int64]


class LateRetrievals(NamedTuple):
    """The late retrievals of a table by object, in the order of time."""

    size: Numbers
    arrived_ms: Numbers
    first: Numbers
    """By object, the index of its first retrieval; the last element is the number of retrievals."""
    at_ms: Numbers
    pushed: int
    """Retrievals of objects by subscribers that are online when they arrive, which are not late."""


def late_retrievals(table: ResultTable) -> LateRetrievals:
    """Return all late retrievals of an arranged table."""
    rules = _NOTHING_KEPT
    broker, subscribers = new_broker_caches(table, rules), new_subscriber_table(table)
    spans = np.empty((_LATE_AT_FIRST, 3), np.int64)
    found = _spans(table.rows, broker, subscribers, rules, spans)
    if found > len(spans):
        broker, subscribers = new_broker_caches(table, rules), new_subscriber_table(table)
        spans = np.empty((found, 3), np.int64)
        _spans(table.rows, broker, subscribers, rules, spans)
    spans = spans[:found]
    # A span raises the number of retrievals from its first position on, and lowers it again after its last.
    steps = np.zeros(len(table.positions) + 1, np.int64)
    np.add.at(steps, spans[:, 0] + 1, 1)
    np.add.at(steps, spans[:, 1] + 1, -1)
    first = np.concatenate(([0], np.cumsum(np.cumsum(steps[:-1]))))
    at_ms = np.empty(first[-1], np.int64)
    _fill(spans, first[:-1].copy(), at_ms)
    size = np.diff(table.positions["bytes_upto"], prepend=0)
    return LateRetrievals(
        size, table.positions["inserted_ms"], first, at_ms, int(broker.sums[state.MISSES_PUSH, 0])
    )


_LATE_AT_FIRST = 1 << 20
_NOTHING_KEPT = ReplayRules(0, 0, 2**53, 1, 0, 0, *[False] * 8)


@borrowing(cache=True, nogil=True)
def _spans(rows, broker, subscribers, rules, spans):  # type: ignore[no-untyped-def]
    """Write (after, until, time) of as many late retrievals as fit; return their total number."""
    found = 0
    for row in range(len(rows.kind)):
        kind = rows.kind[row]
        if kind == RESULT:
            result(broker, rules, rows.subscription[row], rows.size[row])
            continue
        who = rows.subscriber[row]
        if kind == LOGIN:
            person = subscribers.people[who]
            if not person.online:
                for place in range(person.first_pair, person.first_pair + person.subscribed):
                    pair = subscribers.pairs[subscribers.pairs[place].active]
                    newest = broker.caches[pair.subscription].newest
                    if pair.acked < newest:
                        if found < len(spans):
                            spans[found, 0] = pair.acked
                            spans[found, 1] = newest
                            spans[found, 2] = rows.time_ms[row]
                        found += 1
            presence.login(broker, subscribers, rules, who)
        elif kind == LOGOUT:
            presence.logout(broker, subscribers, who)
        elif kind == SUBSCRIBE:
            presence.subscribe(broker, subscribers, who, rows.subscription[row])
        else:
            presence.unsubscribe(broker, subscribers, rules, who, rows.subscription[row])
    return found


@njit(cache=True, nogil=True)
def _fill(spans, following, at_ms):  # type: ignore[no-untyped-def]
    """Write the time of every retrieval; spans, and so those of each object, are in the order of time."""
    for number in range(len(spans)):
        for position in range(spans[number, 0] + 1, spans[number, 1] + 1):
            at_ms[following[position]] = spans[number, 2]
            following[position] += 1


@njit(cache=True, nogil=True)
def buy(late, value, paid_until, slot_ms, used, until):  # type: ignore[no-untyped-def]
    """Return the total gain if each object is cached for the time with the largest gain at these prices.

    `paid_until[n]` is the price of a byte from the start to the n-th slot. The function fills in `used`, the bytes
    times milliseconds in each slot, and `until`, the time until which each object is cached.
    """
    used[:] = 0
    gained = 0.0
    for which in range(len(late.size)):
        start, end = late.first[which], late.first[which + 1]
        until[which] = late.arrived_ms[which]
        best = 0.0
        entry = _paid(paid_until, slot_ms, late.arrived_ms[which])
        for number in range(start, end):
            price = late.size[which] * (_paid(paid_until, slot_ms, late.at_ms[number]) - entry)
            gain = (number + 1 - start) * value[which] - price
            if gain > best:
                best = gain
                until[which] = late.at_ms[number]
        gained += best
        _use(used, slot_ms, late.arrived_ms[which], until[which], late.size[which])
    return gained


@njit(cache=True, inline="always")
def _paid(paid_until, slot_ms, moment):  # type: ignore[no-untyped-def]
    slot = moment // slot_ms
    part = (moment - slot * slot_ms) / slot_ms
    return paid_until[slot] + part * (paid_until[slot + 1] - paid_until[slot])


@njit(cache=True)
def _use(used, slot_ms, start, end, size):  # type: ignore[no-untyped-def]
    while start < end:
        slot = start // slot_ms
        stop = min(end, (slot + 1) * slot_ms)
        used[slot] += float(size) * (stop - start)
        start = stop
