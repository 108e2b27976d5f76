"""Page policies by brute force, from their rules alone: scoring functions, and the dual strategies of chen2003.

Nothing is shared with the package, and nothing is clever: a cache is a list of entries, and every decision
looks through all of them for the lowest value, among equal ones for the value that was set first.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from support.caching.traces import HIT, MISS, REJECTED, STORED, Event


def d(f: int, size: int) -> float:
    """The frequency per byte."""
    return f / size


def g(f: int, size: int, beta: float) -> float:
    """The frequency per byte to the power of 1/beta."""
    if beta == 1:
        return d(f, size)
    if beta == 2:
        return math.sqrt(d(f, size))
    if beta == 0.5:
        return d(f, size) * d(f, size)
    return float(d(f, size) ** (1.0 / beta))


class Value(NamedTuple):
    """Ordered by the number, then by the time at which it was set."""

    number: float
    set_at: int


Order = Callable[["Entry"], Value]
NEVER = Value(math.nan, -1)


@dataclass(eq=False)
class Entry:
    page: int
    size: int
    subscriptions: int
    a: int = 0
    value: Value = NEVER
    push_value: Value = NEVER
    last_access: int = -1


by_value: Order = attrgetter("value")
by_push_value: Order = attrgetter("push_value")


class Room:
    """Entries, and the bytes that they may take. Making room tells who had to leave, or None if it failed."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.entries: list[Entry] = []

    @property
    def free(self) -> int:
        return self.capacity - sum(entry.size for entry in self.entries)

    def find(self, page: int) -> Entry | None:
        return next((entry for entry in self.entries if entry.page == page), None)

    def always_admit(self, size: int, order: Order = by_value) -> list[Entry] | None:
        if size > self.capacity:
            return None
        return self._evict_lowest(self.entries, size, order)

    def admit_by_value(self, size: int, value: float, order: Order = by_value) -> list[Entry] | None:
        if size > self.capacity:
            return None
        candidates = [entry for entry in self.entries if order(entry).number < value]
        if self.free + sum(entry.size for entry in candidates) < size:
            return None
        return self._evict_lowest(candidates, size, order)

    def _evict_lowest(self, candidates: list[Entry], size: int, order: Order) -> list[Entry]:
        evicted = []
        while self.free < size:
            lowest = min((entry for entry in candidates if entry in self.entries), key=order)
            self.entries.remove(lowest)
            evicted.append(lowest)
        return evicted


class ScoreInputs(NamedTuple):
    """What a value may depend on, under the names of the paper."""

    L: float
    a: int
    A: int
    s: int
    size: int
    beta: float


class Row(NamedTuple):
    """One line of the table of policies with one cache and one method."""

    push: str
    miss: str
    value: Callable[[ScoreInputs], float]
    hit: str = "rescore"


TABLE = {
    "gdstar": Row("ignored", "always admit", lambda k: k.L + g(k.a, k.size, k.beta)),
    "gdsf": Row("ignored", "always admit", lambda k: k.L + d(k.a, k.size)),
    "gds": Row("ignored", "always admit", lambda k: k.L + d(1, k.size)),
    "lfu-da": Row("ignored", "always admit", lambda k: k.L + k.a),
    "lru": Row("ignored", "always admit", lambda k: 0.0),
    "sub": Row("admit by value", "not cached", lambda k: d(k.s, k.size), hit="nothing"),
    "sg1": Row("admit by value", "admit by value", lambda k: k.L + g(k.s + k.A, k.size, k.beta)),
    "sg2": Row("admit by value", "admit by value", lambda k: k.L + g(max(0, k.s - k.A), k.size, k.beta)),
    "sr": Row("admit by value", "admit by value", lambda k: d(max(0, k.s - k.A), k.size)),
}


class SingleCache:
    """One cache, one method."""

    def __init__(self, row: Row, capacity: int, beta: float) -> None:
        self.row = row
        self.beta = beta
        self.cache = Room(capacity)
        self.L = 0.0
        self.A: Counter[int] = Counter()
        self.clock = itertools.count()

    @property
    def pages(self) -> set[int]:
        return {entry.page for entry in self.cache.entries}

    def push(self, page: int, size: int, s: int) -> str:
        if self.row.push == "ignored" or self.cache.find(page):
            return REJECTED
        return STORED if self._admit(Entry(page, size, s, a=0), self.row.push) else REJECTED

    def request(self, page: int, size: int, s: int) -> str:
        self.A[page] += 1
        entry = self.cache.find(page)
        if entry:
            if self.row.hit == "rescore":
                entry.a += 1
                entry.value = Value(self._number(entry), next(self.clock))
            return HIT
        self._admit(Entry(page, size, s, a=1), self.row.miss)
        return MISS

    def _admit(self, entry: Entry, how: str) -> bool:
        if how == "not cached":
            return False
        if how == "always admit":
            evicted = self.cache.always_admit(entry.size)
        else:
            evicted = self.cache.admit_by_value(entry.size, self._number(entry))
        if evicted is None:
            return False
        for gone in evicted:
            self.L = gone.value.number
        entry.value = Value(self._number(entry), next(self.clock))
        self.cache.entries.append(entry)
        return True

    def _number(self, entry: Entry) -> float:
        return self.row.value(
            ScoreInputs(self.L, entry.a, self.A[entry.page], entry.subscriptions, entry.size, self.beta)
        )


