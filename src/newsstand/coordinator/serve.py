"""The process of a coordinator: its store and its HTTP API, from start to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from random import Random

import uvicorn

from newsstand.coordinator.api import create_app
from newsstand.coordinator.choosing import Surroundings
from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.desk import Desk, Keys
from newsstand.coordinator.metrics import Metrics
from newsstand.coordinator.settings import Settings
from newsstand.coordinator.standing import Opportunistic
from newsstand.coordinator.store import Store
from newsstand.coordinator.store_sqlite import SqliteStore
from newsstand.errors import BadOption
from newsstand.planning.places import Network
from newsstand.serving.client_address import proxy_options
from newsstand.serving.http_protocol import limited_http
from newsstand.serving.process import BACKLOG, listening, make_private, terminated_like_interrupted, url_of

STORE = "coordinator.sqlite"
"""The file of the store in the data folder."""


def serve(settings: Settings, say: Callable[[str], None] = print) -> None:
    """Run a coordinator until SIGTERM or Ctrl-C; then answer what was begun and stop."""
    with ExitStack() as stack:
        stack.enter_context(terminated_like_interrupted())
        bound = stack.enter_context(listening(settings.host, settings.port))
        store = open_store(settings)
        stack.callback(store.close)
        tls = settings.tls
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(make_desk(settings, store)),
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=10,
                lifespan="on",
                ssl_certfile=tls.certificate if tls else None,
                ssl_keyfile=tls.key if tls else None,
                backlog=BACKLOG,
                http=limited_http(settings.http_limits),
                ws="none",
                **proxy_options(settings.trusted_proxies),
            )
        )
        bound.listen(BACKLOG)  # who reads the address may connect at once
        say(f"newsstand: coordinator on {url_of(bound, tls)}")
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal that it stopped for once more
            server.run(sockets=[bound])


def open_store(settings: Settings) -> SqliteStore:
    """The store in the data folder, which is made if there is none."""
    try:
        make_private(settings.data)
    except OSError as error:
        raise BadOption(f"data folder {settings.data}: cannot be made ({error.strerror})") from error
    return SqliteStore(settings.data / STORE)


def make_desk(settings: Settings, store: Store, clock: Callable[[], float] = time.monotonic) -> Desk:
    """A coordinator over a store, and whom it answers."""
    metrics = Metrics()
    coordinator = Coordinator(
        store,
        Surroundings(Random(), Network(settings.links)),
        clock(),
        policy=settings.policy,
        lease_s=settings.lease_s,
        overlay_degree=settings.overlay_degree,
        opportunistic=Opportunistic(settings.opportunistic_policy, settings.opportunistic_slots),
        limits=settings.limits,
        moved=metrics.moved,
    )
    return Desk(coordinator, Keys(settings.secret), metrics, clock, store.check, settings.open_metrics)
