"""A table of broker events, arranged for replay: what does not depend on the policy is found once.

Results of a subscription have positions: side by side, in order of arrival, after a first one that stands for
"nothing yet". Orphans have theirs, too; nobody ever waits across one, for then somebody would be attached.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.errors import BadTrace

LOGIN, LOGOUT, SUBSCRIBE, UNSUBSCRIBE, RESULT = range(5)
"""The kinds of events."""

_FINE, _BACK, _UNKNOWN, _NO_SIZE, _NO_ID = range(5)
_FAULTS = {
    _BACK: "time_ms is negative or before that of the row above",
    _UNKNOWN: "unknown kind",
    _NO_SIZE: "size is not positive",
    _NO_ID: "a negative subscriber or subscription",
}
_MOST_ROWS = 2**31 - 2**20
_MOST_BYTES = 2**62


POSITION = np.dtype([("bytes_upto", np.int64), ("inserted_ms", np.int64)], align=True)
"""Of one result: the bytes of all of its subscription up to it, and when it came."""


class Rows(NamedTuple):
    """The columns of a table, ids made small but kept in order."""

    time_ms: npt.NDArray[np.int64]
    kind: npt.NDArray[np.uint8]
    subscriber: npt.NDArray[np.int64]
    subscription: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]


class ResultTable(NamedTuple):
    """A table of events, and where to find what."""

    rows: Rows
    positions: npt.NDArray[np.void]
    first_position: npt.NDArray[np.int64]
    """By subscription, the position before its first result; at last, how many there are."""
    paired_with: npt.NDArray[np.int32]
    """The subscriptions that a subscriber ever makes, in their order, subscriber by subscriber."""
    first_pair: npt.NDArray[np.int64]
    """By subscriber, where its subscriptions begin; at last, how many there are."""
    largest: int
    """The bytes of the largest result."""


class _Survey(NamedTuple):
    fault: int
    row: int
    last_subscriber: int
    last_subscription: int
    results: int
    subscribes: int
    bytes: float
    largest: int


def arrange(
    time_ms: npt.NDArray[np.int64],
    kind: npt.NDArray[np.uint8],
    subscriber: npt.NDArray[np.int64],
    subscription: npt.NDArray[np.int64],
    size: npt.NDArray[np.int64],
) -> ResultTable:
    """Check a table and arrange it; columns whose ids are small already are used as they are."""
    if len(kind) > _MOST_ROWS:
        raise BadTrace(f"{len(kind)} events: the compiled replay takes up to {_MOST_ROWS}")
    found = _Survey(*_survey(time_ms, kind, subscriber, subscription, size))
    if found.fault != _FINE:
        raise BadTrace(f"row {found.row + 1}: {_FAULTS[found.fault]}")
    if found.bytes > _MOST_BYTES:
        raise BadTrace("the results come to more than 2^62 bytes, which the compiled replay cannot count")
    subscriber, people = _small(subscriber, found.last_subscriber + 1)
    subscription, caches = _small(subscription, found.last_subscription + 1)
    pairs = _pairs(kind, subscriber, subscription, caches, found.subscribes)
    pairs.sort()
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    first_pair = np.searchsorted(pairs, np.arange(people + 1) * caches)
    pairs %= max(1, caches)
    rows = Rows(time_ms, kind, subscriber, subscription, size)
    positions = np.zeros(found.results + caches, POSITION)
    first_position = _place(rows, positions, caches)
    return ResultTable(rows, positions, first_position, pairs.astype(np.int32), first_pair, found.largest)


def most_subscribers(table: ResultTable) -> int:
    """How many could be attached to one subscription at most."""
    return int(np.bincount(table.paired_with).max(initial=0))


def _small(ids: npt.NDArray[np.int64], number: int) -> tuple[npt.NDArray[np.int64], int]:
    """Ids as they are if arrays over all smaller ones are no burden, else their ranks; and how many there are."""
    if number <= 2**16 + len(ids) // 16:
        return ids, number
    known, ranks = np.unique(ids, return_inverse=True)
    return ranks.astype(np.int64, copy=False), len(known)


@njit(cache=True, nogil=True)
def _survey(time_ms, kind, subscriber, subscription, size):  # type: ignore[no-untyped-def]
    fault, row = _FINE, 0
    last_subscriber = last_subscription = -1
    results = subscribes = before = largest = 0
    total = 0.0
    for row in range(len(kind)):
        what = kind[row]
        if time_ms[row] < before:
            fault = _BACK
        before = time_ms[row]
        if what > RESULT:
            fault = _UNKNOWN
        if what != RESULT:
            last_subscriber = max(last_subscriber, subscriber[row])
            if subscriber[row] < 0:
                fault = _NO_ID
        if what >= SUBSCRIBE:
            last_subscription = max(last_subscription, subscription[row])
            if subscription[row] < 0:
                fault = _NO_ID
        if what == SUBSCRIBE:
            subscribes += 1
        if what == RESULT:
            results += 1
            total += size[row]
            largest = max(largest, size[row])
            if size[row] < 1:
                fault = _NO_SIZE
        if fault != _FINE:
            break
    return fault, row, last_subscriber, last_subscription, results, subscribes, total, largest


@njit(cache=True, nogil=True)
def _pairs(kind, subscriber, subscription, caches, subscribes):  # type: ignore[no-untyped-def]
    """Who subscribes to what, as one number a row."""
    pairs = np.empty(subscribes, np.int64)
    found = 0
    for row in range(len(kind)):
        if kind[row] == SUBSCRIBE:
            pairs[found] = subscriber[row] * caches + subscription[row]
            found += 1
    return pairs


@njit(cache=True, nogil=True)
def _place(rows, positions, caches):  # type: ignore[no-untyped-def]
    """Fill in the positions; where those of each subscription begin."""
    first = np.zeros(caches + 1, np.int64)
    for row in range(len(rows.kind)):
        if rows.kind[row] == RESULT:
            first[rows.subscription[row] + 1] += 1
    for cache in range(caches):
        first[cache + 1] += first[cache] + 1
    newest = first.copy()
    for row in range(len(rows.kind)):
        if rows.kind[row] == RESULT:
            position = newest[rows.subscription[row]] + 1
            newest[rows.subscription[row]] = position
            positions[position].bytes_upto = positions[position - 1].bytes_upto + rows.size[row]
            positions[position].inserted_ms = rows.time_ms[row]
    return first
