"""What the subscribers of bad2018 do: each on its own, drawn until the end of the simulated time."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from newsstand.workload.bad2018 import (
    JOINING,
    MINUTE,
    PRESENCE,
    SUBSCRIBING,
    Ints,
    SimulationSettings,
)
from newsstand.workload.randomness import uniform

KINDS = ("unsubscribe", "subscribe", "logout", "login", "result")
"""In the order of rows of one time: what ends goes before what takes its place."""
UNSUBSCRIBE, SUBSCRIBE, LOGOUT, LOGIN, RESULT = range(len(KINDS))


class Doings(NamedTuple):
    """Events of subscribers; `subscription` is -1 where they log in or out."""

    time: Ints
    kind: Ints
    subscriber: Ints
    subscription: Ints


def doings(settings: SimulationSettings, first: int, last: int) -> Doings:
    """All that the subscribers from `first` to before `last` do, in no order."""
    seed, end = np.uint64(settings.seed), settings.end_ms
    join = _joins(seed, first, last, settings.join_minutes * MINUTE, end)
    stationary = settings.start == "stationary"
    presence = _presence(seed, first, join, end, settings.on, settings.off, stationary)
    cumulative = np.cumsum(settings.popularities)
    choices = _choices(seed, first, join, end, settings.duration, settings.per_subscriber, cumulative)
    return Doings(*np.concatenate([presence, choices], axis=1))


@njit(cache=True)
def _draw(seed, stream, subscriber, place):  # type: ignore[no-untyped-def]
    """The number in (0, 1] at a place of a subscriber's stream."""
    return uniform(seed, (stream << 48) | subscriber, place)


@njit(cache=True)
def _lasts(seed, stream, subscriber, place, law, longest):  # type: ignore[no-untyped-def]
    """Whole milliseconds, from one to `longest`, of a log-normal law of minutes; takes two places."""
    radius = math.sqrt(-2.0 * math.log(_draw(seed, stream, subscriber, place)))
    normal = radius * math.cos(2.0 * math.pi * _draw(seed, stream, subscriber, place + 1))
    drawn = math.exp(law[0] + law[1] * normal) * MINUTE
    return np.int64(min(max(drawn + 0.5, 1.0), longest))


@njit(cache=True)
def _row(rows, used, time, kind, subscriber, subscription):  # type: ignore[no-untyped-def]
    """Write a row, into a table twice as long if this one is full."""
    if used == rows.shape[1]:
        longer = np.empty((4, 2 * used), np.int64)
        longer[:, :used] = rows
        rows = longer
    rows[0, used] = time
    rows[1, used] = kind
    rows[2, used] = subscriber
    rows[3, used] = subscription
    return rows, used + 1


@njit(cache=True)
def _joins(seed, first, last, within, end):  # type: ignore[no-untyped-def]
    """When each subscriber joins."""
    join = np.empty(last - first, np.int64)
    for subscriber in range(first, last):
        drawn = (1.0 - _draw(seed, JOINING, subscriber, 0)) * within
        join[subscriber - first] = min(np.int64(drawn), end - 1)
    return join


@njit(cache=True)
def _presence(seed, first, join, end, on, off, stationary):  # type: ignore[no-untyped-def]
    """Log in and out in turn; everybody is offline before joining."""
    rows, used = np.empty((4, 4096), np.int64), 0
    mean_on, mean_off = math.exp(on[0] + on[1] ** 2 / 2), math.exp(off[0] + off[1] ** 2 / 2)
    for subscriber in range(first, first + len(join)):
        now, online, law, place = join[subscriber - first], True, on, 2
        if stationary:
            online = _draw(seed, PRESENCE, subscriber, 0) * (mean_on + mean_off) <= mean_on
            law = on if online else off
            # Who looks in finds a long stay more likely than a short one, and at any point of it.
            found = law[0] + law[1] ** 2 + math.log(_draw(seed, PRESENCE, subscriber, 1))
            law = (found, law[1])
        if online:
            rows, used = _row(rows, used, now, LOGIN, subscriber, -1)
        now += _lasts(seed, PRESENCE, subscriber, place, law, end)
        while now < end:
            online = not online
            place += 2
            rows, used = _row(rows, used, now, LOGIN if online else LOGOUT, subscriber, -1)
            now += _lasts(seed, PRESENCE, subscriber, place, on if online else off, end)
    return rows[:, :used]


@njit(cache=True)
def _choices(seed, first, join, end, duration, live, cumulative):  # type: ignore[no-untyped-def]
    """Subscribe `live` times, and again whenever a subscription ends."""
    rows, used = np.empty((4, 4096), np.int64), 0
    held, until = np.empty(live, np.int64), np.empty(live, np.int64)
    for subscriber in range(first, first + len(join)):
        now, count, place = join[subscriber - first], 0, 0
        while now < end:
            while count < live:
                chosen = choose(1.0 - _draw(seed, SUBSCRIBING, subscriber, place), held[:count], cumulative)
                at = count
                while at > 0 and held[at - 1] > chosen:
                    held[at], until[at] = held[at - 1], until[at - 1]
                    at -= 1
                held[at] = chosen
                until[at] = now + _lasts(seed, SUBSCRIBING, subscriber, place + 1, duration, end)
                rows, used = _row(rows, used, now, SUBSCRIBE, subscriber, chosen)
                count += 1
                place += 3
            over = np.argmin(until)
            now = until[over]
            if now < end:
                rows, used = _row(rows, used, now, UNSUBSCRIBE, subscriber, held[over])
                count -= 1
                for at in range(over, count):
                    held[at], until[at] = held[at + 1], until[at + 1]
    return rows[:, :used]


@njit(cache=True)
def choose(share, taken, cumulative):  # type: ignore[no-untyped-def]
    """The item that a share in [0, 1) of the weight of all but the `taken` ones, which ascend, falls on."""
    weight = cumulative[-1]
    for item in taken:
        weight -= cumulative[item] - (cumulative[item - 1] if item else 0.0)
    at = share * weight
    for item in taken:
        before = cumulative[item - 1] if item else 0.0
        if at < before:
            break
        at += cumulative[item] - before
    low, high = 0, len(cumulative) - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > at:
            high = middle
        else:
            low = middle + 1
    # Where sums were rounded, one that is taken may have been met; the next that is not may lie at the beginning.
    for _ in range(2):
        for item in taken:
            if item == low:
                low = (low + 1) % len(cumulative)
    return low
