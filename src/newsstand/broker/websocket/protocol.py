"""The messages of a subscriber's WebSocket: token, pending streams, ready; then acknowledgements and pings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from newsstand.broker.websocket.connection import READY, CloseConnection, Connection, notification_frame
from newsstand.broker.websocket.handshake import EXTENSION
from newsstand.broker.websocket.hub import Hub
from newsstand.errors import BadInput
from newsstand.http.server import client_of
from newsstand.wire.cluster import Position
from newsstand.wire.notifications import CloseCode

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SocketIdentity:
    """The subscriber and session of a token, and its expiry in Unix milliseconds."""

    subscriber: str
    session: str
    expires_ms: int


A = TypeVar("A", bound=SocketIdentity)
Positions = dict[str, int]
Authenticate = Callable[[str], Awaitable[A]]
"""Authenticates a token, or raises CloseConnection."""


class _TokenMessage(msgspec.Struct, forbid_unknown_fields=True):
    token: str


class _ClientMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message of an admitted client: one of its fields."""

    ack: dict[str, Position] | msgspec.UnsetType = msgspec.UNSET
    ping: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


async def serve_socket(
    websocket: WebSocket,
    hub: Hub,
    *,
    admit: Authenticate[A],
    on_ready: Callable[[A], Iterable[tuple[str, int | None]]],
    on_ack: Callable[[A, Positions], Awaitable[Positions]],
) -> None:
    """Authenticate a client and join its connection to the hub; return when the hand-over is done.

    `admit` authenticates a token, or raises CloseConnection. `on_ready` returns all streams that the subscriber
    follows, with the position of those that have pending results; it is called in the same step as the connection
    joins the hub, so that no notification falls in between. `on_ack` returns once the acknowledgement is durable;
    it may raise CloseConnection, or BadInput, which closes with CloseCode.MALFORMED. A client with the query
    `results=inline` gets notifications with results.
    """
    wanted = websocket.query_params.get("results")

    async def admit_reader(token: str) -> A:
        if wanted not in (None, "inline"):
            raise CloseConnection(CloseCode.MALFORMED, "query: results: give 'inline' or leave it out")
        return await admit(token)

    accepted = await accept_client(websocket, hub, admit_reader)
    if accepted is None:
        return
    connection, admitted = accepted
    pending = []
    for stream, position in on_ready(admitted):
        hub.follow(admitted.subscriber, stream)
        if position is not None:
            pending.append((stream, position))
    if wanted is not None:
        hub.send_results(connection)
    for stream, position in pending:
        connection.deliver(stream, notification_frame(stream, position))
    connection.deliver("", READY)
    connection.hand_over(_ClientMessages(admitted, on_ack))


async def accept_client(websocket: WebSocket, hub: Hub, admit: Authenticate[A]) -> tuple[Connection, A] | None:
    """Authenticate a client and join its connection to the hub; return None if the connection is closed."""
    connection = websocket.scope["extensions"][EXTENSION]
    assert isinstance(connection, Connection)
    try:
        await websocket.accept()
        admitted = await admit(await _token_of(websocket, connection.limits.token_s))
    except CloseConnection as closing:
        fields = {"client": client_of(websocket.scope), "route": websocket.scope["path"], "code": closing.code}
        logger.info("WebSocket closed: %s", closing.reason, extra={"fields": fields})
        connection.close(closing.code, closing.reason)
        return None
    except WebSocketDisconnect:
        return None
    if connection.closing:
        return None
    hub.join(connection, admitted.subscriber, admitted.session, admitted.expires_ms)
    return connection, admitted


class _ClientMessages(Generic[A]):
    """Answers an admitted client's messages."""

    __slots__ = ("_admitted", "_on_ack")

    def __init__(self, admitted: A, on_ack: Callable[[A, Positions], Awaitable[Positions]]) -> None:
        self._admitted = admitted
        self._on_ack = on_ack

    async def __call__(self, message: bytes) -> bytes:
        decoded = decode_message(message, _ClientMessage)
        if (decoded.ack is msgspec.UNSET) == (decoded.ping is msgspec.UNSET):
            raise CloseConnection(CloseCode.MALFORMED, 'a message is {"ack": {…}} or {"ping": …}')
        if decoded.ack is msgspec.UNSET:
            return msgspec.json.encode({"pong": decoded.ping})
        try:
            return msgspec.json.encode({"acked": await self._on_ack(self._admitted, decoded.ack)})
        except BadInput as error:
            raise CloseConnection(CloseCode.MALFORMED, str(error)) from error


T = TypeVar("T")


def decode_message(message: bytes, shape: type[T]) -> T:
    """Decode a message; close the connection if it has another shape."""
    try:
        message.decode()  # msgspec does not validate raw values, and a pong returns them
        return msgspec.json.decode(message, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CloseConnection(CloseCode.MALFORMED, f"malformed message: {error}") from error


async def _token_of(websocket: WebSocket, within_s: float) -> str:
    """Return the token of a client, from its headers or its first message."""
    scheme, _, presented = websocket.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and presented.strip():
        return presented.strip()
    try:
        async with asyncio.timeout(within_s):
            return decode_message((await websocket.receive_text()).encode(), _TokenMessage).token
    except TimeoutError:
        raise CloseConnection(CloseCode.UNAUTHORIZED, "the token is missing") from None
