"""Victims among the tails of the result caches, as Uddin & Venkatasubramanian (2018, section IV) choose them."""

from __future__ import annotations

from collections.abc import Mapping

from newsstand.caching.bad2018 import Tail, TailScore
from newsstand.caching.result_cache import CachedResult, ExpiryOf, ResultCache, Value
from newsstand.caching.tail_ranking import Key, TailRanking
from newsstand.caching.victims import Victims


class ScoredTails(Victims[Key, Value]):
    """The tail with the lowest score leaves first. Tails are scored when there is a victim to choose."""

    def __init__(self, caches: Mapping[Key, ResultCache[Value]], score: TailScore, expiry: ExpiryOf) -> None:
        super().__init__(caches)
        self._score = score
        self._expiry: ExpiryOf = expiry
        self._ranking = TailRanking[Key]()
        self._unranked: set[Key] = set()
        """Caches whose tails may have other scores than before."""
        self.renew(0)

    def put(self, key: Key, one: CachedResult[Value], now: int) -> None:
        self._unranked.add(key)

    def accessed(self, key: Key) -> None:
        self._unranked.add(key)

    def waited(self, key: Key, after: int, until: int | None, more: int) -> None:
        self._unranked.add(key)

    def tail_changed(self, key: Key, now: int) -> None:
        self._unranked.add(key)

    def renew(self, now: int) -> None:
        self._ranking.clear()
        self._unranked = {key for key, cache in self._caches.items() if cache.tail is not None}

    def lowest(self, now: int) -> tuple[Key, int] | None:
        for key in self._unranked:
            cache = self._caches.get(key)
            tail = None if cache is None else cache.tail
            if cache is None or tail is None:
                self._ranking.discard(key)
                continue
            expires_ms = cache.expires_ms(tail, self._expiry)
            seen = Tail(tail.size, cache.waiting, tail.inserted_ms, cache.accessed_ms, expires_ms)
            self._ranking.set(key, self._score(seen))
        self._unranked.clear()
        return _tail_of(self._ranking, self._caches)


class ExpiringTails(Victims[Key, Value]):
    """The tail that expires next leaves first. One that is past its time when it becomes the tail expires then."""

    def __init__(self, caches: Mapping[Key, ResultCache[Value]], expiry: ExpiryOf, now: int) -> None:
        super().__init__(caches)
        self._expiry: ExpiryOf = expiry
        self._ranking = TailRanking[Key]()
        self.renew(now)

    def put(self, key: Key, one: CachedResult[Value], now: int) -> None:
        if self._caches[key].tail is one:
            self.tail_changed(key, now)

    def tail_changed(self, key: Key, now: int) -> None:
        cache = self._caches[key]
        if cache.tail is None:
            self._ranking.discard(key)
        else:
            self._ranking.set(key, max(now, cache.expires_ms(cache.tail, self._expiry)))

    def renew(self, now: int) -> None:
        self._ranking.clear()
        for key, cache in self._caches.items():
            if cache.tail is not None:
                self.tail_changed(key, now)

    def lowest(self, now: int) -> tuple[Key, int] | None:
        return _tail_of(self._ranking, self._caches)

    def next_expiry(self) -> tuple[int, Key] | None:
        lowest = self._ranking.lowest()
        return None if lowest is None else (int(lowest[0]), lowest[1])


def _tail_of(ranking: TailRanking[Key], caches: Mapping[Key, ResultCache[Value]]) -> tuple[Key, int] | None:
    lowest = ranking.lowest()
    if lowest is None:
        return None
    tail = caches[lowest[1]].tail
    assert tail is not None
    return lowest[1], tail.position
