"""What each proxy sees, as arrays that a kernel can replay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Timeline:
    """The events of many proxies, one after the other.

    Proxy g has the events `event_offset[g]` to `event_offset[g + 1]`: a page's number for a request, its
    complement for a push. Its pages are numbered from 0 and described from `page_offset[g]` on.
    """

    proxies: npt.NDArray[np.int32]
    event_offset: Ints
    events: npt.NDArray[np.int32]
    page_offset: Ints
    sizes: Ints
    subscriptions: Ints
    requested_bytes: Ints
    """B of each proxy: the bytes of the distinct pages requested there."""
    hours: npt.NDArray[np.float64] | None
    """The hours in which anything happens, if asked for …"""
    hour: Ints | None
    """… and of each event, which of them it falls into."""

    def __len__(self) -> int:
        return len(self.proxies)


def timeline(
    proxies: npt.NDArray[np.int32],
    event_offset: Ints,
    keys: Ints,
    is_push: npt.NDArray[np.bool_],
    sizes: Ints,
    counts: Ints,
    times: npt.NDArray[np.float64] | None = None,
    *,
    sized_by_key: bool = False,
) -> Timeline:
    """Number the pages of each proxy by first appearance.

    `keys` names the page of each event; `counts` (subscriptions) describes each event, and so does `sizes`
    unless it is `sized_by_key`.
    """
    events, page_offset, first = _number(event_offset, keys, is_push)
    page_sizes = sizes[keys[first] if sized_by_key else first]
    subscriptions = np.zeros(len(first), np.int64)
    _describe(event_offset, page_offset, events, counts, subscriptions)
    requested = np.zeros(len(proxies), np.int64)
    _requested_bytes(event_offset, page_offset, events, page_sizes, requested)
    hours, hour = None, None
    if times is not None:
        hours, hour = np.unique(np.floor(times / 3600.0), return_inverse=True)
    return Timeline(proxies, event_offset, events, page_offset, page_sizes, subscriptions, requested, hours, hour)


@njit(cache=True)
def _slot(table_key, table_page, key):  # type: ignore[no-untyped-def]
    mask = len(table_key) - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64((mixed >> np.uint64(32)) & np.uint64(mask))
    while table_page[slot] >= 0 and table_key[slot] != key:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True)
def _number(event_offset, keys, is_push):  # type: ignore[no-untyped-def]
    """Local page numbers by an open-addressing table that grows with a proxy's distinct pages."""
    groups = len(event_offset) - 1
    events = np.empty(len(keys), np.int32)
    page_offset = np.zeros(groups + 1, np.int64)
    first = np.empty(1024, np.int64)
    table_key = np.empty(64, np.int64)
    table_page = np.full(64, -1, np.int32)
    total = 0
    for group in range(groups):
        start, end = event_offset[group], event_offset[group + 1]
        # A table far larger than the group would cost more to clear than the group to number.
        if len(table_page) > 8 * (end - start) + 64:
            table_key = np.empty(64, np.int64)
            table_page = np.full(64, -1, np.int32)
        else:
            table_page[:] = -1
        pages = 0
        for i in range(start, end):
            slot = _slot(table_key, table_page, keys[i])
            page = table_page[slot]
            if page < 0:
                if 2 * (pages + 1) > len(table_page):
                    table_key = np.empty(2 * len(table_key), np.int64)
                    table_page = np.full(len(table_key), -1, np.int32)
                    for known in range(pages):
                        key = keys[first[total + known]]
                        again = _slot(table_key, table_page, key)
                        table_key[again] = key
                        table_page[again] = known
                    slot = _slot(table_key, table_page, keys[i])
                page = pages
                pages += 1
                table_key[slot] = keys[i]
                table_page[slot] = page
                if total + page >= len(first):
                    longer = np.empty(2 * len(first), np.int64)
                    longer[: total + page] = first[: total + page]
                    first = longer
                first[total + page] = i
            events[i] = ~page if is_push[i] else page
        total += pages
        page_offset[group + 1] = total
    return events, page_offset, first[:total].copy()


@njit(cache=True)
def _describe(event_offset, page_offset, events, counts, subscriptions):  # type: ignore[no-untyped-def]
    for group in range(len(event_offset) - 1):
        for i in range(event_offset[group], event_offset[group + 1]):
            if events[i] < 0:
                subscriptions[page_offset[group] + ~events[i]] = counts[i]


@njit(cache=True)
def _requested_bytes(event_offset, page_offset, events, sizes, requested):  # type: ignore[no-untyped-def]
    seen = np.zeros(len(sizes), np.uint8)
    for group in range(len(event_offset) - 1):
        base = page_offset[group]
        for i in range(event_offset[group], event_offset[group + 1]):
            page = events[i]
            if page >= 0 and not seen[base + page]:
                seen[base + page] = 1
                requested[group] += sizes[base + page]


@njit(cache=True)
def merge(request_offset, request_time, push_offset, push_time):  # type: ignore[no-untyped-def]
    """The order of each proxy's pushes and requests by time, pushes first at equal times.

    Both come sorted by time within a proxy. Returns the events' offsets and, for each event, the index of its
    request or the complement of the index of its push.
    """
    groups = len(request_offset) - 1
    offset = np.zeros(groups + 1, np.int64)
    source = np.empty(len(request_time) + len(push_time), np.int64)
    at = 0
    for group in range(groups):
        push, pushes = push_offset[group], push_offset[group + 1]
        for request in range(request_offset[group], request_offset[group + 1]):
            while push < pushes and push_time[push] <= request_time[request]:
                source[at] = ~push
                at += 1
                push += 1
            source[at] = request
            at += 1
        while push < pushes:
            source[at] = ~push
            at += 1
            push += 1
        offset[group + 1] = at
    return offset, source
