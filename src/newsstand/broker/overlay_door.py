"""Where neighbours come in: the WebSocket `/overlay` of a broker."""

from __future__ import annotations

import asyncio
import hmac

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from newsstand.broker.overlay_dialling import PATIENCE_S, Greeting
from newsstand.broker.overlay_links import Links
from newsstand.broker.socket_connection import Connection
from newsstand.broker.socket_frames import NO_TOKEN, STRANGER, Dismissed, text_frame
from newsstand.broker.socket_opening import EXTENSION
from newsstand.broker.socket_talk import decoded


async def serve_neighbour(websocket: WebSocket, links: Links) -> None:
    """Let a neighbour in, and give its connection to the links."""
    connection = websocket.scope["extensions"][EXTENSION]
    assert isinstance(connection, Connection)
    try:
        await websocket.accept()
        hello = await _greeted(websocket, links.key)
    except Dismissed as dismissed:
        connection.close(dismissed.code, dismissed.reason)
        return
    except WebSocketDisconnect:
        return
    if not links.expects(hello.hello.name):
        connection.close(STRANGER, f"{hello.hello.name} is not a neighbour that dials this broker")
        return
    if connection.closing:
        return
    connection.write(text_frame(msgspec.json.encode(Greeting(links.hello))))
    with connection.given_up() as server:
        line = links.accept(hello.hello.name, connection.transport)
        server.connections.add(line)  # type: ignore[arg-type]
        line.left = lambda: server.connections.discard(line)


async def _greeted(websocket: WebSocket, key: str | None) -> Greeting:
    scheme, _, presented = websocket.headers.get("authorization", "").partition(" ")
    presented = presented.strip() if scheme.lower() == "bearer" else ""
    if not key or not hmac.compare_digest(presented.encode("utf-8", "surrogateescape"), key.encode()):
        raise Dismissed(NO_TOKEN, "the key is not that of this platform's brokers")
    try:
        async with asyncio.timeout(PATIENCE_S):
            return decoded((await websocket.receive_text()).encode(), Greeting)
    except TimeoutError:
        raise Dismissed(STRANGER, "the greeting is missing") from None
