"""Traces replayed by the live page cache and by the compiled kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newsstand.caching import POLICIES, Page, page_cache
from newsstand.caching.kernels import pages as codes
from newsstand.caching.kernels.pages.compiled import compiled
from newsstand.lab.pages.timeline import Timeline, merge, timeline
from support.caching.page_oracle import Step
from support.caching.traces import HIT, MISS, REJECTED, STORED, Event, Trace

WORDS = {codes.HIT: HIT, codes.MISS: MISS, codes.STORED: STORED, codes.REJECTED: REJECTED}


def live(policy: str, events: Iterable[Event], capacity: int, beta: float = 2.0) -> list[Step]:
    """The page cache, event by event; its books must be right after each."""
    held: dict[Page, int] = {}
    used = 0

    def on_evict(page: Page) -> None:
        nonlocal used
        used -= held.pop(page)

    cache = page_cache(policy, capacity, beta, on_evict=on_evict)
    steps = []
    for is_push, page, size, subscriptions in events:
        if is_push:
            outcome = STORED if cache.push(page, size, subscriptions) else REJECTED
        else:
            outcome = HIT if cache.request(page, size, subscriptions) else MISS
        if page in cache:
            used += size - held.get(page, 0)
            held[page] = size
        assert len(cache) == len(held)
        assert cache.used == used <= capacity
        steps.append(Step(outcome, set(held)))
    return steps


def arrange(trace: Trace) -> Timeline:
    """A trace as the kernel wants it."""
    published = {row.page: (row.time, number, row.size) for number, row in enumerate(trace.publications)}
    requests = sorted(trace.requests, key=lambda row: (row.proxy, row.time))
    pushes = sorted(
        (row for row in trace.subscriptions if row.count > 0),
        key=lambda row: (row.proxy, published[row.page]),
    )
    proxies = np.array(trace.proxies, np.int32)
    offset, source = merge(
        _offsets(proxies, [row.proxy for row in requests]),
        np.array([row.time for row in requests], np.float64),
        _offsets(proxies, [row.proxy for row in pushes]),
        np.array([published[row.page][0] for row in pushes], np.float64),
    )
    pages = [requests[i].page if i >= 0 else pushes[~i].page for i in source]
    return timeline(
        proxies,
        offset,
        np.array(pages, np.int64),
        source < 0,
        np.array([published[page][2] for page in pages], np.int64),
        np.array([0 if i >= 0 else pushes[~i].count for i in source], np.int64),
    )


def _offsets(proxies: npt.NDArray[np.int32], ordered: list[int]) -> npt.NDArray[np.int64]:
    column = np.array(ordered, np.int32)
    return np.concatenate([[0], np.searchsorted(column, proxies, side="right")]).astype(np.int64)


class ProxyTimeline(NamedTuple):
    """One proxy's part of a timeline, in the order of a kernel's arguments."""

    events: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int64]
    subscriptions: npt.NDArray[np.int64]


def by_proxy(seen: Timeline) -> Iterator[ProxyTimeline]:
    for number in range(len(seen)):
        events = slice(*seen.event_offset[number : number + 2])
        pages = slice(*seen.page_offset[number : number + 2])
        yield ProxyTimeline(seen.events[events], seen.sizes[pages], seen.subscriptions[pages])


def decide(policy: str, seen: ProxyTimeline, capacity: int, beta: float = 2.0) -> npt.NDArray[np.uint8]:
    """What the kernel decides, in its own codes."""
    outcome = np.full(len(seen.events), 255, np.uint8)
    compiled(POLICIES[policy])(*seen, capacity, beta, outcome)
    return outcome


def replay(policy: str, seen: ProxyTimeline, capacity: int, beta: float = 2.0) -> list[str]:
    """What the kernel decides, in words."""
    return [WORDS[code] for code in decide(policy, seen, capacity, beta).tolist()]
