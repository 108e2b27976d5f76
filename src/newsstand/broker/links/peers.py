"""The links of a broker to its neighbours in the tree, as the coordinator assigns them.

Of two neighbours the one with the smaller name dials. While the coordinator lists a neighbour, a link that ends is
dialled again; other brokers are rejected.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from newsstand.broker.links.connection import (
    Greeting,
    Hello,
    LinkError,
    PeerConnection,
    PeerConnectionLimits,
    TimedConnection,
    accepted_socket,
    dial,
)
from newsstand.broker.websocket.connection import CloseConnection, Connection, text_frame
from newsstand.broker.websocket.handshake import EXTENSION
from newsstand.broker.websocket.protocol import decode_message
from newsstand.concurrency.pacing import Backoff, LogOnce
from newsstand.overlay.messages import Message
from newsstand.wire.coordination import Neighbour
from newsstand.wire.notifications import CloseCode

logger = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class PeerLinks:
    """The links of a broker; used from the event loop's thread.

    It calls `up` and `down` when a link begins and ends, and `received` with each batch of messages.
    """

    name: str
    key: str | None
    """Authenticates the links of the platform; None until the coordinator has sent it."""
    tls: ssl.SSLContext | None
    up: Callable[[str], None]
    down: Callable[[str], None]
    received: Callable[[str, Sequence[Message]], None]
    limits: PeerConnectionLimits = field(default_factory=PeerConnectionLimits)

    def __post_init__(self) -> None:
        self._version = 0
        self._assigned: dict[str, Neighbour] = {}
        self._connections: dict[str, PeerConnection] = {}
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self.is_configured = False
        """Whether the coordinator has assigned neighbours."""

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def missing(self) -> list[str]:
        """Assigned neighbours without a link."""
        return [name for name in self._assigned if name not in self._connections]

    @property
    def hello(self) -> Hello:
        """The greeting of this broker."""
        return Hello(self.name, self._version)

    def set_neighbours(self, version: int, neighbours: Sequence[Neighbour]) -> None:
        """Link to these neighbours, and to no others."""
        before = self._assigned
        self._version, self.is_configured = version, True
        self._assigned = {one.name: one for one in neighbours}
        for name in list(self._dialling):
            if self._assigned.get(name) != before.get(name):
                self._dialling.pop(name).cancel()
        for name, connection in list(self._connections.items()):
            if name not in self._assigned:
                connection.close(CloseCode.UNKNOWN_PEER, f"{self.name} is no longer a neighbour")
        for name in self.missing:
            self._start_dialling(name)

    def expects(self, name: str) -> bool:
        """Return whether a broker is a neighbour that dials this one."""
        return name in self._assigned and name < self.name

    def accept(
        self, name: str, transport: asyncio.Transport, on_close: Callable[[PeerConnection], None]
    ) -> PeerConnection:
        """Begin a link that a neighbour has dialled, after the greetings."""
        return self._begin(name, accepted_socket(transport), on_close)

    def _begin(
        self,
        name: str,
        socket: TimedConnection,
        on_close: Callable[[PeerConnection], None] = lambda _: None,
    ) -> PeerConnection:
        """Begin a link, and end an earlier one to the same neighbour."""
        before = self._connections.pop(name, None)
        if before is not None:
            self.down(name)
            before.close(CloseCode.UNKNOWN_PEER, "replaced by a newer link")
        connection = PeerConnection(
            socket, partial(self.received, name), partial(self._lost, name), self.limits, on_close
        )
        self._connections[name] = connection
        logger.info("linked to %s", name)
        self.up(name)
        return connection

    def send(self, neighbour: str, message: Message) -> None:
        connection = self._connections.get(neighbour)
        if connection is not None:
            connection.send(message)

    def unsent_bytes(self, neighbour: str) -> int:
        """Return how many bytes wait for a neighbour to read."""
        connection = self._connections.get(neighbour)
        return 0 if connection is None else connection.unsent_bytes

    async def close(self) -> None:
        self._assigned = {}
        tasks = list(self._dialling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connections = list(self._connections.values())
        for connection in connections:
            connection.shutdown()
        await asyncio.gather(*(connection.closed() for connection in connections))

    def _lost(self, name: str, connection: PeerConnection, reason: str) -> None:
        if self._connections.get(name) is not connection:
            return
        del self._connections[name]
        logger.info("link to %s ended: %s", name, reason)
        self.down(name)
        if name in self._assigned:
            self._start_dialling(name)

    def _start_dialling(self, name: str) -> None:
        if name > self.name and name not in self._dialling:
            self._dialling[name] = asyncio.get_running_loop().create_task(self._dial(self._assigned[name]))

    async def _dial(self, neighbour: Neighbour) -> None:
        backoff, log = Backoff(0.1, 3.0), LogOnce(logger, logging.INFO)
        while True:
            try:
                if self.key is None:
                    raise LinkError("the coordinator has not sent the keys of the platform yet")
                socket, hello = await dial(neighbour.url, self.key, self.hello, self.tls, self.limits)
                if hello.name == neighbour.name:
                    break
                socket.transport.abort()
                raise LinkError(f"{neighbour.url}: is broker {hello.name}")
            except LinkError as error:
                log.failed("no link to %s yet: %s", neighbour.name, error)
            await backoff.wait()
        self._dialling.pop(neighbour.name, None)
        self._begin(neighbour.name, socket)


async def accept_neighbour(websocket: WebSocket, links: PeerLinks) -> None:
    """Authenticate a neighbour at the WebSocket `/overlay`, and hand its connection over to the links."""
    connection = websocket.scope["extensions"][EXTENSION]
    assert isinstance(connection, Connection)
    try:
        await websocket.accept()
        name = (await _receive_greeting(websocket, links.key, links.limits.greeting_s)).hello.name
    except CloseConnection as rejected:
        connection.close(rejected.code, rejected.reason)
        return
    except WebSocketDisconnect:
        return
    if not links.expects(name):
        connection.close(CloseCode.UNKNOWN_PEER, f"{name} is not a neighbour that dials this broker")
        return
    if connection.closing:
        return
    connection.write(text_frame(msgspec.json.encode(Greeting(links.hello))))
    with connection.detach() as server:
        accepted = links.accept(name, connection.transport, server.connections.discard)
        server.connections.add(accepted)  # type: ignore[arg-type]


async def _receive_greeting(websocket: WebSocket, key: str | None, within_s: float) -> Greeting:
    scheme, _, presented = websocket.headers.get("authorization", "").partition(" ")
    presented = presented.strip() if scheme.lower() == "bearer" else ""
    if not key or not hmac.compare_digest(presented.encode("utf-8", "surrogateescape"), key.encode()):
        raise CloseConnection(CloseCode.UNAUTHORIZED, "not the overlay key of this platform")
    try:
        async with asyncio.timeout(within_s):
            return decode_message((await websocket.receive_text()).encode(), Greeting)
    except TimeoutError:
        raise CloseConnection(CloseCode.UNKNOWN_PEER, f"no greeting within {within_s:g} s") from None
