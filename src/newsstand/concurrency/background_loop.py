"""Event loops of asyncio in threads of their own, for callers in other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """An event loop in a daemon thread, which runs coroutines for callers that block."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine; Ctrl-C while it runs cancels it and waits for its end."""
        ended = threading.Event()
        started: list[asyncio.Task[T]] = []

        def start() -> None:
            started.append(self._loop.create_task(work))
            started[0].add_done_callback(lambda _: ended.set())

        def cancel() -> None:
            started[0].cancel()

        self._loop.call_soon_threadsafe(start)
        try:
            ended.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            ended.wait()
            raise
        return started[0].result()

    def stop(self) -> None:
        """End the thread and those of the loop's executor."""
        if self._thread.is_alive():
            self.run(self._loop.shutdown_asyncgens())
            self.run(self._loop.shutdown_default_executor())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class BackgroundTask:
    """A coroutine that runs in a thread of its own from `start` until `stop`; it can be started again."""

    def __init__(self, name: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._name = name
        self._work = work
        self._running: tuple[BackgroundLoop, asyncio.Task[None]] | None = None

    def start(self) -> None:
        """Start the coroutine; it has run to its first pause on return."""

        async def start() -> asyncio.Task[None]:
            task = asyncio.create_task(self._work())
            await asyncio.sleep(0)
            return task

        loop = BackgroundLoop(self._name)
        self._running = loop, loop.run(start())

    def stop(self) -> None:
        """Cancel the coroutine and wait for its end; do nothing if it was not started."""
        if self._running is None:
            return
        (loop, task), self._running = self._running, None

        async def cancel() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        loop.run(cancel())
        loop.stop()
