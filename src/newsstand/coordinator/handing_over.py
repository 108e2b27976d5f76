"""Telling brokers who has come to them and who has left them, in an order that leaves no stream unfollowed.

A broker is told to `adopt` at once, and that somebody has `moved` away only when the new home has confirmed: it
must not drop the streams before another broker follows them. Without a confirmation it is told after a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from newsstand.coordinator.standing import Standing
from newsstand.coordinator.store import Kind, Store

MOST_TOLD = 5_000
"""Names of each kind in the answer to one heartbeat; the rest waits for the next one."""

HELD_S = 30.0
"""How long a broker is not told that a subscriber has moved, if the new home does not confirm."""


class HandingOver:
    """The handovers of a store.

    Each has a serial number, and so has what a broker confirms: a confirmation that was delayed, or of a record
    that has changed since, confirms nothing else.

    Handovers are durable; how long they have waited is not, so that after a restart the time begins anew.
    """

    def __init__(self, store: Store, now: float, held_s: float) -> None:
        self._store = store
        self._held_s = held_s
        self._recent = deque([(store.newest(), now)])
        self.released = 0
        """Moves up to this serial number are told, whether the new home has confirmed them or not."""

    def began(self, serial: int, now: float) -> None:
        """Subscribers were moved."""
        self._recent.append((serial, now))

    def wait(self, now: float) -> None:
        """It is later: moves that were held for long enough are told."""
        while self._recent and now - self._recent[0][1] > self._held_s:
            self.released, _ = self._recent.popleft()

    def tell_adopt(self, broker: Standing) -> list[str]:
        """Who has come to a broker; those it took a moment ago it knows of."""
        took, broker.took = broker.took, set()
        found = self._store.handovers(broker.name, "adopt", MOST_TOLD)
        return [name for name in found if name not in took]

    def tell_moved(self, broker: Standing) -> dict[str, int]:
        """Who has left a broker and has arrived."""
        return self._store.handovers(broker.name, "moved", MOST_TOLD, self.released)

    def read(self, broker: Standing, names: Collection[str]) -> dict[str, int]:
        """A broker reads records of its own: the numbers of the handovers that it has to confirm."""
        return self._store.reads(broker.name, names)

    def confirm(self, broker: Standing, kind: Kind, serials: Mapping[str, int]) -> None:
        """A broker has done what it was told. One that was told or has read something older has to do more."""
        if serials:
            self._store.confirm(broker.name, kind, serials)
