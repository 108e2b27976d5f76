"""Result caches that follow the policy with the best hit ratio of the last minutes.

Every policy that can be followed has a shadow over a sample of the caches: it gets all events of these, stores no
values, and has the sample's share of the budget. When a window closes, the policy whose shadow has most hits takes
over. As in any change of policy, objects that the new one can keep stay.

>>> caches = AdaptiveCaches[str, bytes]("adaptive", budget=1_000_000)
>>> caches.followed
'lsc'
>>> caches.switch("ttl", now=5)
>>> caches.followed is None
True
"""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from newsstand.caching.results.cache import Key, Retrieval, Subscriber, Value
from newsstand.caching.results.caches import ResultCacheOptions, ResultCaches

SAMPLED_ONE_IN = 4
"""One cache in this many is sampled."""
DECAY = 0.5
"""The factor by which the weight of hits falls with each closed window."""


class AdaptiveCaches(ResultCaches[Key, Value]):
    """Result caches that also support policies that follow others."""

    def __init__(self, policy: str, budget: int, **options: Unpack[ResultCacheOptions[Key]]) -> None:
        super().__init__(policy, budget, **options)
        self.followed: str | None = None
        """The policy that is followed at present; None if the policy follows no other."""
        self.shadows: dict[str, ResultCaches[Key, None]] = {}
        """Caches without values, one for each policy that may be followed."""
        self._hits: dict[str, float] = {}
        self._watched: set[Key] = set()
        self._seen_caches = 0
        self._watch(self._lifetimes.next_ms - self._lifetimes.window_ms)

    def attach(self, cache: Key, subscriber: Subscriber, now: int, acked: int | None = None) -> bool:
        is_new_cache = cache not in self._caches
        is_new = super().attach(cache, subscriber, now, acked)
        if self.shadows and is_new_cache:
            self._seen_caches += 1
            if self._seen_caches % SAMPLED_ONE_IN == 1:
                self._watched.add(cache)
            self._share_out(now)
        if is_new:
            position = self.acked(cache, subscriber)
            assert position is not None
            for shadow in self._shadows_of(cache):
                self._follow_in(shadow, cache, subscriber, position, now)
        return is_new

    def detach(self, cache: Key, subscriber: Subscriber, now: int) -> bool:
        for shadow in self._shadows_of(cache):
            shadow.detach(cache, subscriber, now)
        return super().detach(cache, subscriber, now)

    def put(self, cache: Key, position: int, size: int, value: Value, now: int) -> bool:
        for shadow in self._shadows_of(cache):
            shadow.put(cache, position, size, None, now)
        return super().put(cache, position, size, value, now)

    def make_room(self, now: int) -> None:
        for shadow in self.shadows.values():
            shadow.make_room(now)
        super().make_room(now)

    def touch(self, cache: Key, now: int) -> None:
        for shadow in self._shadows_of(cache):
            shadow.touch(cache, now)
        super().touch(cache, now)

    def acknowledge(self, cache: Key, subscriber: Subscriber, upto: int, now: int) -> None:
        if cache in self._watched:
            for name, shadow in self.shadows.items():
                before = shadow.acked(cache, subscriber)
                if before is not None:
                    self._hits[name] += len(shadow.get(cache, before, upto))
                    shadow.acknowledge(cache, subscriber, upto, now)
        super().acknowledge(cache, subscriber, upto, now)

    def join_cohort(self, cache: Key, subscriber: Subscriber, upto: int, now: int) -> Retrieval | None:
        if cache in self._watched:
            for name, shadow in self.shadows.items():
                self._count(name, 1, shadow.join_cohort(cache, subscriber, upto, now))
        return super().join_cohort(cache, subscriber, upto, now)

    def leave_cohort(self, cache: Key, subscriber: Subscriber) -> None:
        for shadow in self._shadows_of(cache):
            shadow.leave_cohort(cache, subscriber)
        super().leave_cohort(cache, subscriber)

    def retrieve_cohort(self, cache: Key, upto: int, now: int) -> tuple[int, Retrieval] | None:
        if cache in self._watched:
            for name, shadow in self.shadows.items():
                self._count(name, *(shadow.retrieve_cohort(cache, upto, now) or (0, None)))
        return super().retrieve_cohort(cache, upto, now)

    def advance(self, now: int) -> None:
        for shadow in self.shadows.values():
            shadow.advance(now)
        super().advance(now)

    def resize(self, budget: int, now: int) -> None:
        super().resize(budget, now)
        self._share_out(now)

    def switch(self, policy: str, now: int) -> None:
        super().switch(policy, now)
        self._watch(now)

    def _recompute(self, now: int) -> None:
        super()._recompute(now)
        if not self.shadows:
            return
        best = max(self._hits, key=lambda name: (self._hits[name], name == self.followed))
        for name in self._hits:
            self._hits[name] *= DECAY
        self._watched &= self._caches.keys()
        self._share_out(now)
        if best != self.followed:
            named = self.policy
            super().switch(best, now)
            self.policy = replace(self.policy, name=named.name, title=named.title, follows=named.follows)
            self.followed = best

    def _watch(self, now: int) -> None:
        """Start shadows over a sample of the present caches and their subscribers, with nothing cached."""
        follows = self.policy.follows
        self.followed = follows[0] if follows else None
        self._hits = dict.fromkeys(follows, 0.0)
        self._watched = set(list(self._caches)[::SAMPLED_ONE_IN]) if follows else set()
        self._seen_caches = len(self._caches)
        lifetimes = self._lifetimes
        self.shadows = {
            name: ResultCaches(
                name,
                self._share,
                window_ms=lifetimes.window_ms,
                windows=lifetimes.windows,
                cap_ms=lifetimes.cap_ms,
                expiry=self.expiry,
                start_ms=lifetimes.next_ms - lifetimes.window_ms,
                grace_ms=self._grace_ms,
            )
            for name in follows
        }
        for shadow in self.shadows.values():
            for key in self._watched:
                for subscriber, acked, in_cohort in self._caches[key].standings():
                    self._follow_in(shadow, key, subscriber, acked, now)
                    if in_cohort:
                        shadow.join_cohort(key, subscriber, acked, now)

    @property
    def _share(self) -> int:
        """The share of the budget of the watched caches."""
        return self.budget * len(self._watched) // max(1, len(self._caches))

    def _share_out(self, now: int) -> None:
        for shadow in self.shadows.values():
            shadow.resize(self._share, now)

    def _follow_in(
        self, shadow: ResultCaches[Key, None], cache: Key, subscriber: Subscriber, acked: int, now: int
    ) -> None:
        """Attach a subscriber in a shadow, where a new cache begins with the time to live of the live cache."""
        is_new_cache = cache not in shadow._caches
        shadow.attach(cache, subscriber, now, acked)
        if is_new_cache:
            shadow._caches[cache].lifetime.ttl_ms = self.ttl(cache)

    def _shadows_of(self, cache: Key) -> tuple[ResultCaches[Key, None], ...]:
        return tuple(self.shadows.values()) if cache in self._watched else ()

    def _count(self, name: str, number: int, retrieved: Retrieval | None) -> None:
        if retrieved is not None:
            self._hits[name] += number * (retrieved.until - retrieved.missed_until - len(retrieved.gaps))
