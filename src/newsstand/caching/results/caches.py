"""All result caches of one broker, under one budget of bytes.

Uddin & Venkatasubramanian (2018, sections III.C and IV). Time is an argument, in milliseconds that never decrease,
and nothing happens by itself: call `advance` before the calls of a moment, and `make_room` after `put`.

>>> caches = ResultCaches[str, bytes]("lsc", budget=1_000_000)
>>> caches.attach("floods", "ann", now=0)
True
>>> caches.put("floods", position=1, size=5, value=b"water", now=40)
True
>>> caches.make_room(now=40)
>>> [found.value for found in caches.get("floods", after=0, until=1)]
[b'water']
>>> caches.touch("floods", now=50)
>>> caches.acknowledge("floods", "ann", upto=1, now=60)
>>> caches.objects
0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypedDict, get_args

from newsstand.caching.results.cache import (
    CachedResult,
    ExpiryOf,
    Key,
    Reason,
    RemovedObject,
    ResultCache,
    Retrieval,
    Subscriber,
    Value,
)
from newsstand.caching.results.eviction import ExpiringTails, ScoredObjects, ScoredTails, Victims
from newsstand.caching.results.lifetimes import Lifetime, Lifetimes
from newsstand.caching.results.policies import RESULT_POLICIES, ResultPolicy
from newsstand.errors import BadOption

__all__ = ["ExpiryOf", "ResultCacheOptions", "ResultCaches"]


class ResultCacheOptions(TypedDict, Generic[Key], total=False):
    """What `ResultCaches` takes besides its policy and its budget."""

    window_ms: int
    windows: int
    cap_ms: int
    expiry: ExpiryOf
    start_ms: int
    grace_ms: int
    on_removed: Callable[[RemovedObject[Key]], None] | None
    on_recompute: Callable[[int, float], None] | None


class ResultCaches(Generic[Key, Value]):
    """One result cache for each backend subscription, all of them under one policy and one budget.

    Keys of caches are ordered: among equals, the cache with the smallest key loses its object. `on_removed` is
    called with every object that leaves, `on_recompute` with every instant at which times to live are set and the
    bytes that equation 5 expects. Windows are counted from `start_ms`. Where any object may leave, one that was
    put less than `grace_ms` ago leaves last: online subscribers read it within that time.
    """

    def __init__(
        self,
        policy: str,
        budget: int,
        *,
        window_ms: int = 300_000,
        windows: int = 1,
        cap_ms: int = 3_600_000,
        expiry: ExpiryOf = "cache",
        start_ms: int = 0,
        grace_ms: int = 0,
        on_removed: Callable[[RemovedObject[Key]], None] | None = None,
        on_recompute: Callable[[int, float], None] | None = None,
    ) -> None:
        check_options(budget=budget, window_ms=window_ms, windows=windows, cap_ms=cap_ms, expiry=expiry)
        self.policy: ResultPolicy = RESULT_POLICIES[policy]
        self.budget = budget
        self.expiry: ExpiryOf = expiry
        self.bytes = 0
        """Bytes of all cached objects."""
        self.objects = 0
        """Number of cached objects."""
        self._caches: dict[Key, ResultCache[Value]] = {}
        self._lifetimes = Lifetimes(window_ms, windows, cap_ms, start_ms)
        self._grace_ms = grace_ms
        self._victims = self._rebuilt_victims(start_ms)
        self._on_removed = on_removed
        self._on_recompute = on_recompute

    def attach(self, cache: Key, subscriber: Subscriber, now: int, acked: int | None = None) -> bool:
        """Let a subscriber wait for new objects, or all beyond `acked`; return False if it is attached already."""
        found = self._caches.get(cache)
        if found is None:
            found = self._caches[cache] = ResultCache(Lifetime(self.ttl(cache)))
        if found.acked(subscriber) is not None:
            return False
        beyond = found.newest if acked is None else acked
        found.attach(subscriber, beyond)
        self._victims.waited(cache, beyond, None, 1)
        return True

    def detach(self, cache: Key, subscriber: Subscriber, now: int) -> bool:
        """Detach a subscriber and abandon objects that only it waits for; return False if it is unknown."""
        found = self._caches.get(cache)
        acked = None if found is None else found.acked(subscriber)
        if found is None or acked is None:
            return False
        found.detach(subscriber)
        self._victims.waited(cache, acked, None, -1)
        self._sweep(cache, found, now, "abandoned")
        if not (self.policy.keeps or found.subscribers):
            del self._caches[cache]
        return True

    def put(self, cache: Key, position: int, size: int, value: Value, now: int) -> bool:
        """Put an object at the head, beyond all earlier positions; return False if it is not cached.

        Objects are not cached under `nc` and without subscribers that wait for them. `make_room` evicts others.
        """
        found = self._caches.get(cache)
        if found is None:
            return False
        if position <= found.newest:
            raise ValueError(f"position {position} does not come after {found.newest}")
        if size < 1:
            raise ValueError(f"an object of {size} bytes")
        found.newest = position
        waiting = found.waiting_for(position)
        if not self.policy.keeps or waiting == 0:
            return False
        added = CachedResult(position, size, value, now, now + found.lifetime.ttl_ms, waiting)
        found.append(added)
        found.lifetime.growth += size
        found.accessed_ms = now
        self.bytes += size
        self.objects += 1
        self._victims.put(cache, added, now)
        return True

    def make_room(self, now: int) -> None:
        """Drop objects by the policy's scores while the caches exceed the budget; `nc` and `ttl` drop none."""
        if not self.policy.evicts:
            return
        while self.bytes > self.budget:
            lowest = self._victims.lowest(now)
            assert lowest is not None
            cache, position = lowest
            found = self._caches[cache]
            self._remove(cache, found, now, "dropped", position)
            self._victims.tail_changed(cache, now)

    def get(self, cache: Key, after: int, until: int) -> list[CachedResult[Value]]:
        """Return the cached objects with after < position <= until, oldest first.

        Missing objects are older than these, or in the `gaps` between them.
        """
        found = self._caches.get(cache)
        if found is None:
            return []
        return found.between(after, until)

    def gaps(self, cache: Key, after: int, until: int) -> tuple[int, ...]:
        """Return the positions in (after, until] of objects that left while older ones stayed."""
        found = self._caches.get(cache)
        return () if found is None or not found.gaps else found.gaps_between(after, until)

    def held(self, cache: Key) -> tuple[int, int] | None:
        """Return the positions of tail and head; None if the cache is empty."""
        found = self._caches.get(cache)
        if found is None or found.tail is None:
            return None
        return found.tail.position, next(reversed(found.objects))

    def touch(self, cache: Key, now: int) -> None:
        """Note an access: a pending object was retrieved, from the cache or from the cluster."""
        found = self._caches.get(cache)
        if found is not None:
            found.accessed_ms = now
            self._victims.accessed(cache)

    def acknowledge(self, cache: Key, subscriber: Subscriber, upto: int, now: int) -> None:
        """Note that a subscriber has all objects up to a position; remove those that all subscribers have."""
        found = self._caches.get(cache)
        if found is None:
            return
        acked = found.acked(subscriber)
        if acked is not None and found.acknowledge(subscriber, upto):
            self._victims.waited(cache, acked, upto, -1)
            self._sweep(cache, found, now, "consumed")

    def join_cohort(self, cache: Key, subscriber: Subscriber, upto: int, now: int) -> Retrieval | None:
        """Let a subscriber retrieve up to the cohort's position and join it; None if nothing was pending."""
        found = self._caches[cache]
        after = found.join_cohort(subscriber, upto)
        return None if after >= upto else self._retrieved(cache, found, after, upto, 1, now)

    def leave_cohort(self, cache: Key, subscriber: Subscriber) -> None:
        """Let a subscriber acknowledge by itself again."""
        self._caches[cache].leave_cohort(subscriber)

    def retrieve_cohort(self, cache: Key, upto: int, now: int) -> tuple[int, Retrieval] | None:
        """Let the cohort retrieve at the cost of one; return its size and what each subscriber retrieved."""
        found = self._caches[cache]
        after = found.cohort_at
        if found.cohort == 0 or after >= upto:
            return None
        found.acknowledge_cohort(upto)
        return found.cohort, self._retrieved(cache, found, after, upto, found.cohort, now)

    def acked(self, cache: Key, subscriber: Subscriber) -> int | None:
        """Return the position that a subscriber acknowledged last, -1 for none; None if it is not attached."""
        found = self._caches.get(cache)
        return None if found is None else found.acked(subscriber)

    def newest(self, cache: Key) -> int:
        """Return the position put last, cached or not; -1 if none was put since the first subscriber attached."""
        found = self._caches.get(cache)
        return -1 if found is None else found.newest

    def subscribers(self, cache: Key) -> int:
        """n: the number of attached subscribers."""
        found = self._caches.get(cache)
        return 0 if found is None else found.subscribers

    def ttl(self, cache: Key) -> int:
        """T: the present time to live in a cache, in milliseconds."""
        found = self._caches.get(cache)
        return self._lifetimes.without_estimate(self.budget) if found is None else found.lifetime.ttl_ms

    @property
    def next_instant(self) -> int | None:
        """When `advance` next has an effect if nothing else happens before; None for never."""
        if not self.policy.keeps:
            return None
        expiring, closing = self._victims.next_expiry(), self._lifetimes.next_ms
        return closing if expiring is None else min(closing, expiring[0])

    def advance(self, now: int) -> None:
        """Let tails expire and windows close, in the order of time, up to and including now."""
        while self._lifetimes.next_ms <= now and self.policy.keeps:
            closing = self._lifetimes.next_ms
            self._expire(closing)
            self._recompute(closing)
            self._expire(closing)
        if self.policy.expires:
            self._expire(now)

    def switch(self, policy: str, now: int) -> None:
        """Change the policy; objects that the new one can keep stay, subscribers keep their positions."""
        chosen = RESULT_POLICIES[policy]
        self.advance(now)
        kept_results, self.policy = self.policy.keeps, chosen
        if not chosen.keeps:
            self._empty(now)
        elif not kept_results:
            self._restart_estimates(now)
        self._victims = self._rebuilt_victims(now)
        self._expire(now)
        self.make_room(now)

    def resize(self, budget: int, now: int) -> None:
        """Change the budget; times to live follow when the window closes."""
        _require(0, budget=budget)
        self.budget = budget
        self.make_room(now)

    def _rebuilt_victims(self, now: int) -> Victims[Key, Value]:
        policy, caches = self.policy, self._caches
        if policy.expires:
            return ExpiringTails(caches, self.expiry, now)
        if policy.score is None:
            return Victims(caches)
        if policy.anywhere:
            return ScoredObjects(caches, policy.score, self._grace_ms, now)
        return ScoredTails(caches, policy.score, self.expiry)

    def _retrieved(
        self, key: Key, cache: ResultCache[Value], after: int, upto: int, number: int, now: int
    ) -> Retrieval:
        """Retrieve for `number` subscribers: note an access, remove objects that no other subscriber waits for."""
        cache.accessed_ms = now
        if cache.tail is None:
            return Retrieval(after, upto, upto)
        missed_until = cache.missed_until(after, upto)
        gaps = cache.gaps_between(missed_until, upto) if cache.gaps else ()
        self._victims.waited(key, missed_until, upto, -number)
        if cache.waiting == 0:
            self._sweep(key, cache, now, "consumed")
        return Retrieval(after, missed_until, upto, gaps)

    def _sweep(self, key: Key, cache: ResultCache[Value], now: int, reason: Reason) -> None:
        """Remove objects that no subscriber waits for."""
        if cache.tail is None or cache.waiting:
            return
        while cache.tail is not None and cache.waiting == 0:
            self._remove(key, cache, now, reason, cache.tail.position)
        self._victims.tail_changed(key, now)

    def _remove(self, key: Key, cache: ResultCache[Value], at_ms: int, reason: Reason, position: int) -> None:
        """Remove an object and count it."""
        removed = cache.pop(position)
        self._victims.left(key, position)
        self.bytes -= removed.size
        self.objects -= 1
        if reason != "dropped":
            cache.lifetime.growth -= removed.size
        if self._on_removed is not None:
            self._on_removed(RemovedObject(key, position, removed.size, removed.inserted_ms, at_ms, reason))

    def _expire(self, now: int) -> None:
        while (expiring := self._victims.next_expiry()) is not None and expiring[0] <= now:
            at_ms, key = expiring
            cache = self._caches[key]
            assert cache.tail is not None
            self._remove(key, cache, at_ms, "dropped", cache.tail.position)
            self._victims.tail_changed(key, at_ms)

    def _recompute(self, now: int) -> None:
        lifetimes = [cache.lifetime for cache in self._caches.values()]
        expected = self._lifetimes.close(lifetimes, self.budget, averages=self.policy.averages)
        for key in [key for key, cache in self._caches.items() if cache.lifetime.is_blank]:
            del self._caches[key]
        self._victims.renew(now)
        if self._on_recompute is not None:
            self._on_recompute(now, expected)

    def _empty(self, now: int) -> None:
        for key, cache in self._caches.items():
            while cache.tail is not None:
                self._remove(key, cache, now, "dropped", cache.tail.position)
        for key in [key for key, cache in self._caches.items() if not cache.subscribers]:
            del self._caches[key]

    def _restart_estimates(self, now: int) -> None:
        self._lifetimes.restart(now)
        for cache in self._caches.values():
            cache.lifetime = Lifetime(self._lifetimes.without_estimate(self.budget), cache.subscribers)


def check_options(*, window_ms: int, windows: int, cap_ms: int, expiry: str, **size: int) -> None:
    """Raise BadOption unless result caches can have these options; `size` is the budget under any name."""
    _require(0, cap_ms=cap_ms, **size)
    _require(1, window_ms=window_ms, windows=windows)
    if expiry not in get_args(ExpiryOf):
        raise BadOption(f"must be one of {', '.join(get_args(ExpiryOf))}", expiry=expiry)


def _require(least: int, **fields: int) -> None:
    for name, given in fields.items():
        if given < least:
            raise BadOption(f"must be at least {least}", **{name: given})
