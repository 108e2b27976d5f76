"""What is said over a subscriber's WebSocket: token, pending streams, ready; then acknowledgements and pings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from newsstand.broker.socket_connection import Connection
from newsstand.broker.socket_frames import MALFORMED, NO_TOKEN, READY, Dismissed, signal_frame
from newsstand.broker.socket_opening import EXTENSION
from newsstand.broker.sockets import Hub
from newsstand.errors import BadInput
from newsstand.serving.client_address import client_of

logger = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""How long a client may take to send its token."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Whom a token admits, and until when (Unix milliseconds)."""

    subscriber: str
    session: str
    expires_ms: int


A = TypeVar("A", bound=Admitted)
Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Acknowledged = dict[str, int]
Admits = Callable[[str], Awaitable[A]]
"""Says whom a token admits, or raises Dismissed."""


class _Token(msgspec.Struct, forbid_unknown_fields=True):
    token: str


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    """A message of an admitted client: one of its fields."""

    ack: dict[str, Position] | msgspec.UnsetType = msgspec.UNSET
    ping: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


async def serve_socket(
    websocket: WebSocket,
    hub: Hub,
    *,
    admit: Admits[A],
    on_ready: Callable[[A], Iterable[tuple[str, int | None]]],
    on_ack: Callable[[A, Acknowledged], Awaitable[Acknowledged]],
    patience_s: float = PATIENCE_S,
    require_room: Callable[[A], None] = lambda _: None,
) -> None:
    """Let a client in and give its connection to the hub; returns as soon as the client is settled.

    `admit` says whom a token admits, or raises Dismissed. `on_ready` gives all streams that the subscriber follows
    with the position of those that have pending results; it is called in the same step as the connection joins the
    hub, so that no signal falls in between. `on_ack` returns once the acknowledgement is durable; it may raise
    Dismissed, or BadInput, which closes with 4000.
    """
    let_in = await let_into(websocket, hub, admit, patience_s, require_room)
    if let_in is None:
        return
    connection, admitted = let_in
    pending = []
    for stream, position in on_ready(admitted):
        hub.follow(admitted.subscriber, stream)
        if position is not None:
            pending.append((stream, position))
    for stream, position in pending:
        connection.deliver(stream, signal_frame(stream, position))
    connection.deliver("", READY)
    connection.settle(_Conversation(admitted, on_ack))


async def let_into(
    websocket: WebSocket,
    hub: Hub,
    admit: Admits[A],
    patience_s: float = PATIENCE_S,
    require_room: Callable[[A], None] = lambda _: None,
) -> tuple[Connection, A] | None:
    """The connection of a client whom its token admits, joined to the hub in the step that returns; else None.

    `require_room` raises Dismissed if who is admitted has too many connections.
    """
    connection = websocket.scope["extensions"][EXTENSION]
    assert isinstance(connection, Connection)
    try:
        await websocket.accept()
        admitted = await admit(await _token_of(websocket, patience_s))
        require_room(admitted)
    except Dismissed as dismissed:
        told = {"client": client_of(websocket.scope), "route": websocket.scope["path"], "code": dismissed.code}
        logger.info("a WebSocket was refused: %s", dismissed.reason, extra={"told": told})
        connection.close(dismissed.code, dismissed.reason)
        return None
    except WebSocketDisconnect:
        return None
    if connection.closing:
        return None
    hub.join(connection, admitted.subscriber, admitted.session, admitted.expires_ms)
    return connection, admitted


class _Conversation(Generic[A]):
    """Answers an admitted client's messages."""

    __slots__ = ("_admitted", "_on_ack")

    def __init__(self, admitted: A, on_ack: Callable[[A, Acknowledged], Awaitable[Acknowledged]]) -> None:
        self._admitted = admitted
        self._on_ack = on_ack

    async def __call__(self, message: bytes) -> bytes:
        said = decoded(message, _Said)
        if (said.ack is msgspec.UNSET) == (said.ping is msgspec.UNSET):
            raise Dismissed(MALFORMED, 'a message is {"ack": {…}} or {"ping": …}')
        if said.ack is msgspec.UNSET:
            return msgspec.json.encode({"pong": said.ping})
        try:
            return msgspec.json.encode({"acked": await self._on_ack(self._admitted, said.ack)})
        except BadInput as error:
            raise Dismissed(MALFORMED, str(error)) from error


T = TypeVar("T")


def decoded(message: bytes, shape: type[T]) -> T:
    """A message of a given shape; whoever sends another is dismissed."""
    try:
        message.decode()  # what is skipped over in JSON is not checked, and goes back in a pong
        return msgspec.json.decode(message, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Dismissed(MALFORMED, f"malformed message: {error}") from error


async def _token_of(websocket: WebSocket, patience_s: float) -> str:
    """The token of a client that has connected, from its headers or its first message."""
    scheme, _, presented = websocket.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and presented.strip():
        return presented.strip()
    try:
        async with asyncio.timeout(patience_s):
            return decoded((await websocket.receive_text()).encode(), _Token).token
    except TimeoutError:
        raise Dismissed(NO_TOKEN, "the token is missing") from None
