"""How a WebSocket opens: the ASGI app sees the handshake and the first messages, until it settles the client."""

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

from newsstand.broker.socket_frames import BROKEN, MALFORMED

if TYPE_CHECKING:
    from newsstand.broker.socket_connection import Connection

logger = logging.getLogger(__name__)

EXTENSION = "newsstand.connection"
"""Where the ASGI scope has the connection itself."""


class Opening:
    """The ASGI side of a connection that is being opened."""

    __slots__ = (
        "_app",
        "_app_state",
        "_connection",
        "_root_path",
        "_server",
        "_told",
        "_waiter",
        "_welcome",
        "accepted",
        "settled",
    )

    def __init__(
        self, connection: Connection, config: uvicorn.Config, server: ServerState, app_state: dict[str, Any]
    ) -> None:
        self._connection = connection
        self._app = config.loaded_app
        self._root_path = config.root_path
        self._app_state = app_state
        self._server = server
        self._welcome: Response | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._told = False
        self.accepted = False
        self.settled = False

    def begin(self, request: Request) -> None:
        """Let the app see a request for a WebSocket, if it is one."""
        response = self._connection.frames.accept(request)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._respond(response)
            self._connection.transport.close()
            return
        self._welcome = response
        task = asyncio.get_running_loop().create_task(self._run(self._scope(request)))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def reject(self, status: int) -> None:
        """Answer the handshake with an error."""
        if self._welcome is not None:
            self._welcome = None
            self._respond(self._connection.frames.reject(status, f"{HTTPStatus(status).phrase}\n"))
            self._connection.transport.close()

    def wake(self) -> None:
        """Something has come, or the client has left."""
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
            pass  # the client has left
        except Exception:
            logger.exception("a WebSocket could not be opened")
            if self.accepted:
                self._connection.close(BROKEN, "something went wrong here")
            self.reject(500)
        self.reject(500)  # unless the app has answered
        self._connection.opened()

    async def _receive(self) -> Message:
        if not self._told:
            self._told = True
            return {"type": "websocket.connect"}
        while (message := self._connection.next_message()) is None:
            if self._connection.closing:
                return {"type": "websocket.disconnect", "code": 1006}
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        try:
            return {"type": "websocket.receive", "text": message.decode()}
        except UnicodeDecodeError:
            self._connection.close(MALFORMED, "messages are text in UTF-8")
            return {"type": "websocket.disconnect", "code": MALFORMED}

    async def _send(self, message: Message) -> None:
        if self._connection.closing or self._connection.transport.is_closing():
            raise OSError("the client has left")
        match message["type"]:
            case "websocket.accept" if self._welcome is not None:
                del self._welcome.headers["Date"]
                for name, value in [*self._server.default_headers, *message.get("headers", ())]:
                    self._welcome.headers[name.decode("latin-1")] = value.decode("latin-1")
                self._respond(self._welcome)
                self._welcome = None
                self.accepted = True
            case "websocket.close" if self._welcome is not None:
                self.reject(403)
            case "websocket.close":
                self._connection.close(message.get("code", 1000), message.get("reason") or "")
            case unexpected:
                raise RuntimeError(f"a connection that opens does not take '{unexpected}'")
