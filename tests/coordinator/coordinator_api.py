"""The coordinator's API on a real socket, in a thread, and everybody who may ask."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jwt
import uvicorn
from coordinating import SECRET

from newsstand.coordinator.api import create_app
from newsstand.coordinator.serve import make_desk, open_store
from newsstand.coordinator.settings import Settings
from newsstand.coordinator.store_sqlite import SqliteStore
from newsstand.signing import key

BROKERS = key(SECRET, "brokers")
ADMIN = key(SECRET, "admin")


def subscriber_token(name: str, secret: str = SECRET, **claims: object) -> str:
    """An access token that expired long ago, unless the claims say otherwise."""
    told = {"sub": name, "sid": "one", "iat": 1000, "exp": 1900, "iss": "newsstand", **claims}
    return jwt.encode(told, key(secret, "subscribers"), algorithm="HS256")


@dataclass(frozen=True)
class Served:
    url: str
    store: SqliteStore


@contextmanager
def serving(folder: Path, **settings: object) -> Iterator[Served]:
    """A coordinator for the length of a `with` block."""
    known = Settings(SECRET, data=folder, **settings)  # type: ignore[arg-type]
    store = open_store(known)
    api = create_app(make_desk(known, store, time.monotonic))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(api, log_config=None, access_log=False, lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Served(f"http://127.0.0.1:{listening.getsockname()[1]}", store)
        finally:
            server.should_exit = True
            thread.join()
            store.close()
