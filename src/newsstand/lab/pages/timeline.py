"""The events of each proxy, as arrays that a kernel can replay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.workload.trace.numbering import number_groups

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
    """The hours in which anything happens, if wanted …"""
    hour: Ints | None
    """… and of each event, which of them it falls into."""
    share: float = 1.0
    """The share of the pages of each proxy that are here, with all of their events."""
    part: int | None = None
    """The place among the parts of a sample, if it is one (see `newsstand.lab.pages.sampling`)."""

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
    """Return a timeline with the pages of each proxy numbered by first appearance.

    `keys` names the page of each event; `counts` (subscriptions) describes each event, and so does `sizes`
    unless it is `sized_by_key`.
    """
    events, page_offset, first = number_groups(event_offset, keys)
    page_sizes = sizes[keys[first] if sized_by_key else first]
    subscriptions, requested = np.zeros(len(first), np.int64), np.zeros(len(proxies), np.int64)
    _describe(event_offset, page_offset, events, is_push, page_sizes, counts, subscriptions, requested)
    hours, hour = None, None
    if times is not None:
        hours, hour = np.unique(np.floor(times / 3600.0), return_inverse=True)
    return Timeline(proxies, event_offset, events, page_offset, page_sizes, subscriptions, requested, hours, hour)


@dataclass(frozen=True)
class RequestEvents:
    """The requests of many proxies, one proxy after the other, each in the order of time."""

    offset: Ints
    time: npt.NDArray[np.float64]
    publication: Ints


@dataclass(frozen=True)
class PushEvents:
    """The pushes of many proxies, one proxy after the other, each in the order of time."""

    offset: Ints
    publication: Ints
    count: Ints


def interleaved(
    proxies: npt.NDArray[np.int32],
    requests: RequestEvents,
    pushes: PushEvents,
    times: npt.NDArray[np.float64],
    sizes: Ints,
    *,
    hourly: bool,
) -> Timeline:
    """Return the timeline of requests and pushes; `times` and `sizes` are those of the publications."""
    offset, source = merge(requests.offset, requests.time, pushes.offset, times[pushes.publication])
    is_push = source < 0
    keys = np.empty(len(source), np.int64)
    counts = np.zeros(len(source), np.int64)
    keys[~is_push] = requests.publication[source[~is_push]]
    keys[is_push] = pushes.publication[~source[is_push]]
    counts[is_push] = pushes.count[~source[is_push]]
    moments = None
    if hourly:
        moments = np.empty(len(source), np.float64)
        moments[~is_push] = requests.time[source[~is_push]]
        moments[is_push] = times[keys[is_push]]
    return timeline(proxies, offset, keys, is_push, sizes, counts, moments, sized_by_key=True)


@njit(cache=True, nogil=True)
def _describe(event_offset, page_offset, events, is_push, sizes, counts, subscriptions, requested):  # type: ignore[no-untyped-def]
    """Mark pushes, and set the subscriptions of each page and the bytes of the pages requested at each proxy."""
    seen = np.zeros(len(sizes), np.uint8)
    for group in range(len(event_offset) - 1):
        base = page_offset[group]
        for i in range(event_offset[group], event_offset[group + 1]):
            page = events[i]
            if is_push[i]:
                events[i] = ~page
                subscriptions[base + page] = counts[i]
            elif not seen[base + page]:
                seen[base + page] = 1
                requested[group] += sizes[base + page]


@njit(cache=True, nogil=True)
def merge(request_offset, request_time, push_offset, push_time):  # type: ignore[no-untyped-def]
    """Return the order of each proxy's pushes and requests by time, pushes first at equal times.

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
