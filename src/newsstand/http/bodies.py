"""Bodies of requests, read within limits of size, time and memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from newsstand.errors import Busy
from newsstand.http.errors import HttpError

SLOWEST = 10_000
"""Bytes per second: a body that arrives more slowly is rejected."""

LONGEST_S = 600.0
"""The longest time for a whole body."""


class Budget:
    """The number of bytes of bodies in memory over all requests; used from the event loop only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    def acquire(self, count: int) -> None:
        """Count more bytes, or raise Busy."""
        if self._held and self._held + count > self._most:
            raise Busy("many large bodies are being received; try again in a moment")
        self._held += count

    def release(self, count: int) -> None:
        """Count fewer bytes."""
        self._held -= count


class Bodies:
    """A reader of bodies: each within its limit, all of one limit within a budget."""

    def __init__(self, patience_s: float = 10, longest_s: float = LONGEST_S) -> None:
        self._patience_s = patience_s
        self._longest_s = max(patience_s, longest_s)
        self._budgets: dict[int, Budget] = {}

    @asynccontextmanager
    async def read(
        self, request: Request, limit: int, advice: str = "send it in several requests"
    ) -> AsyncIterator[bytes]:
        """Read the body of a request, counted against a budget until the block ends.

        The error for a larger body ends with the advice.
        """
        encoding = request.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise HttpError(415, f"Content-Encoding '{encoding}' is not read; send the body as it is")
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > limit:
            raise _too_large(limit, advice)
        budget = self._budgets.setdefault(limit, Budget(max(2 * limit, 2**26)))
        pieces: list[bytes] = []
        size = 0
        try:
            async for piece in _pieces(request, self._patience_s, self._longest_s):
                if size + len(piece) > limit:
                    raise _too_large(limit, advice)
                budget.acquire(len(piece))
                size += len(piece)
                pieces.append(piece)
            yield b"".join(pieces)
        finally:
            budget.release(size)


async def _pieces(request: Request, patience_s: float, longest_s: float) -> AsyncIterator[bytes]:
    """Yield pieces while enough bytes arrive in each `patience_s`; a burst extends the time by one window only."""
    loop = asyncio.get_running_loop()
    begun, size = loop.time(), 0
    window_end = begun + patience_s
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(min(window_end, begun + longest_s)):
                piece = await anext(stream, None)
        except TimeoutError:
            raise HttpError(408, "the body comes too slowly", {"Connection": "close"}) from None
        if piece is None:
            return
        size += len(piece)
        if size >= SLOWEST * patience_s:
            window_end, size = loop.time() + patience_s, 0
        if piece:
            yield piece


def _too_large(limit: int, advice: str) -> HttpError:
    # The rest of the body is not read, so the connection cannot be used again.
    return HttpError(413, f"the body is larger than {limit} bytes; {advice}", {"Connection": "close"})
