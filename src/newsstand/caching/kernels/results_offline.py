"""What a replay of broker events with the future in view needs: who retrieves what when, and what that is worth.

Everybody who is online has everything, whatever the cache does. So the retrievals that a cache can save, the
*late* ones, are those at logins, and the table alone tells them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.caching.kernels import results_broker as state
from newsstand.caching.kernels import results_crowd as crowds
from newsstand.caching.kernels.results import result
from newsstand.caching.kernels.results_broker import Rules, new_broker
from newsstand.caching.kernels.results_crowd import new_crowd
from newsstand.caching.kernels.results_jit import borrowing
from newsstand.caching.kernels.results_table import LOGIN, LOGOUT, RESULT, SUBSCRIBE, ResultTable

Numbers = npt.NDArray[np.int64]


class Late(NamedTuple):
    """The late retrievals of a table, by object and, for each of them, in the order of time."""

    size: Numbers
    arrived_ms: Numbers
    first: Numbers
    """By object, where its retrievals begin; at last, how many there are."""
    at_ms: Numbers
    pushed: int
    """Retrievals by those who are online when an object comes; they are no late ones."""


def late_retrievals(table: ResultTable) -> Late:
    """All late retrievals of a table that was arranged."""
    rules = _NOTHING_KEPT
    broker, crowd = new_broker(table, rules), new_crowd(table)
    spans = np.empty((_LATE_AT_FIRST, 3), np.int64)
    found = _spans(table.rows, broker, crowd, rules, spans)
    if found > len(spans):
        broker, crowd = new_broker(table, rules), new_crowd(table)
        spans = np.empty((found, 3), np.int64)
        _spans(table.rows, broker, crowd, rules, spans)
    spans = spans[:found]
    # A span raises the number of retrievals from its first position on, and lowers it again after its last.
    steps = np.zeros(len(table.positions) + 1, np.int64)
    np.add.at(steps, spans[:, 0] + 1, 1)
    np.add.at(steps, spans[:, 1] + 1, -1)
    first = np.concatenate(([0], np.cumsum(np.cumsum(steps[:-1]))))
    at_ms = np.empty(first[-1], np.int64)
    _fill(spans, first[:-1].copy(), at_ms)
    size = np.diff(table.positions["bytes_upto"], prepend=0)
    return Late(size, table.positions["inserted_ms"], first, at_ms, int(broker.sums[state.MISSES_PUSH, 0]))


_LATE_AT_FIRST = 1 << 20
_NOTHING_KEPT = Rules(0, 0, 2**53, 1, 0, 0, *[False] * 8)


@borrowing(cache=True, nogil=True)
def _spans(rows, broker, crowd, rules, spans):  # type: ignore[no-untyped-def]
    """Write (after, until, when) of every late retrieval, as many as fit; how many there are."""
    found = 0
    for row in range(len(rows.kind)):
        kind = rows.kind[row]
        if kind == RESULT:
            result(broker, rules, rows.subscription[row], rows.size[row])
            continue
        who = rows.subscriber[row]
        if kind == LOGIN:
            person = crowd.people[who]
            if not person.online:
                for place in range(person.first_pair, person.first_pair + person.subscribed):
                    pair = crowd.pairs[crowd.pairs[place].active]
                    newest = broker.caches[pair.subscription].newest
                    if pair.acked < newest:
                        if found < len(spans):
                            spans[found, 0] = pair.acked
                            spans[found, 1] = newest
                            spans[found, 2] = rows.time_ms[row]
                        found += 1
            crowds.login(broker, crowd, rules, who)
        elif kind == LOGOUT:
            crowds.logout(broker, crowd, who)
        elif kind == SUBSCRIBE:
            crowds.subscribe(broker, crowd, who, rows.subscription[row])
        else:
            crowds.unsubscribe(broker, crowd, rules, who, rows.subscription[row])
    return found


@njit(cache=True, nogil=True)
def _fill(spans, following, at_ms):  # type: ignore[no-untyped-def]
    """Write the moment of every retrieval; spans are in the order of time, so those of an object are, too."""
    for number in range(len(spans)):
        for position in range(spans[number, 0] + 1, spans[number, 1] + 1):
            at_ms[following[position]] = spans[number, 2]
            following[position] += 1


@njit(cache=True, nogil=True)
def buy(late, value, paid_until, slot_ms, used, until):  # type: ignore[no-untyped-def]
    """What all objects gain together if each is kept as long as pays best at these prices.

    `paid_until[n]` is the price of a byte from the start to that of the n-th slot. `used` takes the bytes times
    milliseconds that are held in each slot, and `until` the moment up to which each object is kept.
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
