"""Iterating over results: in order, each once, acknowledged when the caller asks for the next."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import cycle, islice
from typing import Any, Literal

import msgspec

from newsstand.client.cursor import Cursor
from newsstand.client.errors import Gone, Misused, NotThere
from newsstand.client.notifications import Notifications
from newsstand.client.nouns import PageLink, Result, Subscription
from newsstand.client.pace import Pace, full_jitter

logger = logging.getLogger("newsstand.client")
WhenGone = Literal["raise", "skip"]


class Delivered(msgspec.Struct):
    """One result as a broker writes it."""

    position: int
    at_ms: int
    payload: dict[str, Any]
    publication: int | None
    page: PageLink | None
    origin: str


class Delivery(msgspec.Struct):
    """An answer of results, oldest first; `next` if more are pending."""

    results: list[Delivered]
    head: int
    next: int | None


class Reading:
    """One iteration over the results of some subscriptions, taken in turns."""

    def __init__(
        self,
        cursors: Sequence[Cursor],
        wake: asyncio.Event,
        notifications: Notifications,
        fetch: Callable[[str, int], Awaitable[Delivery]],
        subscribe_again: Callable[[Subscription, int], Awaitable[Subscription]],
        pace: Pace,
        rng: random.Random,
        *,
        acknowledge: bool,
        gone: WhenGone,
    ) -> None:
        self.cursors = cursors
        self._wake = wake
        self._notifications = notifications
        self._fetch = fetch
        self._subscribe_again = subscribe_again
        self._pace = pace
        self._rng = rng
        self._acknowledge = acknowledge
        self._gone = gone
        self.closed = False
        self._taken = False

    def take_over(self) -> None:
        """A newer iteration goes on: this one is over."""
        self._taken = True
        self._wake.set()

    async def results(self) -> AsyncIterator[Result]:
        """All results, for ever; those that the caller is done with are acknowledged in a moment."""
        turns = cycle(self.cursors)
        while not self.closed:
            self._check()
            cursor = next((one for one in islice(turns, len(self.cursors)) if one.pending), None)
            if cursor is None:
                await self._wait()
                continue
            for result in await self._next(cursor):
                if self.closed or self._taken:
                    break
                cursor.seen = result.position
                yield result
                if self._acknowledge:
                    cursor.done = max(cursor.done, result.position)
                    self._notifications.acknowledge_soon()

    def _check(self) -> None:
        if self._taken:
            raise Misused("a newer iteration has taken over a subscription of this one")
        if self._notifications.failure is not None:
            raise self._notifications.failure

    async def _wait(self) -> None:
        """Wait for a signal; without any for long, look all the same."""
        self._wake.clear()
        try:
            async with asyncio.timeout(self._pace.poll_s * self._rng.uniform(0.75, 1.25)):
                await self._wake.wait()
        except TimeoutError:
            for cursor in self.cursors:
                cursor.due = True

    async def _next(self, cursor: Cursor) -> list[Result]:
        """What comes after what was seen."""
        cursor.due, cursor.head = False, 0  # signals that come while this reads raise it again
        key = cursor.subscription.id
        try:
            delivery = await self._fetch(key, cursor.seen)
        except Gone as error:
            self._skip(cursor, error.earliest, error)
            return []
        except NotThere:
            if not cursor.moved:
                raise
            # A broker died before it told of a new subscription: it is made again, from where this client is.
            again = await self._subscribe_again(cursor.subscription, cursor.seen)
            if self._taken:
                return []
            cursor.moved, cursor.due = False, True
            cursor.placed(again)
            self._notifications.follow(cursor)
            return []
        cursor.moved = False
        results = [self._result(cursor, one) for one in delivery.results if one.position > cursor.seen]
        if results:
            cursor.waits = None
            cursor.rest()
            cursor.told(delivery.head)
            cursor.due = delivery.next is not None
        else:
            self._without_results(cursor, delivery.head)
        return results

    def _without_results(self, cursor: Cursor, head: int) -> None:
        """There is nothing to read, or not yet: a broker that promises more is asked less and less often."""
        cursor.due = False
        cursor.told(min(head, cursor.seen))
        if head > cursor.seen:
            cursor.waits = cursor.waits or full_jitter(self._pace, self._rng)
            cursor.look_after(next(cursor.waits))
        else:
            cursor.waits = None
            cursor.rest()

    def _result(self, cursor: Cursor, one: Delivered) -> Result:
        missed, cursor.missed = cursor.missed, 0
        key = cursor.subscription.id
        return Result(key, one.position, one.at_ms, one.payload, one.publication, one.page, one.origin, missed)

    def _skip(self, cursor: Cursor, earliest: int, error: Gone) -> None:
        missed = earliest - 1 - cursor.seen
        if self._gone == "raise" or missed <= 0:
            raise error
        logger.warning("subscription %s: %d results were removed unread", cursor.subscription.id, missed)
        cursor.missed += missed
        cursor.seen += missed
        cursor.due = True
        if self._acknowledge:
            cursor.done = max(cursor.done, cursor.seen)
            self._notifications.acknowledge_soon()
