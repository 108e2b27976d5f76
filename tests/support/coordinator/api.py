"""The coordinator's API on a real socket, in a thread, and everybody who may ask."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import jwt
import uvicorn

from newsstand.auth.credentials import broker_credential, operator_token
from newsstand.auth.signing import key
from newsstand.coordinator.server import CoordinatorSettings, create_api, make_context, open_store
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.model import is_broker_name
from support.coordinator.coordinators import SECRET

OPERATOR = operator_token(SECRET, "ann", ["operator"], now_s=time.time(), days=1)
METRICS = operator_token(SECRET, "scraper", ["metrics"], now_s=time.time(), days=1)


class AsBrokers(httpx.Auth):
    """Whichever broker a request is about asks it; `north` if it is about none."""

    requires_request_body = True

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]
        if "Authorization" not in request.headers:
            request.headers["Authorization"] = f"Bearer {broker_credential(SECRET, _broker_in(request))}"
        yield request


def _broker_in(request: httpx.Request) -> str:
    _, first, *rest = request.url.path.split("/")
    if first == "brokers" and rest and is_broker_name(rest[0]):
        return rest[0]
    try:
        named = json.loads(request.content)["broker"]
    except (ValueError, KeyError, TypeError):
        return "north"
    return named if isinstance(named, str) and is_broker_name(named) else "north"


def subscriber_token(name: str, secret: str = SECRET, **claims: object) -> str:
    """An access token that expired long ago, unless the claims say otherwise."""
    payload = {"sub": name, "sid": "one", "iat": 1000, "exp": 1900, "iss": "newsstand", **claims}
    return jwt.encode(payload, key(secret, "subscribers"), algorithm="HS256")


@dataclass(frozen=True)
class ServedCoordinator:
    url: str
    store: CoordinatorStore


@contextmanager
def serving(folder: Path, **settings: object) -> Iterator[ServedCoordinator]:
    """A coordinator for the length of a `with` block."""
    known = CoordinatorSettings(secret=SECRET, data=folder, **settings)  # type: ignore[arg-type]
    store = open_store(known)
    api = create_api(make_context(known, store, time.monotonic))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(api, log_config=None, access_log=False, lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield ServedCoordinator(f"http://127.0.0.1:{listening.getsockname()[1]}", store)
        finally:
            server.should_exit = True
            thread.join()
            store.close()
