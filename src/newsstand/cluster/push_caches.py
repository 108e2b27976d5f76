"""Push-caches that have announced themselves: where they are, and how long their word holds."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from newsstand.planning.places import Place

LEASE_S = 30.0
"""How long a push-cache may be silent before it counts as gone; it is to be heard three times in that time."""


@dataclass(frozen=True)
class KnownCache:
    """A broker that keeps what is pushed to it."""

    name: str
    url: str
    """Where others reach it; its copies are under `/copies`."""
    push: str
    """Where pushes are posted to."""
    place: Place


class PushCaches:
    """Who has announced itself, and has been heard of lately."""

    def __init__(self, lease_s: float = LEASE_S) -> None:
        self.lease_s = lease_s
        # In the order of their last word, so that those whose lease is over are found without a search.
        self._caches: OrderedDict[str, tuple[KnownCache, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._caches)

    def announce(self, cache: KnownCache, now: float) -> None:
        """A push-cache is there, and may be somewhere else than before."""
        self._caches[cache.name] = cache, now + self.lease_s
        self._caches.move_to_end(cache.name)

    def find(self, name: str) -> KnownCache | None:
        """The push-cache of that name, if it is there."""
        found = self._caches.get(name)
        return None if found is None else found[0]

    def names(self) -> tuple[str, ...]:
        """All that are there."""
        return tuple(self._caches)

    def remove(self, name: str) -> None:
        """A push-cache is gone, if it was there."""
        self._caches.pop(name, None)

    def expire(self, now: float) -> list[str]:
        """Remove those whose lease is over; return their names."""
        gone: list[str] = []
        while self._caches:
            name, (_, ends) = next(iter(self._caches.items()))
            if now < ends:
                break
            del self._caches[name]
            gone.append(name)
        return gone
