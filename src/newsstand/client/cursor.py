"""How far a client has come in one subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from newsstand.client.nouns import Subscription


class Cursor:
    """One subscription that is being iterated over.

    `seen` was given to the caller, the caller is `done` with it, `acked` is durable at the broker. A broker that
    has just taken over may know of less than the client, so no more than its `head` is acknowledged.
    """

    __slots__ = (
        "acked",
        "again",
        "done",
        "due",
        "head",
        "missed",
        "moved",
        "seen",
        "sent",
        "subscription",
        "waits",
        "wake",
    )

    def __init__(self, subscription: Subscription, after: int, wake: asyncio.Event) -> None:
        self.subscription = subscription
        self.wake = wake
        self.seen = self.done = after
        self.acked = self.sent = min(after, subscription.position)
        self.head = 0
        """What the broker told since the client is connected to it; 0 if nothing."""
        self.missed = 0
        self.due = True
        """Whether to read whatever the head is."""
        self.moved = False
        """Whether another broker was met since the last time that reading succeeded."""
        self.waits: Iterator[float] | None = None
        self.again: asyncio.TimerHandle | None = None
        """After an answer without the results that its head promises: when to read again."""

    @property
    def pending(self) -> bool:
        """Whether there is something to read."""
        return self.due or self.head > self.seen

    def told(self, head: int) -> None:
        """The stream has come to a position."""
        self.head = max(self.head, head)
        if self.head > self.seen:
            self.wake.set()

    def look(self) -> None:
        """Read, whatever the head is."""
        self.due = True
        self.wake.set()

    def look_after(self, wait_s: float) -> None:
        """Read in a while, if no signal comes before."""
        self.rest()
        self.again = asyncio.get_running_loop().call_later(wait_s, self.look)

    def rest(self) -> None:
        """Read when a signal comes, not before."""
        if self.again is not None:
            self.again.cancel()
            self.again = None

    def connected(self, broker: str) -> None:
        """Of what a connection to another broker leads to, nothing is known yet."""
        if broker != self.subscription.broker:
            self.head = 0
        self.sent = self.acked

    def placed(self, subscription: Subscription) -> None:
        """A broker tells what it knows of the subscription."""
        if subscription.broker != self.subscription.broker:
            self.acked = self.sent = subscription.position  # acknowledge again what it has not heard of
            self.moved = True
        self.subscription = subscription
        self.told(subscription.head)

    def to_acknowledge(self) -> int | None:
        """The position to send now, if any."""
        position = min(self.done, self.head)
        return position if position > self.sent else None
