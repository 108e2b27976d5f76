"""HTTP for thousands of subscribers in one process: a few connections that are kept, and no more than is needed.

A request costs a tenth of what a full client spends on it, which would otherwise be the larger part of a latency.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from newsstand.errors import NewsstandError

PATIENCE_S = 60.0


class NoAnswer(NewsstandError):
    """A server did not answer, or not as it should."""


class Answer(NamedTuple):
    """What came back, and how long it took from the moment at which the request was sent."""

    status: int
    body: bytes
    seconds: float


class Line(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    def __init__(self) -> None:
        self._waiting: asyncio.Future[tuple[int, bytes]] | None = None
        self._read = b""
        self._transport: asyncio.Transport | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionResetError("closed by the server"))

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, found, body = self._read.partition(b"\r\n\r\n")
        if not found or self._waiting is None:
            return
        length = _length(head)
        if len(body) >= length:
            self._read = b""
            if not self._waiting.done():
                self._waiting.set_result((int(head[9:12]), body[:length]))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a whole request; status and body of its answer."""
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._waiting
        except BaseException:
            self.close()  # what may still come would be taken for the next answer
            raise
        finally:
            self._waiting = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Lines:
    """Connections to one server, so many at a time."""

    def __init__(self, url: str, at_once: int = 16) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._turns = asyncio.Semaphore(at_once)
        self._idle: list[Line] = []

    async def ask(self, method: str, path: str, token: str, body: object = None) -> Answer:
        """One call; it is repeated once if the server had closed the connection meanwhile."""
        content = b"" if body is None else msgspec.json.encode(body)
        kind = "Content-Type: application/json\r\n" if content else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {token}\r\n"
            f"{kind}Content-Length: {len(content)}\r\n\r\n"
        )
        request = head.encode() + content
        async with self._turns:
            for fresh in (False, True):
                line = await self._line(fresh)
                begun = time.perf_counter()
                try:
                    status, answer = await line.ask(request)
                except ConnectionError as error:
                    if fresh:
                        raise NoAnswer(f"{method} {path}: {error}") from error
                    continue
                except TimeoutError:
                    raise NoAnswer(f"{method} {path}: no answer in {PATIENCE_S:.0f} s") from None
                seconds = time.perf_counter() - begun
                self._idle.append(line)
                return Answer(status, answer, seconds)
        raise AssertionError

    def close(self) -> None:
        """Close all connections."""
        for line in self._idle:
            line.close()

    async def _line(self, fresh: bool) -> Line:
        while self._idle and not fresh:
            line = self._idle.pop()
            if line.is_open:
                return line
        try:
            _, line = await asyncio.get_running_loop().create_connection(Line, self._host, self._port)
        except OSError as error:
            raise NoAnswer(f"{self._host}:{self._port}: {error.strerror}") from error
        return line


def _length(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(b"\r\ncontent-length:")
    return 0 if at < 0 else int(lower[at + 17 :].partition(b"\r\n")[0])
