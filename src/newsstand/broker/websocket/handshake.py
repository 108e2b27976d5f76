"""The handshake of a WebSocket: the ASGI app serves it until it hands the connection over."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import uvicorn
from starlette.types import Message, Scope
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState
from websockets.http11 import Request, Response

from newsstand.wire.notifications import CloseCode

if TYPE_CHECKING:
    from newsstand.broker.websocket.connection import Connection

logger = logging.getLogger(__name__)

EXTENSION = "newsstand.connection"
"""The extension of the ASGI scope that holds the connection."""


class Handshake:
    """The ASGI side of a connection during its handshake."""

    __slots__ = (
        "_accept_response",
        "_app",
        "_app_state",
        "_connect_sent",
        "_connection",
        "_root_path",
        "_server",
        "_waiter",
        "accepted",
        "handed_over",
    )

    def __init__(
        self, connection: Connection, config: uvicorn.Config, server: ServerState, app_state: dict[str, Any]
    ) -> None:
        self._connection = connection
        self._app = config.loaded_app
        self._root_path = config.root_path
        self._app_state = app_state
        self._server = server
        self._accept_response: Response | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._connect_sent = False
        self.accepted = False
        self.handed_over = False

    def begin(self, request: Request) -> None:
        """Call the app if the request is one for a WebSocket."""
        response = self._connection.frames.accept(request)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._respond(response)
            self._connection.transport.close()
            return
        self._accept_response = response
        task = asyncio.get_running_loop().create_task(self._run(self._scope(request)))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def reject(self, status: int) -> None:
        if self._accept_response is not None:
            self._accept_response = None
            self._respond(self._connection.frames.reject(status, f"{HTTPStatus(status).phrase}\n"))
            self._connection.transport.close()

    def wake(self) -> None:
        """Wake the app: a message has arrived, or the client has disconnected."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _respond(self, response: Response) -> None:
        self._connection.frames.send_response(response)
        self._connection.write(b"".join(self._connection.frames.data_to_send()))

    def _scope(self, request: Request) -> Scope:
        transport = self._connection.transport
        path, _, query = request.path.partition("?")
        return {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "wss" if is_ssl(transport) else "ws",
            "server": get_local_addr(transport),
            "client": get_remote_addr(transport),
            "root_path": self._root_path,
            "path": self._root_path + unquote(path),
            "raw_path": f"{self._root_path}{path}".encode("ascii", errors="surrogateescape"),
            "query_string": query.encode("ascii", errors="surrogateescape"),
            "headers": [
                (name.lower().encode("ascii"), value.encode("latin-1", errors="replace"))
                for name, value in request.headers.raw_items()
            ],
            "subprotocols": [],
            "state": self._app_state.copy(),
            "extensions": {EXTENSION: self._connection},
        }

    async def _run(self, scope: Scope) -> None:
        try:
            await self._app(scope, self._receive, self._send)
        except OSError:
            pass  # the client has disconnected
        except Exception:
            logger.exception("WebSocket handshake failed")
            if self.accepted:
                self._connection.close(CloseCode.INTERNAL_ERROR, "internal error")
            self.reject(500)
        self.reject(500)  # unless the app has answered
        self._connection.handshake_done()

    async def _receive(self) -> Message:
        if not self._connect_sent:
            self._connect_sent = True
            return {"type": "websocket.connect"}
        while (message := self._connection.next_message()) is None:
            if self._connection.closing:
                return {"type": "websocket.disconnect", "code": 1006}
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        try:
            return {"type": "websocket.receive", "text": message.decode()}
        except UnicodeDecodeError:
            self._connection.close(CloseCode.MALFORMED, "messages are text in UTF-8")
            return {"type": "websocket.disconnect", "code": CloseCode.MALFORMED}

    async def _send(self, message: Message) -> None:
        if self._connection.closing or self._connection.transport.is_closing():
            raise OSError("the client has disconnected")
        match message["type"]:
            case "websocket.accept" if self._accept_response is not None:
                del self._accept_response.headers["Date"]
                for name, value in [*self._server.default_headers, *message.get("headers", ())]:
                    self._accept_response.headers[name.decode("latin-1")] = value.decode("latin-1")
                self._respond(self._accept_response)
                self._accept_response = None
                self.accepted = True
            case "websocket.close" if self._accept_response is not None:
                self.reject(403)
            case "websocket.close":
                self._connection.close(message.get("code", 1000), message.get("reason") or "")
            case unexpected:
                raise RuntimeError(f"unexpected ASGI message during a handshake: {unexpected}")
