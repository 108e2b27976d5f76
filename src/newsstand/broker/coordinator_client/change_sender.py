"""Replication of a broker's changes to its coordinator, in order.

A change is in the broker's store first. While the coordinator responds, a subscriber gets its response after the
coordinator has the change, too: then the loss of the broker undoes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from newsstand.broker.coordinator_client.client import IncarnationSuperseded
from newsstand.broker.sessions.state import Change
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.concurrency.coalescing import Batcher
from newsstand.concurrency.pacing import Backoff
from newsstand.errors import NewsstandError
from newsstand.wire.coordination import ChangesResponse
from newsstand.wire.subscribers import SubscriberRecord

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CoordinatorLimits:
    """Limits of calls to the coordinator."""

    replication_s: float = 2.0
    """How long a response to a subscriber waits for the replication of its change."""
    changes: int = 5000
    """Changes in one call."""
    batch_s: float = 0.01
    """Subscribers that log in within this time are taken in one call."""
    duplicate_leases: int = 2
    """The number of leases for which a broker waits until a process of the same name is gone."""


class SubscriberMoves(Protocol):
    """Moves of subscribers between brokers, each with its serial number: records of later epochs have returned."""

    async def adopt(self, records: Sequence[SubscriberRecord]) -> None: ...
    async def retain_only(self, names: Sequence[str], held: Sequence[str], serial: int) -> None: ...
    def fence(self, moved: Mapping[str, int]) -> None: ...
    async def release_moved(self, moved: Mapping[str, int]) -> None: ...


@dataclass(eq=False, repr=False)
class ChangeSender:
    """Sends one call at a time; callers that wait while one is under way share the next."""

    store: SubscriberStore
    send: Callable[[Sequence[Change]], Awaitable[ChangesResponse]]
    moves: SubscriberMoves
    limits: CoordinatorLimits = CoordinatorLimits()

    def __post_init__(self) -> None:
        self.exchange = asyncio.Lock()
        """Held while records are compared with the coordinator's: unsent changes stay the same meanwhile."""
        self._changed = asyncio.Event()
        self._changed.set()
        self._first_try = asyncio.Event()
        self._is_behind = True
        """Whether changes wait in the store: until they are sent, no response waits for replication."""
        self._replications = Batcher[None, bool](self._replicate, serial=True)

    async def replicate(self) -> bool:
        """Send the changes that are in the store; return whether the coordinator has them.

        While the coordinator is unavailable, return at once; `run` sends the changes later.
        """
        if not self._first_try.is_set():
            try:
                async with asyncio.timeout(self.limits.replication_s):
                    await self._first_try.wait()
            except TimeoutError:
                return False
        if self._is_behind:
            self._changed.set()
            return False
        return await self._replications.submit(None)

    async def _replicate(self, calls: list[None]) -> list[bool]:
        succeeded = False
        try:
            async with asyncio.timeout(self.limits.replication_s):
                await self.flush()
            succeeded = True
        except IncarnationSuperseded:
            raise
        except (NewsstandError, TimeoutError) as error:
            logger.warning("changes not replicated yet: %s", error or "time-out")
        except Exception:
            logger.exception("changes not replicated yet")
        finally:
            if not succeeded:
                self._is_behind = True
                self._changed.set()
        return [succeeded] * len(calls)

    async def run(self) -> None:
        """Send the changes that could not be sent at once, until cancelled."""
        backoff = Backoff(1.0)
        while True:
            await self._changed.wait()
            await asyncio.sleep(0.1)
            self._changed.clear()
            try:
                await self.flush()
                backoff.reset()
            except Exception as error:
                if not isinstance(error, NewsstandError):
                    logger.exception("changes could not be replicated")
                self._changed.set()
                await backoff.wait()

    def mark_contacted(self) -> None:
        """Record that the first heartbeat has ended, successfully or not."""
        self._first_try.set()

    async def flush(self) -> None:
        """Send all changes that the coordinator does not have."""
        async with self.exchange:
            await self.flush_locked()

    async def flush_locked(self) -> None:
        """Send all changes, for a caller that holds `exchange`."""
        while True:
            upto, changes = await asyncio.to_thread(self.store.unsent, self.limits.changes)
            if not changes:
                self._is_behind = False
                return
            applied = await self.send(changes)
            self.moves.fence(dict.fromkeys(applied.late, applied.serial))
            await asyncio.to_thread(self.store.mark_sent, upto)
            if applied.moved:
                await self.moves.release_moved(dict.fromkeys(applied.moved, applied.serial))
