"""HTTP/1.1 connections with limits: uvicorn's protocol has none on the head of a request.

The head of a request (request line, headers, trailers) is limited in bytes, headers and seconds, and a client in
connections. Limits on bodies are in `newsstand.http.bodies`.
"""

from __future__ import annotations

import asyncio
import http
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from newsstand.config.settings import HttpLimits, ServerSettings
from newsstand.http.server import BACKLOG, network_of, proxy_options

_PIECE = 16 * 1024
"""Bytes parsed at a time, so that the limits also apply within a large read."""
_LINGER_S = 2.0
"""Seconds for a rejected client to read the response before the connection is closed."""


class _Stage(Enum):
    IDLE = 1
    HEAD = 2
    BODY = 3


class _HeadTooLarge(Exception):
    """The head of a request is over a limit."""


@runtime_checkable
class Successor(Protocol):
    """A protocol that takes a connection over and calls `release` when the connection ends."""

    release: Callable[[], None] | None


class _ResponseTransport:
    """The transport of one response: its head waits for the first bytes of the body; one system call sends both.

    uvicorn writes the head at once. ASGI lets a server wait for the body.
    """

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        """Keep the head of the response, or write it with this first piece of the body."""
        if self._head is None:
            self._head = data
        elif self._head:
            self._transport.write(self._head + data)
            self._head = b""
        else:
            self._transport.write(data)

    def is_closing(self) -> bool:
        """Return whether the connection is being closed."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close the connection once what is written has left."""
        self._transport.close()


class LimitedHttp(HttpToolsProtocol):
    """One connection; `limited_http` makes the class of one server."""

    limits: ClassVar[HttpLimits]
    open: ClassVar[Counter[str]]
    """Connections by client address."""

    _stage = _Stage.IDLE
    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _head_count = 0
    _silent_bytes = 0
    _progress = False
    _rejected = False
    _release: Callable[[], None] | None = None
    _too_large: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = network_of(self.client[0]) if self.client else ""
        if self.open[address] >= self.limits.connections_per_address:
            self._reject(429, f"too many connections from {address}: close some, or use them again", linger=False)
        elif len(self.connections) > self.limits.connections:
            self._reject(503, "too many connections: try again in a moment", linger=False)
        else:
            self.open[address] += 1
            self._release = _once(self.open, address)
            self._arm(self.limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._release is not None:
            self._release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._stage is _Stage.IDLE:
            self._stage = _Stage.HEAD
        for start in range(0, len(data), _PIECE):
            if self._rejected or self.transport.is_closing() or self.transport.get_protocol() is not self:
                return
            self._feed(data[start : start + _PIECE])
        if self._stage is _Stage.HEAD and self._timer is None and not self._rejected:
            self._arm(self.limits.head_s)

    def _feed(self, piece: bytes) -> None:
        self._progress = False
        super().data_received(piece)
        # A header that does not end is held by the parser and reaches no callback.
        self._silent_bytes = 0 if self._progress else self._silent_bytes + len(piece)
        if self._head_bytes + self._silent_bytes > self.limits.head_bytes and not self._rejected:
            self._reject(431, self._large_head())

    def handle_websocket_upgrade(self) -> None:
        self._disarm()
        super().handle_websocket_upgrade()
        successor = self.transport.get_protocol()
        if isinstance(successor, Successor):
            successor.release = self._release
        elif self._release is not None:
            self._release()

    def on_message_begin(self) -> None:
        self._progress = True
        self._stage = _Stage.HEAD
        self._head_bytes = self._head_count = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_count += 1
        if self._head_count > self.limits.headers:
            self._too_large = f"the request has more than {self.limits.headers} headers: send fewer"
            raise _HeadTooLarge
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._progress = True
        self._stage = _Stage.BODY
        self._disarm()
        if len(self.pipeline) >= self.limits.pipelined:
            self._too_large = (
                f"more than {self.limits.pipelined} requests wait on this connection: await responses"
            )
            raise _HeadTooLarge
        super().on_headers_complete()
        # A body follows neither "100 Continue" nor the head of a response to HEAD.
        if not (self.expect_100_continue or self.scope["method"] == "HEAD" or self.parser.should_upgrade()):
            self.cycle.transport = _ResponseTransport(self.transport)  # type: ignore[assignment]

    def on_chunk_header(self) -> None:
        self._progress = True

    def on_body(self, body: bytes) -> None:
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._progress = True
        self._stage = _Stage.IDLE
        self._head_bytes = 0
        super().on_message_complete()
        if self._timer is not None:  # the response was first, and the rest of the body has come in time
            self._disarm()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._stage is _Stage.BODY and not self.pipeline:
            self._arm(self.limits.head_s)

    def send_400_response(self, msg: str) -> None:
        if self._too_large is not None:
            self._reject(431, self._too_large)
        else:
            self._reject(400, "the request is not HTTP/1.1")

    def _count(self, size: int) -> None:
        self._progress = True
        self._head_bytes += size
        if self._head_bytes > self.limits.head_bytes:
            self._too_large = self._large_head()
            raise _HeadTooLarge

    def _large_head(self) -> str:
        return f"request line and headers are larger than {self.limits.head_bytes} bytes: send less"

    def _arm(self, seconds: float) -> None:
        self._disarm()
        if not self.transport.is_closing():
            self._timer = self.loop.call_later(seconds, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self._stage is _Stage.HEAD and not self._rejected:
            self._reject(408, f"the headers did not come within {self.limits.head_s:g} s")
        else:
            self.transport.close()

    def _reject(self, status: int, error: str, *, linger: bool = True) -> None:
        """Answer outside of the app and end the connection."""
        self._rejected = True
        self._disarm()
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # the bytes of another response may be on their way
            return
        body = msgspec.json.encode({"error": error})
        retry = "retry-after: 1\r\n" if status in (429, 503) else ""
        head = (
            f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{retry}connection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        if linger and self.transport.can_write_eof():
            # A close with unread bytes resets the connection, and the client would not see the response.
            self.transport.write_eof()
            self._arm(_LINGER_S)
        else:
            self.transport.close()


def limited_http(limits: HttpLimits) -> type[LimitedHttp]:
    """Return the protocol class of one server: `uvicorn.Config(http=limited_http(limits))`."""
    members: dict[str, Any] = {"limits": limits, "open": Counter()}
    return type("LimitedHttp", (LimitedHttp,), members)


def server_config(app: ASGIApp, settings: ServerSettings, **more: Any) -> uvicorn.Config:
    """Return the configuration of a server without WebSockets that is given 10 s to stop; `more` overrides it."""
    options = {
        "log_config": None,
        "access_log": False,
        "timeout_graceful_shutdown": 10,
        "lifespan": "on",
        "ssl_certfile": settings.certificate,
        "ssl_keyfile": settings.key,
        "backlog": BACKLOG,
        "http": limited_http(settings.http_limits),
        "ws": "none",
    }
    return uvicorn.Config(app, **{**options, **proxy_options(settings.trusted_proxies), **more})


def _once(counts: Counter[str], address: str) -> Callable[[], None]:
    released = False

    def release() -> None:
        nonlocal released
        if not released:
            released = True
            counts[address] -= 1
            if counts[address] <= 0:
                del counts[address]

    return release