class DualMethods:
    """One cache, two values of each entry: one to make room at a push, one to make room at a miss."""

    def __init__(self, capacity: int, beta: float) -> None:
        self.beta = beta
        self.cache = Room(capacity)
        self.L = 0.0
        self.clock = itertools.count()

    @property
    def pages(self) -> set[int]:
        return {entry.page for entry in self.cache.entries}

    def push(self, page: int, size: int, s: int) -> str:
        if self.cache.find(page) or self.cache.admit_by_value(size, d(s, size), by_push_value) is None:
            return REJECTED
        self._store(Entry(page, size, s, a=0), self.L)
        return STORED

    def request(self, page: int, size: int, s: int) -> str:
        entry = self.cache.find(page)
        if entry:
            entry.a += 1
            entry.value = Value(self.L + g(entry.a, size, self.beta), next(self.clock))
            return HIT
        evicted = self.cache.always_admit(size)
        if evicted is not None:
            for gone in evicted:
                self.L = gone.value.number
            self._store(Entry(page, size, s, a=1), self.L + g(1, size, self.beta))
        return MISS

    def _store(self, entry: Entry, number: float) -> None:
        now = next(self.clock)
        entry.value = Value(number, now)
        entry.push_value = Value(d(entry.subscriptions, entry.size), now)
        self.cache.entries.append(entry)


class DualCaches:
    """A push cache PC and an access cache AC; `how` is fixed (FP), adaptive (AP) or limited (LAP)."""

    def __init__(self, how: str, capacity: int, beta: float) -> None:
        self.how = how
        self.C = capacity
        self.beta = beta
        self.pc = Room(capacity // 2)
        self.ac = Room(capacity - capacity // 2)
        self.L = 0.0
        self.clock = itertools.count()
        self.event = -1
        self.replacement = -1

    @property
    def pages(self) -> set[int]:
        return {entry.page for entry in self.pc.entries + self.ac.entries}

    def push(self, page: int, size: int, s: int) -> str:
        self.event += 1
        if page in self.pages:
            return REJECTED
        placed = self.pc.admit_by_value(size, d(s, size)) is not None
        if not placed and not (self.how != "fixed" and self._borrow(size)):
            return REJECTED
        self.pc.entries.append(Entry(page, size, s, value=Value(d(s, size), next(self.clock))))
        return STORED

    def _borrow(self, size: int) -> bool:
        """Take the room of AC entries that were last accessed before the most recent replacement in AC."""
        stale = [entry for entry in self.ac.entries if entry.last_access < self.replacement]
        if self.pc.free + sum(entry.size for entry in stale) < size:
            return False
        chosen: list[Entry] = []
        while self.pc.free + sum(entry.size for entry in chosen) < size:
            chosen.append(min((entry for entry in stale if entry not in chosen), key=by_value))
        lent = sum(entry.size for entry in chosen)
        if self.how == "limited" and 4 * (self.pc.capacity + lent) > 3 * self.C:
            return False
        for entry in chosen:
            self.ac.entries.remove(entry)
        self.pc.capacity += lent
        self.ac.capacity -= lent
        return True

    def request(self, page: int, size: int, s: int) -> str:
        self.event += 1
        accessed, pushed = self.ac.find(page), self.pc.find(page)
        if accessed:
            self._access(accessed)
        elif pushed and self._may_relabel(size):
            self.pc.entries.remove(pushed)
            self.pc.capacity -= size
            self.ac.capacity += size
            self.ac.entries.append(pushed)
            self._access(pushed)
        elif pushed and size <= self.ac.capacity:
            self.pc.entries.remove(pushed)
            self._enter(pushed)
        elif not pushed:
            self._enter(Entry(page, size, s))
        return HIT if accessed or pushed else MISS

    def _may_relabel(self, size: int) -> bool:
        return self.how == "adaptive" or (self.how == "limited" and 4 * (self.pc.capacity - size) >= self.C)

    def _enter(self, entry: Entry) -> None:
        """Always admit to AC."""
        evicted = self.ac.always_admit(entry.size)
        if evicted is None:
            return
        for gone in evicted:
            self.L = gone.value.number
            self.replacement = self.event
        self.ac.entries.append(entry)
        self._access(entry)

    def _access(self, entry: Entry) -> None:
        entry.a += 1
        entry.last_access = self.event
        entry.value = Value(self.L + g(entry.a, entry.size, self.beta), next(self.clock))


Cache = SingleCache | DualMethods | DualCaches
DUAL = {"dc-fp": "fixed", "dc-ap": "adaptive", "dc-lap": "limited"}
POLICIES = [*TABLE, "dm", *DUAL]


def cache(policy: str, capacity: int, beta: float) -> Cache:
    if policy in TABLE:
        return SingleCache(TABLE[policy], capacity, beta)
    if policy in DUAL:
        return DualCaches(DUAL[policy], capacity, beta)
    return DualMethods(capacity, beta)


class Step(NamedTuple):
    """What one event came to, and what is cached after it."""

    outcome: str
    pages: set[int]


def replay(policy: str, events: Iterable[Event], capacity: int, beta: float) -> list[Step]:
    tried = cache(policy, capacity, beta)
    steps = []
    for event in events:
        act = tried.push if event.is_push else tried.request
        outcome = act(event.page, event.size, event.subscriptions)
        steps.append(Step(outcome, tried.pages))
    return steps
