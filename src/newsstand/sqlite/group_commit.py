"""Group commit: items that arrive while one transaction is under way share the next one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

Item = TypeVar("Item")


class GroupCommit(Generic[Item]):
    """Writes items in order in a thread, as many in one transaction as have arrived. It belongs to one event loop.

    A disk takes milliseconds to sync one row or a thousand of them; the event loop waits for neither.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Item]], None],
        *,
        executor: Executor | None = None,
        recover: Callable[[Exception, Sequence[Item]], tuple[Exception, list[Item]]] | None = None,
        retry_s: float = 1.0,
    ) -> None:
        """`commit` writes items durably or raises an error.

        `recover` returns the error that waiting callers get and the items to try again after `retry_s`. Without
        it, callers get the error of `commit`, and its items are dropped.
        """
        self._commit = commit
        self._executor = executor
        self._recover = recover
        self.retry_s = retry_s
        self._items: list[Item] = []
        self._calls: list[Callable[[], None]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self.fault: Exception | None = None
        """The error of the last transaction, if its items are being tried again."""

    def add(self, *items: Item) -> None:
        """Write items soon, after those that were added before."""
        self._items += items
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def write(self, *items: Item) -> None:
        """Write items and wait until they are durable."""
        self.add(*items)
        await self.flushed()

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call a function when all items so far are durable; at once if nothing waits."""
        if self._task is None:
            call()
        else:
            self._calls.append(call)

    async def flushed(self) -> None:
        """Wait until all items so far are durable; raise the error of a failed transaction."""
        if self._task is not None:
            flushed = asyncio.get_running_loop().create_future()
            self._waiting.append(flushed)
            await flushed

    async def drained(self, timeout_s: float = 5.0) -> None:
        """Wait until nothing is being written, but not for transactions that fail."""
        if self._task is not None and self.fault is None:
            await asyncio.wait([self._task], timeout=timeout_s)

    async def _run(self) -> None:
        try:
            while self._items or self._calls or self._waiting:
                items, self._items = self._items, []
                calls, self._calls = self._calls, []
                waiting, self._waiting = self._waiting, []
                try:
                    await asyncio.get_running_loop().run_in_executor(self._executor, self._commit, items)
                except Exception as error:
                    if self._recover is None:
                        _reject(waiting, error)
                        continue
                    self.fault, again = self._recover(error, items)
                    _reject(waiting, self.fault)
                    self._items = again + self._items
                    self._calls = calls + self._calls
                    await asyncio.sleep(self.retry_s)
                    continue
                self.fault = None
                for call in calls:
                    _run_safely(call)
                for flushed in waiting:
                    if not flushed.done():
                        flushed.set_result(None)
        finally:
            self._task = None


def _reject(waiting: Sequence[asyncio.Future[None]], error: Exception) -> None:
    for flushed in waiting:
        if not flushed.done():
            flushed.set_exception(error)


def _run_safely(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # the calls behind it still have to run
        logger.exception("a call after a commit failed")
