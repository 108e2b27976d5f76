"""Coalescing of calls: equal calls share one that is under way, and calls at about the same time form a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Flight(Generic[V]):
    task: asyncio.Task[V]
    waiting: int = 0


class SingleFlight(Generic[K, V]):
    """Runs one call per key at a time; callers that arrive while it runs share its result or its error.

    A caller that is cancelled leaves the call running for the others.
    """

    def __init__(self, *, cancel_abandoned: bool = False) -> None:
        """With `cancel_abandoned`, cancel a call when its last caller is cancelled."""
        self._cancel_abandoned = cancel_abandoned
        self._flights: dict[K, _Flight[V]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._flights

    def __iter__(self) -> Iterator[K]:
        return iter(self._flights)

    def __len__(self) -> int:
        return len(self._flights)

    def task(self, key: K) -> asyncio.Task[V] | None:
        """Return the task of a call that is under way."""
        flight = self._flights.get(key)
        return None if flight is None else flight.task

    def start(self, key: K, call: Callable[[], Awaitable[V]]) -> asyncio.Task[V]:
        """Start a call unless one of its key is under way; return its task."""
        return self._flight(key, call).task

    async def run(self, key: K, call: Callable[[], Awaitable[V]]) -> V:
        """Return the result of the call of a key that is under way, or of a new one."""
        flight = self._flight(key, call)
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and self._cancel_abandoned and not flight.task.done():
                flight.task.cancel()
                self._end(key, flight)

    def _flight(self, key: K, call: Callable[[], Awaitable[V]]) -> _Flight[V]:
        flight = self._flights.get(key)
        if flight is None:

            async def work() -> V:
                return await call()

            flight = self._flights[key] = _Flight(asyncio.create_task(work()))
            flight.task.add_done_callback(lambda _: self._end(key, flight))
        return flight

    def _end(self, key: K, flight: _Flight[V]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        if flight.task.done() and not flight.task.cancelled():
            flight.task.exception()  # retrieved: asyncio logs nothing if every caller was cancelled


T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Collects items for a short time and handles them in one call; each caller gets the result of its item."""

    def __init__(
        self,
        handle: Callable[[list[T]], Awaitable[Sequence[R | Exception]]],
        *,
        delay_s: float = 0.0,
        most: int | None = None,
        key: Callable[[T], Hashable] | None = None,
        serial: bool = False,
    ) -> None:
        """`handle` returns a result or an error for each item; an error that it raises goes to all callers.

        A batch is handled `delay_s` after its first item (0: in the next turn of the event loop), or when it has
        `most` items, or when an item arrives whose `key` it has already. With `serial` one batch is handled at a
        time: items that arrive meanwhile form the next batch, whatever their number and keys.
        """
        self._handle = handle
        self._delay_s = delay_s
        self._most = most
        self._key = key
        self._serial = serial
        self._items: list[tuple[T, asyncio.Future[R]]] = []
        self._keys: set[Hashable] = set()
        self._timer: asyncio.Handle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def submit(self, item: T) -> R:
        """Return the result of an item, which goes with the present batch."""
        loop = asyncio.get_running_loop()
        key = self._key(item) if self._key is not None else None
        if not self._serial and (len(self._items) == self._most or (self._key is not None and key in self._keys)):
            self._flush()
        waiting: asyncio.Future[R] = loop.create_future()
        self._items.append((item, waiting))
        if self._key is not None:
            self._keys.add(key)
        if self._timer is None and not (self._serial and self._running):
            self._timer = (
                loop.call_later(self._delay_s, self._flush) if self._delay_s else loop.call_soon(self._flush)
            )
        return await waiting

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._items:
            items, self._items, self._keys = self._items, [], set()
            task = asyncio.create_task(self._run(items))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if self._serial and self._items and not task.cancelled():
            self._flush()

    async def _run(self, items: list[tuple[T, asyncio.Future[R]]]) -> None:
        results: Sequence[R | Exception]
        try:
            results = await self._handle([item for item, _ in items])
        except Exception as error:  # every caller gets it
            results = [error] * len(items)
        except BaseException:
            for _, waiting in items:
                waiting.cancel()
            raise
        for (_, waiting), result in zip(items, results, strict=True):
            if waiting.done():
                continue
            if isinstance(result, Exception):
                waiting.set_exception(result)
            else:
                waiting.set_result(result)
