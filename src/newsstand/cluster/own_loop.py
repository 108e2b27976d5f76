"""Work of asyncio in a thread of its own, begun and ended from others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine


class OwnLoop:
    """A thread with an event loop that does one work until it is stopped."""

    def __init__(self, name: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._name = name
        self._work = work
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; the work has had its first turn when it returns."""
        begun = threading.Event()

        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._running = asyncio.create_task(self._work())
            self._loop.call_soon(begun.set)
            await asyncio.gather(self._running, return_exceptions=True)

        self._thread = threading.Thread(target=lambda: asyncio.run(main()), name=self._name, daemon=True)
        self._thread.start()
        begun.wait()

    def stop(self) -> None:
        """Cancel the work and wait for its end; nothing happens if it is not running."""
        loop, running, thread = self._loop, self._running, self._thread
        if loop is not None and running is not None and thread is not None and thread.is_alive():
            loop.call_soon_threadsafe(running.cancel)
            thread.join()
        self._loop = self._running = self._thread = None
