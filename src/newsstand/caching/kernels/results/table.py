"""A table of broker events arranged for replay: everything that does not depend on the policy is computed once.

Results of a subscription have adjacent positions in the order of arrival, after a first one for "no result yet".
Orphans have positions, too; no subscriber waits across one, as it would be attached then.
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
"""One result: the bytes of its subscription up to and including it, and its arrival."""


class Rows(NamedTuple):
    """The columns of a table, with small ids in the original order."""

    time_ms: npt.NDArray[np.int64]
    kind: npt.NDArray[np.uint8]
    subscriber: npt.NDArray[np.int64]
    subscription: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]


class ResultTable(NamedTuple):
    """A table of events with indices."""

    rows: Rows
    positions: npt.NDArray[np.void]
    first_position: npt.NDArray[np.int64]
    """By subscription, the position before its first result; the last element is the number of positions."""
    paired_with: npt.NDArray[np.int32]
    """The subscriptions that each subscriber ever makes, in ascending order, subscriber by subscriber."""
    first_pair: npt.NDArray[np.int64]
    """By subscriber, the index of its first subscription; the last element is the number of pairs."""
    largest: int
    """The bytes of the largest result."""


def arrange(
    time_ms: npt.NDArray[np.int64],
    kind: npt.NDArray[np.uint8],
    subscriber: npt.NDArray[np.int64],
    subscription: npt.NDArray[np.int64],
    size: npt.NDArray[np.int64],
) -> ResultTable:
    """Check a table and arrange it; columns with small ids are used unchanged."""
    if len(kind) > _MOST_ROWS:
        raise BadTrace(f"{len(kind)} events: the compiled replay takes up to {_MOST_ROWS}")
    fault, row, last_subscriber, last_subscription, results, total, largest = _survey(
        time_ms, kind, subscriber, subscription, size
    )
    if fault != _FINE:
        raise BadTrace(f"row {row + 1}: {_FAULTS[fault]}")
    if total > _MOST_BYTES:
        raise BadTrace("the results have more than 2^62 bytes in total, which the compiled replay cannot count")
    subscriber, people = _small(subscriber, last_subscriber + 1)
    subscription, caches = _small(subscription, last_subscription + 1)
    subscribes = np.flatnonzero(kind == SUBSCRIBE)
    pairs = np.unique(subscriber[subscribes] * caches + subscription[subscribes])
    first_pair = np.searchsorted(pairs, np.arange(people + 1) * caches)
    pairs %= max(1, caches)
    rows = Rows(time_ms, kind, subscriber, subscription, size)
    positions = np.zeros(results + caches, POSITION)
    first_position = _place(rows, positions, caches)
    return ResultTable(rows, positions, first_position, pairs.astype(np.int32), first_pair, largest)


def most_subscribers(table: ResultTable) -> int:
    """Return the largest number of subscribers that could be attached to one subscription."""
    return int(np.bincount(table.paired_with).max(initial=0))


def _small(ids: npt.NDArray[np.int64], number: int) -> tuple[npt.NDArray[np.int64], int]:
    """Return the ids if they are small enough to be indices of arrays, else their ranks; and their number."""
    if number <= 2**16 + len(ids) // 16:
        return ids, number
    known, ranks = np.unique(ids, return_inverse=True)
    return ranks.astype(np.int64, copy=False), len(known)


@njit(cache=True, nogil=True)
def _survey(time_ms, kind, subscriber, subscription, size):  # type: ignore[no-untyped-def]
    """Return the fault and its row, the largest of both ids, and the number, bytes and largest size of results."""
    fault, row = _FINE, 0
    last_subscriber = last_subscription = -1
    results = before = largest = 0
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
        if what == RESULT:
            results += 1
            total += size[row]
            largest = max(largest, size[row])
            if size[row] < 1:
                fault = _NO_SIZE
        if fault != _FINE:
            break
    return fault, row, last_subscriber, last_subscription, results, total, largest


@njit(cache=True, nogil=True)
def _place(rows, positions, caches):  # type: ignore[no-untyped-def]
    """Fill in the positions; return the first one of each subscription."""
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
