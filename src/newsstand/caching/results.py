"""All result caches of one broker, under one budget of bytes.

Uddin & Venkatasubramanian (2018, sections III.C and IV). Time is an argument, in milliseconds that never go back,
and nothing happens by itself: `advance` comes before whatever happens at a moment, `make_room` after what was put.

>>> caches = ResultCaches[str, bytes]("lsc", budget=1_000_000)
>>> caches.attach("floods", "ann", now=0)
True
>>> caches.put("floods", position=1, size=5, value=b"water", now=40)
True
>>> caches.make_room(now=40)
>>> caches.get("floods", after=0, until=1)
[Hit(position=1, size=5, value=b'water')]
>>> caches.touch("floods", now=50)
>>> caches.acknowledge("floods", "ann", upto=1, now=60)
>>> caches.objects
0
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Generic, Literal

from newsstand.caching.bad2018 import RESULT_POLICIES, ResultPolicy, Tail
from newsstand.caching.lifetimes import Lifetime, Lifetimes
from newsstand.caching.result_cache import (
    CachedResult,
    Hit,
    Reason,
    Removed,
    ResultCache,
    Retrieval,
    Subscriber,
    Value,
)
from newsstand.caching.tail_ranking import Key, TailRanking
from newsstand.errors import BadOption

ExpiryOf = Literal["cache", "object"]
"""Whether an object expires by the present time to live of its cache, or by that of its insertion."""


class ResultCaches(Generic[Key, Value]):
    """One result cache for each backend subscription, all of them under one policy and one budget.

    Keys of caches are ordered: the smallest loses among equals. `on_removed` is told of every object that leaves;
    `on_recompute` of every instant at which times to live were set, with the bytes that equation 5 expects.
    Windows are counted from `start_ms`. Where any object may leave, one that was put less than `grace_ms` ago does
    so last: those who are online read it within that time.
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
        on_removed: Callable[[Removed[Key]], None] | None = None,
        on_recompute: Callable[[int, float], None] | None = None,
    ) -> None:
        for name, given, least in (("window_ms", window_ms, 1), ("windows", windows, 1), ("cap_ms", cap_ms, 0)):
            if given < least:
                raise BadOption(f"{name} is {given}: it has to be at least {least}")
        if expiry not in ("cache", "object"):
            raise BadOption(f"expiry is '{expiry}', not 'cache' or 'object'")
        self.policy: ResultPolicy = RESULT_POLICIES[policy]
        self.budget = _budget(budget)
        self.expiry: ExpiryOf = expiry
        self.bytes = 0
        """Bytes of all cached objects."""
        self.objects = 0
        """Number of cached objects."""
        self._caches: dict[Key, ResultCache[Value]] = {}
        self._lifetimes = Lifetimes(window_ms, windows, cap_ms, start_ms)
        self._ranking = TailRanking[Key]()
        self._unranked: set[Key] = set()
        self._grace_ms = grace_ms
        self._in_grace: deque[tuple[int, Key]] = deque()
        """When grace ends, and in which cache, in the order of time."""
        self._on_removed = on_removed
        self._on_recompute = on_recompute

    def attach(self, cache: Key, subscriber: Subscriber, now: int, acked: int | None = None) -> bool:
        """Let a subscriber wait for what comes, or for all beyond `acked`; False if it is attached already."""
        found = self._caches.get(cache)
        if found is None:
            found = self._caches[cache] = ResultCache(Lifetime(self.ttl(cache)))
        if found.acked(subscriber) is not None:
            return False
        found.attach(subscriber, found.newest if acked is None else acked)
        self._rescore(cache)
        return True

    def detach(self, cache: Key, subscriber: Subscriber, now: int) -> bool:
        """Let a subscriber go; what nobody else waits for is abandoned. False if it was not attached."""
        found = self._caches.get(cache)
        if found is None or found.acked(subscriber) is None:
            return False
        found.detach(subscriber)
        self._sweep(cache, found, now, "abandoned")
        if not (self.policy.keeps or found.subscribers):
            del self._caches[cache]
        return True

    def put(self, cache: Key, position: int, size: int, value: Value, now: int) -> bool:
        """Put an object at the head, beyond all earlier positions; False if it is not to be cached.

        That is so under `nc`, and where nobody waits for it. Nothing is evicted: see `make_room`.
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
        was_empty = not found.objects
        found.append(CachedResult(position, size, value, now, now + found.lifetime.ttl_ms), waiting)
        found.lifetime.growth += size
        found.accessed_ms = now
        self.bytes += size
        self.objects += 1
        if self._grace_ms and self.policy.anywhere:
            self._in_grace.append((now + self._grace_ms, cache))
        if was_empty:
            self._tail_changed(cache, found, now)
        else:
            self._rescore(cache)
        return True

    def make_room(self, now: int) -> None:
        """Drop tails by the policy's scores while the caches exceed the budget; `nc` and `ttl` drop none."""
        if self.policy.score is None and not self.policy.bounded:
            return
        while self._in_grace and self._in_grace[0][0] <= now:
            self._unranked.add(self._in_grace.popleft()[1])
        while self.bytes > self.budget:
            self._rank(now)
            lowest = self._ranking.lowest()
            assert lowest is not None
            _, cache = lowest
            found = self._caches[cache]
            self._remove(cache, found, now, "dropped", found.victim if self.policy.anywhere else 0)
            self._tail_changed(cache, found, now)

    def get(self, cache: Key, after: int, until: int) -> list[Hit[Value]]:
        """The cached objects with after < position <= until, oldest first.

        What is missing is older than these, or in the `gaps` between them.
        """
        found = self._caches.get(cache)
        if found is None:
            return []
        hits = (found.objects[index] for index in found.between(after, until))
        return [Hit(hit.position, hit.size, hit.value) for hit in hits]

    def gaps(self, cache: Key, after: int, until: int) -> tuple[int, ...]:
        """What left while older objects stayed, with after < position <= until."""
        found = self._caches.get(cache)
        return () if found is None or not found.gaps else found.gaps_between(after, until)

    def held(self, cache: Key) -> tuple[int, int] | None:
        """The positions of tail and head; None if the cache is empty."""
        found = self._caches.get(cache)
        if found is None or not found.objects:
            return None
        return found.objects[0].position, found.objects[-1].position

    def touch(self, cache: Key, now: int) -> None:
        """Note an access: something pending was retrieved, from the cache or past it."""
        found = self._caches.get(cache)
        if found is not None:
            found.accessed_ms = now
            self._rescore(cache)

    def acknowledge(self, cache: Key, subscriber: Subscriber, upto: int, now: int) -> None:
        """Note that a subscriber has everything up to a position; what everybody has is consumed and leaves."""
        found = self._caches.get(cache)
        if found is not None and found.acknowledge(subscriber, upto):
            self._sweep(cache, found, now, "consumed")

    def join_crowd(self, cache: Key, subscriber: Subscriber, upto: int, now: int) -> Retrieval | None:
        """Let a subscriber retrieve up to where the crowd is, and then with it; None if it had everything."""
        found = self._caches[cache]
        after = found.join_crowd(subscriber, upto)
        return None if after >= upto else self._retrieved(cache, found, after, upto, now)

    def leave_crowd(self, cache: Key, subscriber: Subscriber) -> None:
        """Let a subscriber acknowledge by itself again."""
        self._caches[cache].leave_crowd(subscriber)

    def retrieve_crowd(self, cache: Key, upto: int, now: int) -> tuple[int, Retrieval] | None:
        """Let all of the crowd retrieve, at the cost of one; how many they are, and what each of them got."""
        found = self._caches[cache]
        after = found.crowd_at
        if found.crowd == 0 or after >= upto:
            return None
        found.acknowledge_crowd(upto)
        return found.crowd, self._retrieved(cache, found, after, upto, now)

    def acked(self, cache: Key, subscriber: Subscriber) -> int | None:
        """The position that a subscriber acknowledged last, -1 for none; None if it is not attached."""
        found = self._caches.get(cache)
        return None if found is None else found.acked(subscriber)

    def newest(self, cache: Key) -> int:
        """The position put last, cached or not; -1 for none since somebody was attached."""
        found = self._caches.get(cache)
        return -1 if found is None else found.newest

    def subscribers(self, cache: Key) -> int:
        """n: how many are attached."""
        found = self._caches.get(cache)
        return 0 if found is None else found.subscribers

    def ttl(self, cache: Key) -> int:
        """T: the present time to live in a cache, in milliseconds."""
        found = self._caches.get(cache)
        return self._lifetimes.without_estimate(self.budget) if found is None else found.lifetime.ttl_ms

    @property
    def next_instant(self) -> int | None:
        """When `advance` has something to do, if nothing else happens before; None for never."""
        if not self.policy.keeps:
            return None
        lowest = self._ranking.lowest() if self.policy.expires else None
        closing = self._lifetimes.next_ms
        return closing if lowest is None else min(closing, int(lowest[0]))

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
        """Change the policy: all that the new one can keep stays, and subscribers remain where they are."""
        chosen = RESULT_POLICIES[policy]
        self.advance(now)
        kept, self.policy = self.policy.keeps, chosen
        if not chosen.keeps:
            self._empty(now)
        elif not kept:
            self._estimate_afresh(now)
        self._rank_anew(now)
        self._expire(now)
        self.make_room(now)

    def resize(self, budget: int, now: int) -> None:
        """Change the budget; times to live follow when the window closes."""
        self.budget = _budget(budget)
        self.make_room(now)

    def _retrieved(self, key: Key, cache: ResultCache[Value], after: int, upto: int, now: int) -> Retrieval:
        """What there was to retrieve; then that counts as an access, and what everybody has leaves."""
        cache.accessed_ms = now
        if not cache.objects:
            return Retrieval(after, upto, upto)
        missed_until = cache.missed_until(after, upto)
        gaps = cache.gaps_between(missed_until, upto) if cache.gaps else ()
        retrieved = Retrieval(after, missed_until, upto, gaps)
        if cache.waiting == 0:
            self._sweep(key, cache, now, "consumed")
        else:
            self._rescore(key)
        return retrieved

    def _sweep(self, key: Key, cache: ResultCache[Value], now: int, reason: Reason) -> None:
        """Remove what nobody waits for."""
        before = len(cache.objects)
        while cache.objects and cache.waiting == 0:
            self._remove(key, cache, now, reason)
        if len(cache.objects) < before:
            self._tail_changed(key, cache, now)
        elif before:
            self._rescore(key)

    def _remove(self, key: Key, cache: ResultCache[Value], at_ms: int, reason: Reason, index: int = 0) -> None:
        """Let an object go, the tail if nothing else is said."""
        gone = cache.pop(index) if index else cache.pop_tail()
        self.bytes -= gone.size
        self.objects -= 1
        if reason != "dropped":
            cache.lifetime.growth -= gone.size
        if self._on_removed is not None:
            self._on_removed(Removed(key, gone.position, gone.size, gone.inserted_ms, at_ms, reason))

    def _tail_changed(self, key: Key, cache: ResultCache[Value], now: int) -> None:
        """Tails that expire are ranked at once: one whose time is past leaves now. Scores can wait."""
        if not self.policy.expires:
            self._rescore(key)
        elif cache.objects:
            self._ranking.set(key, max(now, self._expires_ms(cache)))
        else:
            self._ranking.discard(key)

    def _rescore(self, key: Key) -> None:
        """Remember to score the tail anew when there is a victim to choose."""
        if self.policy.score is not None:
            self._unranked.add(key)

    def _rank(self, now: int) -> None:
        """Score all tails that may have another score than before."""
        score = self.policy.score
        if score is None:
            return
        for key in self._unranked:
            cache = self._caches.get(key)
            if cache is None or not cache.objects:
                self._ranking.discard(key)
                continue
            if not self.policy.anywhere:
                self._ranking.set(key, score(self._seen(cache, cache.objects[0], cache.waiting)))
                continue
            spared_ms = now - self._grace_ms
            scores = [
                score(self._seen(cache, one, waiting)) if one.inserted_ms <= spared_ms else math.inf
                for one, waiting in cache.each_waiting()
            ]
            lowest = min(scores)
            cache.victim = scores.index(lowest)
            self._ranking.set(key, lowest)
        self._unranked.clear()

    def _seen(self, cache: ResultCache[Value], one: CachedResult[Value], waiting: int) -> Tail:
        expires_ms = one.stamp_ms if self.expiry == "object" else one.inserted_ms + cache.lifetime.ttl_ms
        return Tail(one.size, waiting, one.inserted_ms, cache.accessed_ms, expires_ms)

    def _rank_anew(self, now: int) -> None:
        self._ranking.clear()
        self._unranked.clear()
        for key, cache in self._caches.items():
            if cache.objects:
                self._tail_changed(key, cache, now)
        self._grace_anew(now)

    def _grace_anew(self, now: int) -> None:
        """Find what is in grace, whatever the policy was when it was put."""
        self._in_grace.clear()
        if self._grace_ms and self.policy.anywhere:
            ends = (
                (one.inserted_ms + self._grace_ms, key)
                for key, cache in self._caches.items()
                for one in cache.objects
            )
            self._in_grace.extend(sorted(end for end in ends if end[0] > now))

    def _expires_ms(self, cache: ResultCache[Value]) -> int:
        tail = cache.objects[0]
        return tail.stamp_ms if self.expiry == "object" else tail.inserted_ms + cache.lifetime.ttl_ms

    def _expire(self, now: int) -> None:
        if not self.policy.expires:
            return
        while (lowest := self._ranking.lowest()) is not None and lowest[0] <= now:
            at_ms, key = int(lowest[0]), lowest[1]
            self._remove(key, self._caches[key], at_ms, "dropped")
            self._tail_changed(key, self._caches[key], at_ms)

    def _recompute(self, now: int) -> None:
        lifetimes = [cache.lifetime for cache in self._caches.values()]
        expected = self._lifetimes.close(lifetimes, self.budget, averages=self.policy.averages)
        self._caches = {key: cache for key, cache in self._caches.items() if not cache.lifetime.is_blank}
        self._rank_anew(now)
        if self._on_recompute is not None:
            self._on_recompute(now, expected)

    def _empty(self, now: int) -> None:
        for key, cache in self._caches.items():
            while cache.objects:
                self._remove(key, cache, now, "dropped")
        self._caches = {key: cache for key, cache in self._caches.items() if cache.subscribers}

    def _estimate_afresh(self, now: int) -> None:
        self._lifetimes.restart(now)
        for cache in self._caches.values():
            cache.lifetime = Lifetime(self._lifetimes.without_estimate(self.budget), cache.subscribers)


def _budget(budget: int) -> int:
    if budget < 0:
        raise BadOption(f"a budget of {budget} bytes: it has to be at least 0")
    return budget
