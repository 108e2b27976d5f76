"""The server of a coordinator: its settings, its HTTP API, described at /openapi.json, and its process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Annotated

import msgspec
import uvicorn
from starlette.requests import Request

from newsstand.config.settings import ServerSettings, SubscriberLimits, check_certificate, read_settings
from newsstand.config.types import Conversion, Links, Port, Secret, one_of, read_secret
from newsstand.coordinator.api.brokers import broker_routes, overlay_routes
from newsstand.coordinator.api.context import Authenticator, CoordinatorContext
from newsstand.coordinator.api.subscribers import account_routes, subscriber_routes
from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.metrics import Metrics
from newsstand.coordinator.overlay import DEFAULT_DEGREE, LEAST_DEGREE
from newsstand.coordinator.registry import STRATEGIES, LeaseLimits, SelectionContext
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.errors import BadOption
from newsstand.geo.location import LinkGraph
from newsstand.http.app import Api, Readiness, health_routes, in_thread
from newsstand.http.protocol import server_config
from newsstand.http.server import (
    BACKLOG,
    listening,
    make_private,
    terminated_like_interrupted,
    url_of,
)
from newsstand.model import OPPORTUNISTIC_SLOTS, OpportunisticPolicy
from newsstand.wire.coordination import OpportunisticCaching


def _opportunistic(value: object) -> str:
    try:
        return str(OpportunisticPolicy.parse(str(value)))
    except ValueError as error:
        raise BadOption(str(error)) from None


class CoordinatorSettings(ServerSettings, frozen=True, kw_only=True):
    """The table `[coordinator]`."""

    secret: Secret = ""
    """The platform's secret, at least 32 characters; here or in `secret_file`."""
    secret_file: Path | None = None
    port: Port = 8770
    data: Path = Path("coordinator-data")
    """The folder of the store."""
    policy: Annotated[str, one_of(sorted(STRATEGIES))] = "nearest"
    """How a broker is selected for a subscriber."""
    lease_s: Annotated[float, msgspec.Meta(ge=0.2, le=3600)] = 3.0
    """Seconds without a heartbeat after which a broker counts as dead; brokers send three in that time."""
    links: Links = ()
    """The network, for hops."""
    overlay_degree: Annotated[int, msgspec.Meta(ge=LEAST_DEGREE, le=1000)] = DEFAULT_DEGREE
    """Neighbours of a broker in the overlay, at most."""
    opportunistic_policy: Annotated[str, Conversion(_opportunistic)] = str(OpportunisticPolicy())
    """How brokers cache messages of topics without a storage: caching, request and priority."""
    opportunistic_slots: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = OPPORTUNISTIC_SLOTS
    """Messages that a broker caches so, at most; 0 for none."""
    limits: SubscriberLimits = SubscriberLimits()


def read_coordinator_settings(
    file: Path | None, environment: Mapping[str, str], options: Mapping[str, object]
) -> CoordinatorSettings:
    """Read the settings, the secret and the certificate; raise BadInput for the first mistake."""
    settings = read_settings(CoordinatorSettings, "coordinator", file, environment, options)
    secret = read_secret(settings.secret, settings.secret_file)
    if not secret:
        raise BadOption(
            "coordinator: missing secret: name a file with --secret-file, or set NEWSSTAND_COORDINATOR_SECRET; "
            "the cluster has the same"
        )
    check_certificate(settings.certificate, settings.key)
    return msgspec.structs.replace(settings, secret=secret, secret_file=None)


STORE = "coordinator.sqlite"
"""The file of the store in the data folder."""


def serve(settings: CoordinatorSettings, say: Callable[[str], None] = print) -> None:
    """Run a coordinator until SIGTERM or Ctrl-C; then finish open requests and stop."""
    with ExitStack() as stack:
        stack.enter_context(terminated_like_interrupted())
        bound = stack.enter_context(listening(settings.host, settings.port))
        store = open_store(settings)
        stack.callback(store.close)
        server = uvicorn.Server(server_config(create_api(make_context(settings, store)), settings))
        bound.listen(BACKLOG)  # who reads the address may connect at once
        say(f"newsstand: coordinator on {url_of(bound, settings.certificate)}")
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal that it stopped for once more
            server.run(sockets=[bound])


def open_store(settings: CoordinatorSettings) -> CoordinatorStore:
    """Open the store in the data folder, which is created if it does not exist."""
    make_private(settings.data)
    return CoordinatorStore(settings.data / STORE)


def make_context(
    settings: CoordinatorSettings, store: CoordinatorStore, clock: Callable[[], float] = time.monotonic
) -> CoordinatorContext:
    """Return the request context of a coordinator over a store."""
    metrics = Metrics()
    coordinator = Coordinator(
        store,
        SelectionContext(Random(), LinkGraph(settings.links)),
        clock(),
        policy=settings.policy,
        leases=LeaseLimits(settings.lease_s),
        overlay_degree=settings.overlay_degree,
        opportunistic=OpportunisticCaching(settings.opportunistic_policy, settings.opportunistic_slots),
        limits=settings.limits,
        on_moved=metrics.moved,
    )
    keys = Authenticator(settings.secret)
    return CoordinatorContext(
        authenticate=keys.caller,
        coordinator=coordinator,
        keys=keys,
        metrics=metrics,
        clock=clock,
        check=store.check,
        open_metrics=settings.open_metrics,
    )


logger = logging.getLogger(__name__)


def create_api(context: CoordinatorContext) -> Api:
    """Return the API of a coordinator, which detects dead brokers while it is served."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Api) -> AsyncIterator[None]:
        noticing = asyncio.create_task(_notice(context))
        try:
            yield
        finally:
            noticing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await noticing

    async def ready() -> Readiness:
        try:
            await in_thread(context.checking, context.check)
        except Exception as error:
            logger.warning("the store does not answer: %s", error)
            return Readiness(["the store does not answer"])
        return Readiness()

    async def metrics(request: Request) -> bytes:
        if not context.open_metrics:
            context.admit(request, "operator", "metrics")
        return await context.run(context.metrics.text, context.coordinator)

    return Api(
        "Newsstand coordinator",
        "Brokers, subscribers, and which of them belong together.",
        (
            broker_routes(context),
            overlay_routes(context),
            subscriber_routes(context),
            account_routes(context),
            health_routes(ready, metrics),
        ),
        context.metrics.requests,
        lifespan=lifespan,
        quiet=True,
    )


async def _notice(context: CoordinatorContext) -> None:
    """Detect dead brokers four times in a lease."""
    while True:
        await asyncio.sleep(context.coordinator.lease_s / 4)
        try:
            moved = await context.run(lambda: context.coordinator.tick(context.clock()))
        except Exception:  # the disk may be full: it is tried again the next time
            logger.exception("dead brokers could not be looked for")
        else:
            if moved:
                logger.info("subscribers moved", extra={"fields": {"moved": moved}})
