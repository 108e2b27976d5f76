"""Replays that need the future: a strong heuristic, and upper bounds of hits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.caching.kernels.pages import HIT, MISS, REJECTED, STORED

Events = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Outcome = npt.NDArray[np.uint8]

SAMPLE = 128
"""The number of entries among which `belady_size` searches the worst."""


def belady_size(
    events: Events, sizes: Numbers, subscriptions: Numbers, capacity: int, beta: float, outcome: Outcome
) -> None:
    """Replay Belady's MIN for sizes: the largest size x distance to the next request leaves.

    A page that is not requested again is not cached. Among at most `SAMPLE` entries the worst is found exactly,
    among more it is the worst of `SAMPLE` draws, hashed from a counter; among equals the one requested later is
    worse. Pushes are ignored, and time is counted in requests.
    """
    requested = events >= 0
    outcome[~requested] = REJECTED
    outcome[requested] = _belady_size(events[requested], sizes, capacity)


def pfoo_l(
    events: Events, sizes: Numbers, subscriptions: Numbers, capacity: int, beta: float, outcome: Outcome
) -> None:
    """Compute PFOO-L, an upper bound on the hits of any policy that ignores pushes.

    Berger, Beckmann & Harchol-Balter, "Practical Bounds on Optimal Caching with Variable Object Sizes", POMACS
    2018, section 5. A request is a hit only if its page stayed cached since the request before, for only a request
    stores it. That interval uses size x length of a budget, which for the whole trace is capacity x requests, and
    no two intervals share any of it. So the intervals of a policy's hits cost no more than this budget in total,
    and no set of intervals within the budget has more members than the cheapest ones in order. The bound is one of
    the number of hits, not of their bytes, and may not be attainable.
    """
    requested = events >= 0
    requests = events[requested]
    hits = np.zeros(len(requests), np.bool_)
    hits[_taken(requests, sizes, capacity)[1]] = True
    outcome[~requested] = REJECTED
    outcome[requested] = np.where(hits, HIT, MISS)


def pfoo_l_push(
    events: Events, sizes: Numbers, subscriptions: Numbers, capacity: int, beta: float, outcome: Outcome
) -> None:
    """Compute PFOO-L with pushes that store pages, an upper bound on the hits of any policy.

    The proof is that of `pfoo_l` with time counted in events: a hit's page stayed cached since its last event, a
    push or a request, because only these store it. A push is marked as stored if its interval is chosen.
    """
    starts, ends = _taken(events, sizes, capacity)
    outcome[:] = np.where(events < 0, REJECTED, MISS)
    outcome[ends] = HIT
    outcome[starts[events[starts] < 0]] = STORED


def _taken(events: Events, sizes: Numbers, capacity: int) -> tuple[Numbers, Numbers]:
    """Return the starts and ends of the cheapest intervals within the budget, among equals the earliest.

    If the budget does not fit into 63 bits, bytes are counted in a coarser unit, with sizes rounded down and the
    capacity up, so that the result is still a bound.
    """
    unit = 1 << max(0, (int(capacity) * len(events)).bit_length() - 62)
    starts, ends, costs = _intervals(events, sizes, capacity, unit)
    order = np.argsort(costs, kind="stable")
    budget = -(-int(capacity) // unit) * len(events)
    order = order[: _affordable(costs, order, budget)]
    return starts[order], ends[order]


@njit(cache=True, nogil=True)
def _intervals(events: Events, sizes: Numbers, capacity: int, unit: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return the interval from each request back to the last event of its page: start, end, cost."""
    last = np.full(len(sizes), -1, np.int64)
    starts = np.empty(len(events), np.int64)
    ends = np.empty(len(events), np.int64)
    costs = np.empty(len(events), np.int64)
    found = 0
    for now in range(len(events)):
        page = max(events[now], ~events[now])
        if events[now] >= 0 and last[page] >= 0 and sizes[page] <= capacity:
            starts[found] = last[page]
            ends[found] = now
            costs[found] = sizes[page] // unit * (now - last[page])
            found += 1
        last[page] = now
    return starts[:found], ends[:found], costs[:found]


@njit(cache=True, nogil=True)
def _affordable(costs: Numbers, order: Numbers, budget: int) -> int:
    for bought in range(len(order)):
        budget -= costs[order[bought]]
        if budget < 0:
            return bought
    return len(order)


@njit(cache=True, nogil=True)
def _belady_size(requests: Events, sizes: Numbers, capacity: int) -> Outcome:
    outcome = np.empty(len(requests), np.uint8)
    following = _following(requests, len(sizes))
    place = np.full(len(sizes), -1, np.int32)
    page_at = np.empty(len(sizes), np.int32)
    size_and_next = np.empty((len(sizes), 2), np.float64)
    entries = evictions = 0
    free = capacity
    for now in range(len(requests)):
        page = requests[now]
        size = sizes[page]
        cached = place[page] >= 0
        outcome[now] = HIT if cached else MISS
        returns = following[now] < len(requests)
        if cached and returns:
            size_and_next[place[page], 1] = following[now]
        elif cached:
            free += size
            _take_out(place[page], place, page_at, size_and_next, entries)
            entries -= 1
        elif returns and size <= capacity:
            while free < size:
                slot = _worst(size_and_next, entries, now, evictions)
                evictions += 1
                free += sizes[page_at[slot]]
                _take_out(slot, place, page_at, size_and_next, entries)
                entries -= 1
            free -= size
            place[page] = entries
            page_at[entries] = page
            size_and_next[entries, 0] = size
            size_and_next[entries, 1] = following[now]
            entries += 1
    return outcome


@njit(cache=True)
def _following(requests: Events, pages: int) -> Numbers:
    """Return for each request the next one of its page, or the number of requests if there is none."""
    ahead = np.full(pages, len(requests), np.int64)
    following = np.empty(len(requests), np.int64)
    for now in range(len(requests) - 1, -1, -1):
        following[now] = ahead[requests[now]]
        ahead[requests[now]] = now
    return following


@njit(cache=True)
def _worst(size_and_next: npt.NDArray[np.float64], entries: int, now: int, evictions: int) -> int:
    worst = -1
    highest = 0.0
    for draw in range(min(entries, SAMPLE)):
        slot = draw if entries <= SAMPLE else mix(evictions * SAMPLE + draw) * entries >> 32
        cost = size_and_next[slot, 0] * (size_and_next[slot, 1] - now)
        if cost > highest or (cost == highest and size_and_next[slot, 1] > size_and_next[worst, 1]):
            highest = cost
            worst = slot
    return worst


@njit(cache=True)
def mix(counter: int) -> int:
    """Return a hash of 32 bits: the finalizer of SplitMix64 (Steele, Lea & Flood 2014)."""
    z = (np.uint64(counter) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((z ^ (z >> np.uint64(31))) >> np.uint64(32))


@njit(cache=True)
def _take_out(
    slot: int,
    place: npt.NDArray[np.int32],
    page_at: npt.NDArray[np.int32],
    size_and_next: npt.NDArray[np.float64],
    entries: int,
) -> None:
    """Remove the entry of a slot and move the last entry there."""
    last = entries - 1
    place[page_at[slot]] = -1
    if slot != last:
        page_at[slot] = page_at[last]
        size_and_next[slot] = size_and_next[last]
        place[page_at[slot]] = slot
