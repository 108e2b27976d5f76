"""Iteration over results: in order, each once, acknowledged when the caller asks for the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal

import msgspec

from newsstand.client.http import HttpCalls
from newsstand.client.models import ResourceNotFound, Result, ResultsRemoved, Subscription, UsageError
from newsstand.client.notifications import Cursor, Notifications

logger = logging.getLogger("newsstand.client")
OnRemoved = Literal["raise", "skip"]


class ResultBatch(msgspec.Struct):
    """A response with results, oldest first; it has `next` if more are pending."""

    results: list[Result]
    head: int
    next: int | None
    read_ms: float = 0.0
    """The duration of the request."""


@dataclass(eq=False)
class ResultIteration:
    """An iteration over the results of some subscriptions, in round-robin order."""

    cursors: Sequence[Cursor]
    wake: asyncio.Event
    """Set when one of the cursors may have results."""
    notifications: Notifications
    fetch: Callable[[str, int], Awaitable[ResultBatch]]
    subscribe_again: Callable[[Subscription, int], Awaitable[Subscription]]
    calls: HttpCalls
    acknowledge: bool
    on_removed: OnRemoved
    closed: bool = False
    superseded: bool = False

    def supersede(self) -> None:
        """End this iteration in favour of a newer one."""
        self.superseded = True
        self.wake.set()

    async def results(self) -> AsyncIterator[Result]:
        """Yield all results without end; acknowledge each one when the caller asks for the next."""
        turns = cycle(self.cursors)
        while not self.closed:
            self._raise_failure()
            cursor = next((one for one in islice(turns, len(self.cursors)) if one.pending), None)
            if cursor is None:
                await self._wait()
                continue
            for result in await self._next(cursor):
                if self.closed or self.superseded:
                    break
                cursor.seen = result.position
                yield result
                if self.acknowledge:
                    cursor.done = max(cursor.done, result.position)
                    self.notifications.acknowledge_soon()

    def _raise_failure(self) -> None:
        if self.superseded:
            raise UsageError("a newer iteration reads a subscription of this one")
        if self.notifications.failure is not None:
            raise self.notifications.failure

    async def _wait(self) -> None:
        """Wait for a notification; without any for `poll_s`, read all the same."""
        self.wake.clear()
        try:
            async with asyncio.timeout(self.calls.pace.poll_s * self.calls.rng.uniform(0.75, 1.25)):
                await self.wake.wait()
        except TimeoutError:
            for cursor in self.cursors:
                cursor.due = True
            return
        if self.calls.pace.read_delay_s and not any(cursor.continues for cursor in self.cursors):
            await asyncio.sleep(self.calls.rng.uniform(0, self.calls.pace.read_delay_s))

    async def _next(self, cursor: Cursor) -> list[Result]:
        """Return the results after the last one seen: those that came with notifications, or else read ones."""
        if inline := cursor.take_inline():
            cursor.moved, cursor.backoff = False, None  # the connected broker has the subscription
            cursor.cancel_timer()
            return [self._completed(cursor, one, 0.0) for one in inline]
        cursor.due, cursor.head = False, 0  # notifications during the read raise it again
        key = cursor.subscription.id
        try:
            batch = await self.fetch(key, cursor.seen)
        except ResultsRemoved as error:
            self._skip(cursor, error.earliest, error)
            return []
        except ResourceNotFound:
            if not cursor.moved:
                raise
            # A broker died before it replicated a new subscription: subscribe again, from the last result seen.
            again = await self.subscribe_again(cursor.subscription, cursor.seen)
            if self.superseded:
                return []
            cursor.moved, cursor.due = False, True
            cursor.update(again)
            self.notifications.follow(cursor)
            return []
        cursor.moved = False
        results = [
            self._completed(cursor, one, batch.read_ms) for one in batch.results if one.position > cursor.seen
        ]
        cursor.due = bool(results) and batch.next is not None
        cursor.advance(batch.head if results else min(batch.head, cursor.seen))
        if results or batch.head <= cursor.seen:
            cursor.backoff = None
            cursor.cancel_timer()
        else:  # the broker has promised results: read again, with back-off
            cursor.backoff = cursor.backoff or self.calls.backoff()
            cursor.read_after(cursor.backoff.next_s())
        return results

    def _completed(self, cursor: Cursor, result: Result, read_ms: float) -> Result:
        """Return a result with what only the client knows of it."""
        missed, cursor.missed = cursor.missed, 0
        key = cursor.subscription.id
        return msgspec.structs.replace(result, subscription=key, missed=missed, read_ms=read_ms)

    def _skip(self, cursor: Cursor, earliest: int, error: ResultsRemoved) -> None:
        missed = earliest - 1 - cursor.seen
        if self.on_removed == "raise" or missed <= 0:
            raise error
        logger.warning("subscription %s: retention removed %d unread results", cursor.subscription.id, missed)
        cursor.missed += missed
        cursor.seen += missed
        cursor.due = True
        if self.acknowledge:
            cursor.done = max(cursor.done, cursor.seen)
            self.notifications.acknowledge_soon()
