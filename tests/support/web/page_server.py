"""The dashboard on a real server, in a thread of the test; it can go away and come back at the same address."""

from __future__ import annotations

import socket
import threading
import time
from types import TracebackType

import uvicorn

from newsstand.web.dashboard import DashboardState, create_dashboard


class PageServer:
    """A dashboard at a free port of loopback."""

    def __init__(self, state: DashboardState, hosts: tuple[str, ...] = ()) -> None:
        self._app = create_dashboard(state, hosts)
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", self._port))
        self._port = bound.getsockname()[1]
        config = uvicorn.Config(self._app, log_config=None, ws="none", lifespan="off", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [bound]}, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    def __enter__(self) -> PageServer:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()
