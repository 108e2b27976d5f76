"""Which object would leave the result caches first: the contract, and that under a policy by which none does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic

from newsstand.caching.result_cache import CachedResult, ResultCache, Value
from newsstand.caching.tail_ranking import Key


class Victims(Generic[Key, Value]):
    """Told of all that happens in the caches, it says who leaves first; among equals, of the smallest cache."""

    def __init__(self, caches: Mapping[Key, ResultCache[Value]]) -> None:
        self._caches = caches

    def put(self, key: Key, one: CachedResult[Value], now: int) -> None:
        """An object was put at the head of a cache."""

    def accessed(self, key: Key) -> None:
        """Something was retrieved from a cache."""

    def waited(self, key: Key, after: int, until: int | None, more: int) -> None:
        """So many more, or fewer, wait for the objects with after < position <= until, or for all beyond."""

    def left(self, key: Key, position: int) -> None:
        """An object has left its cache."""

    def tail_changed(self, key: Key, now: int) -> None:
        """A cache has another tail, or none any more."""

    def renew(self, now: int) -> None:
        """Times to live have changed."""

    def lowest(self, now: int) -> tuple[Key, int] | None:
        """The cache and the position of who leaves first; None if nobody does."""
        return None

    def next_expiry(self) -> tuple[int, Key] | None:
        """When a tail expires next, and of which cache; None if none does."""
        return None
