"""Sends the changes that a broker has made to its coordinator, in order, until the coordinator has them.

A change is in the broker's store first. While the coordinator answers, a subscriber gets its answer after the
coordinator has the change, too: then the loss of the broker undoes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from newsstand.broker.records import Change
from newsstand.broker.store import Store
from newsstand.errors import NewsstandError

logger = logging.getLogger(__name__)
REPLICATION_S = 2.0
"""How long an answer to a subscriber waits for the coordinator to have the change."""
MOST_CHANGES = 5000
"""Changes in one call."""


class NoCoordinator(NewsstandError):
    """The coordinator does not answer."""


class Superseded(NoCoordinator):
    """Another process is this broker by now: this one must not serve anybody."""


class Applied(msgspec.Struct):
    """What the coordinator says of changes: whose subscribers have another home, as far as that is settled."""

    moved: list[str] = []
    late: list[str] = []
    serial: int = 0


class ChangeSender:
    """One call at a time; all who wait while one is under way share the next."""

    def __init__(
        self,
        store: Store,
        send: Callable[[Sequence[Change]], Awaitable[Applied]],
        *,
        fence: Callable[[Mapping[str, int]], None],
        left: Callable[[Mapping[str, int]], Awaitable[None]],
        wait_s: float = REPLICATION_S,
    ) -> None:
        """`fence`: these subscribers have another home; `left`: and it follows their streams by now."""
        self._store = store
        self._send = send
        self._fence = fence
        self._left = left
        self._wait_s = wait_s
        self.exchange = asyncio.Lock()
        """What is unsent does not change while a record is compared with the coordinator's."""
        self._changed = asyncio.Event()
        self._changed.set()
        self._first_try = asyncio.Event()
        self._is_behind = True
        """Whether changes wait for the coordinator: then no answer waits for it, until it has caught up."""
        self._waiting: list[asyncio.Future[bool]] = []
        self._replicating: asyncio.Task[None] | None = None

    async def replicate(self) -> bool:
        """Send the changes that are in the store; return whether the coordinator has them.

        While the coordinator is away the answer is immediate, and `run` sends the changes later.
        """
        if not self._first_try.is_set():
            try:
                async with asyncio.timeout(self._wait_s):
                    await self._first_try.wait()
            except TimeoutError:
                return False
        if self._is_behind:
            self._changed.set()
            return False
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        if self._replicating is None:
            self._replicating = asyncio.create_task(self._replicate())
        return await done

    async def _replicate(self) -> None:
        try:
            while self._waiting:
                together, self._waiting = self._waiting, []
                fault: Superseded | None = None
                try:
                    async with asyncio.timeout(self._wait_s):
                        await self.flush()
                    succeeded = True
                except Superseded as error:
                    succeeded, fault = False, error
                except (NewsstandError, TimeoutError) as error:
                    logger.warning("changes wait for the coordinator: %s", error or "it takes too long")
                    succeeded = False
                except Exception:
                    logger.exception("changes wait for the coordinator")
                    succeeded = False
                if not succeeded:
                    self._is_behind = True
                    self._changed.set()
                for done in together:
                    if done.done():
                        continue
                    if fault is None:
                        done.set_result(succeeded)
                    else:
                        done.set_exception(fault)
        finally:
            self._replicating = None

    async def run(self) -> None:
        """Send what could not be sent at once, until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(0.1)
            self._changed.clear()
            try:
                await self.flush()
            except NewsstandError:
                self._changed.set()
                await asyncio.sleep(1.0)
            except Exception:
                logger.exception("changes could not be sent to the coordinator")
                self._changed.set()
                await asyncio.sleep(5.0)

    def tried(self) -> None:
        """Note that the coordinator was asked for the first time, whether it has answered or not."""
        self._first_try.set()

    async def flush(self) -> None:
        """Send all changes that the coordinator does not have."""
        async with self.exchange:
            await self.flush_locked()

    async def flush_locked(self) -> None:
        """Do the same for a caller that holds `exchange`."""
        while True:
            upto, changes = await asyncio.to_thread(self._store.unsent, MOST_CHANGES)
            if not changes:
                self._is_behind = False
                return
            applied = await self._send(changes)
            self._fence(dict.fromkeys(applied.late, applied.serial))
            await asyncio.to_thread(self._store.sent, upto)
            if applied.moved:
                await self._left(dict.fromkeys(applied.moved, applied.serial))
