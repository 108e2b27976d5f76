"""The WebSocket hub of a broker on a uvicorn server in a thread, and its clients."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.sync.client import ClientConnection, connect

from newsstand.broker.websocket.connection import CloseConnection, Connection, ConnectionLimits
from newsstand.broker.websocket.hub import Hub, NotifiedConnections
from newsstand.broker.websocket.protocol import SocketIdentity, serve_socket
from newsstand.errors import BadInput
from newsstand.http.server import listening
from newsstand.wire.notifications import CloseCode

T = TypeVar("T")
NEVER = 2**60
STREAM = "reports:1"


class SocketServer:
    """Tokens are subscribers' names, or `name until <ms>`; all follow one stream. Time is what the tests say."""

    def __init__(self, hub: Hub, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.hub = hub
        self.port = port
        self._loop = loop
        self.follows: dict[str, int | None] = {STREAM: None}
        self.acknowledged: list[tuple[str, dict[str, int]]] = []
        self.durable = asyncio.Event()
        self.durable.set()

    def do(self, action: Callable[[], T]) -> T:
        """Call something in the thread of the server."""
        done: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: _finish(done, action))
        return done.result(10)

    def notify(self, position: int, now: int = 0, stream: str = STREAM) -> int:
        return self.do(lambda: self.hub.notify(stream, position, now)).all

    def notify_results(self, position: int, *results: bytes, now: int = 0) -> NotifiedConnections:
        return self.do(lambda: self.hub.notify(STREAM, position, now, lambda: results))

    def until(self, condition: Callable[[], bool], seconds: float = 10) -> None:
        """Wait until something holds in the thread of the server."""
        for _ in range(int(seconds * 100)):
            if self.do(condition):
                return
            threading.Event().wait(0.01)
        raise AssertionError("it did not come to that")

    def client(self, token: str | None = "ana", query: str = "", **options: object) -> ClientConnection:
        headers = None if token is None else {"Authorization": f"Bearer {token}"}
        uri = f"ws://127.0.0.1:{self.port}/notifications{query}"
        return connect(uri, additional_headers=headers, proxy=None, **options)  # type: ignore[arg-type]

    def raw(self, token: str = "ana", receive_buffer: int = 4096, query: str = "") -> socket.socket:
        """Return a client that reads only on request, after its handshake."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.connect(("127.0.0.1", self.port))
        client.sendall(
            b"GET /notifications"
            + query.encode()
            + b" HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(os.urandom(16)) + b"\r\n"
            b"Authorization: Bearer " + token.encode() + b"\r\n\r\n"
        )
        received = b""
        while not received.endswith(b'{"ready":true}'):
            received += client.recv(1024)
        return client

    async def admit(self, token: str) -> SocketIdentity:
        name, _, until = token.partition(" until ")
        if name == "nobody":
            raise CloseConnection(CloseCode.UNAUTHORIZED, "the token is not known")
        if name == "failing":
            raise ZeroDivisionError
        return SocketIdentity(name, f"session of {name}", int(until or NEVER))

    async def acknowledge(self, admitted: SocketIdentity, positions: dict[str, int]) -> dict[str, int]:
        if "unknown" in positions:
            raise BadInput("there is no subscription 'unknown'")
        await self.durable.wait()
        self.acknowledged.append((admitted.subscriber, positions))
        return positions


def _finish(done: Future[T], action: Callable[[], T]) -> None:
    try:
        done.set_result(action())
    except BaseException as error:
        done.set_exception(error)


@contextmanager
def socket_server(hub: Hub | None = None, loop: str = "uvloop", **limits: float) -> Iterator[SocketServer]:
    """A running server, stopped at the end of the block."""
    begun: Future[SocketServer] = Future()

    async def notifications(websocket: WebSocket) -> None:
        served = begun.result()
        await serve_socket(
            websocket,
            served.hub,
            admit=served.admit,
            on_ready=lambda _: served.follows.items(),
            on_ack=served.acknowledge,
        )

    api = Starlette(routes=[WebSocketRoute("/notifications", notifications)])
    with listening("127.0.0.1", 0) as bound:
        config = uvicorn.Config(
            api,
            log_config=None,
            loop=loop,
            ws=type("LimitedConnection", (Connection,), {"__slots__": (), "limits": ConnectionLimits(**limits)}),
            ws_ping_interval=None,
        )
        server = uvicorn.Server(config)

        async def main() -> None:
            bound.listen(512)
            begun.set_result(SocketServer(hub or Hub(), bound.getsockname()[1], asyncio.get_running_loop()))
            await server.serve([bound])

        def run() -> None:
            with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
                runner.run(main())

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield begun.result(10)
        finally:
            server.should_exit = True
            thread.join(15)
            assert not thread.is_alive()


def masked(payload: bytes, first: int = 0x81) -> bytes:
    """A frame of a client, with a mask that changes nothing."""
    size = len(payload)
    if size < 126:
        return bytes((first, 0x80 | size)) + bytes(4) + payload
    if size < 2**16:
        return bytes((first, 0xFE)) + size.to_bytes(2, "big") + bytes(4) + payload
    return bytes((first, 0xFF)) + size.to_bytes(8, "big") + bytes(4) + payload
