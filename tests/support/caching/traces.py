"""What proxies see and what comes of it: the tables of a trace, the order of events, the counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

HIT, MISS, STORED, REJECTED = "hit", "miss", "stored", "rejected"
"""What becomes of a request, and of a push."""


@dataclass(frozen=True)
class Publication:
    page: int
    time: float
    size: int


@dataclass(frozen=True)
class Request:
    time: float
    proxy: int
    page: int


@dataclass(frozen=True)
class Subscription:
    proxy: int
    page: int
    count: int


class Event(NamedTuple):
    is_push: bool
    page: int
    size: int
    subscriptions: int


@dataclass(frozen=True)
class Trace:
    """Three tables, whose order of rows matters only among equal times."""

    publications: list[Publication]
    requests: list[Request]
    subscriptions: list[Subscription]

    @property
    def proxies(self) -> list[int]:
        return sorted({row.proxy for row in self.requests} | {row.proxy for row in self.subscriptions})

    def events(self, proxy: int) -> list[Event]:
        """What a proxy sees, by time: at equal times pushes before requests, each in the order of rows."""
        size = {row.page: row.size for row in self.publications}
        count = {row.page: row.count for row in self.subscriptions if row.proxy == proxy}
        pushed = [row for row in self.publications if count.get(row.page, 0) > 0]
        asked = [row for row in self.requests if row.proxy == proxy]
        timed = [(row.time, 0, row.page) for row in pushed] + [(row.time, 1, row.page) for row in asked]
        timed.sort(key=lambda event: event[:2])
        return [Event(kind == 0, page, size[page], count.get(page, 0)) for _, kind, page in timed]


def room(events: Iterable[Event], fraction: Fraction) -> int:
    """That fraction of the bytes of the distinct pages requested, rounded down."""
    return math.floor(fraction * sum({event.page: event.size for event in events if not event.is_push}.values()))


def counts(events: list[Event], outcomes: list[str], *, uses_push: bool) -> Counter[str]:
    """Pages and bytes hit, fetched and pushed."""
    counted: Counter[str] = Counter()
    for event, outcome in zip(events, outcomes, strict=True):
        if not event.is_push:
            counted["requests"] += 1
        if outcome == HIT:
            counted["hits"] += 1
            counted["hit_bytes"] += event.size
        if outcome == MISS:
            counted["fetched_pages"] += 1
            counted["fetched_bytes"] += event.size
        if event.is_push and uses_push:
            counted["pushed_pages_always"] += 1
            counted["pushed_bytes_always"] += event.size
        if outcome == STORED:
            counted["pushed_pages_needed"] += 1
            counted["pushed_bytes_needed"] += event.size
    return counted
