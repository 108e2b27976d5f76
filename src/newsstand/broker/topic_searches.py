"""Requests of neighbours for what caches have: answered a few at a time, and no faster than they are read.

An answer may be thousands of times as long as its request. So requests wait while much waits on the line already,
and those that wait too long, or are too many, are refused: their answer says that it is not whole.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from newsstand.overlay.gatherings import Key
from newsstand.overlay.messages import CacheRequest, CacheResponse
from newsstand.overlay.opportunistic import CachingBroker
from newsstand.overlay.outcomes import Out, Send

AT_ONCE = 2
"""Requests of each neighbour in one turn of the event loop."""
MOST_QUEUED = 256
"""Of one neighbour."""
MOST_OPEN = 16
"""Requests of one neighbour that wait for others."""
MOST_WAITING = 4 * 1024 * 1024
"""Bytes that may wait on a line when something is added to it."""
PATIENCE_S = 5.0
"""How long a request may wait, for its turn and for others: less than whoever has asked waits."""
PAUSE_S = 0.05


class Searches:
    """Those that neighbours have asked for."""

    def __init__(
        self, node: CachingBroker, do: Callable[[Sequence[Out]], None], waiting: Callable[[str], int]
    ) -> None:
        """`waiting`: how many bytes wait on the line to a neighbour."""
        self._node = node
        self._do = do
        self._waiting = waiting
        self._queues: dict[str, deque[tuple[CacheRequest, float]]] = {}
        self._open: dict[str, dict[Key, float]] = {}
        """Those that wait for others, and until when."""
        self._next: asyncio.Handle | None = None

    def ask(self, neighbour: str, request: CacheRequest) -> None:
        """A neighbour asks."""
        queue = self._queues.setdefault(neighbour, deque())
        if len(queue) >= MOST_QUEUED:
            self._refuse(neighbour, request)
            return
        queue.append((request, asyncio.get_running_loop().time() + PATIENCE_S))
        self._soon(0.0)

    def lost(self, neighbour: str) -> None:
        """A neighbour has gone, and waits for nothing."""
        self._queues.pop(neighbour, None)
        self._open.pop(neighbour, None)

    def tick(self) -> None:
        """To be called from time to time: nothing waits too long."""
        now = asyncio.get_running_loop().time()
        for neighbour, queue in list(self._queues.items()):
            while queue and queue[0][1] <= now:
                self._refuse(neighbour, queue.popleft()[0])
        for waiting in list(self._open.values()):
            for key in [key for key, until in waiting.items() if until <= now]:
                del waiting[key]
                self._do(self._node.stop_gathering(key))

    def close(self) -> None:
        """Answer nobody any more."""
        self._queues.clear()
        if self._next is not None:
            self._next.cancel()

    def _soon(self, pause: float) -> None:
        if self._next is None:
            self._next = asyncio.get_running_loop().call_later(pause, self._turn)

    def _turn(self) -> None:
        self._next = None
        served = 0
        for neighbour in list(self._queues):
            served += self._serve(neighbour)
        self._queues = {neighbour: queue for neighbour, queue in self._queues.items() if queue}
        if self._queues:
            self._soon(0.0 if served else PAUSE_S)

    def _serve(self, neighbour: str) -> int:
        """Answer some requests of a neighbour: how many."""
        queue = self._queues[neighbour]
        gatherings = self._node.gatherings
        waiting = {key: until for key, until in self._open.get(neighbour, {}).items() if key in gatherings}
        served = 0
        while queue and served < AT_ONCE and len(waiting) < MOST_OPEN and self._waiting(neighbour) < MOST_WAITING:
            request, until = queue.popleft()
            key = request.path[0], request.number
            is_new = key not in gatherings
            self._do(self._node.receive(neighbour, request))
            if is_new and key in gatherings:
                waiting[key] = until
            served += 1
        self._open[neighbour] = waiting
        return served

    def _refuse(self, neighbour: str, request: CacheRequest) -> None:
        self._do([Send(neighbour, CacheResponse(request.path[0], request.number, whole=False))])
