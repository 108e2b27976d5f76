"""The server of a broker: its HTTP API, described at /openapi.json, and its process from start to stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress

import uvicorn
from starlette.requests import Request
from starlette.routing import WebSocketRoute
from starlette.types import Lifespan
from starlette.websockets import WebSocket

from newsstand.auth.tokens import BadToken
from newsstand.broker.api.accounts import account_routes
from newsstand.broker.api.context import BrokerContext
from newsstand.broker.api.operations import operator_routes
from newsstand.broker.api.pages import copy_routes, page_routes
from newsstand.broker.api.subscriptions import subscription_routes
from newsstand.broker.api.topics import topic_routes
from newsstand.broker.assembly import BrokerAssembly
from newsstand.broker.coordinator_client.client import IncarnationSuperseded
from newsstand.broker.links.peers import accept_neighbour
from newsstand.broker.sessions.rules import TopicRules
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.broker.sessions.subscribers import AccountDisabled, ShuttingDown, SubscriberMoved
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.topics.session import TopicClient, serve_topics
from newsstand.broker.websocket.connection import CloseConnection, Connection
from newsstand.broker.websocket.protocol import serve_socket
from newsstand.config.settings import check_certificate
from newsstand.errors import BadOption, LimitReached, NewsstandError
from newsstand.http.app import Api, Readiness, health_routes
from newsstand.http.protocol import server_config
from newsstand.http.server import (
    BACKLOG,
    listening,
    make_private,
    terminated_like_interrupted,
    url_of,
)
from newsstand.wire.notifications import CloseCode


def create_api(context: BrokerContext, lifespan: Lifespan[Api] | None = None) -> Api:
    """Return the API of a broker, with its description."""

    async def ready() -> Readiness:
        lacking = []
        if not context.webhook.ready:
            lacking.append("not registered at the data cluster yet")
        if context.topics.links.key is None:
            lacking.append("no keys from the coordinator yet")
        return Readiness(lacking)

    async def metrics(request: Request) -> bytes:
        if not context.settings.open_metrics:
            await context.require_operator(request, "metrics")
        return context.results.metrics.text()

    routes = (
        subscription_routes(context),
        page_routes(context),
        topic_routes(context),
        account_routes(context),
        operator_routes(context),
        copy_routes(context),
        context.webhook.routes(context.bodies, context.results, context.pages.push_cache, context.results.metrics),
        health_routes(ready, metrics),
    )
    return Api(
        "Newsstand broker",
        "Subscriptions, results and pages for subscribers.",
        routes,
        context.results.metrics.requests,
        websockets=[_notifications(context), *_topics(context)],
        lifespan=lifespan,
        quiet=True,
    )


def _notifications(context: BrokerContext) -> WebSocketRoute:
    async def admit(token: str) -> TopicClient:
        client = await _admitted(context, token)
        try:
            await context.results.channels.get()  # to know which streams the token may see
        except NewsstandError as error:
            raise CloseConnection(CloseCode.INTERNAL_ERROR, str(error)) from None
        _require_room(context, client)
        return client

    def ready(client: TopicClient) -> list[tuple[str, int | None]]:
        context.results.presence.on_connected(client.member)
        return list(context.results.streams(client.member))

    async def acknowledge(client: TopicClient, positions: dict[str, int]) -> dict[str, int]:
        try:
            return await context.results.acknowledge(client.member, positions)
        except SubscriberMoved as error:
            raise CloseConnection(CloseCode.MOVED, str(error)) from None
        except (ShuttingDown, IncarnationSuperseded) as error:
            raise CloseConnection(CloseCode.SERVICE_RESTART, str(error)) from None

    async def notifications(websocket: WebSocket) -> None:
        """Notify a subscriber of new positions of its streams."""
        await serve_socket(
            websocket,
            context.results.presence.hub,
            admit=admit,
            on_ready=ready,
            on_ack=acknowledge,
        )

    return WebSocketRoute("/notifications", notifications)


def _topics(context: BrokerContext) -> list[WebSocketRoute]:
    rules = TopicRules(context.settings.topics)
    interests: Counter[str] = Counter()

    async def admit(token: str) -> TopicClient:
        client = await _admitted(context, token)
        if client.member.claims.allow is not None:
            raise CloseConnection(
                CloseCode.UNAUTHORIZED, "the token is limited to channels; topics need one without limits"
            )
        _require_room(context, client)
        return client

    async def topics(websocket: WebSocket) -> None:
        """Serve publications, subscriptions and history of topics."""
        await serve_topics(
            websocket,
            context.results.presence.topic_hub,
            context.topics,
            admit,
            rules,
            context.subscribers.limits,
            interests,
        )

    async def overlay(websocket: WebSocket) -> None:
        """Accept the link of a neighbour."""
        await accept_neighbour(websocket, context.topics.links)

    return [WebSocketRoute("/topics", topics), WebSocketRoute("/overlay", overlay)]


def _require_room(context: BrokerContext, client: TopicClient) -> None:
    try:
        context.subscribers.limits.require(
            "sockets",
            context.results.presence.connections_of(client.member),
            f"WebSockets of '{client.member.name}'",
        )
    except LimitReached as error:
        raise CloseConnection(CloseCode.LIMIT_REACHED, str(error)) from None


async def _admitted(context: BrokerContext, token: str) -> TopicClient:
    try:
        subscriber = await context.subscribers.authenticate(token, fresh=True)
    except BadToken as error:
        raise CloseConnection(CloseCode.UNAUTHORIZED, str(error)) from None
    except AccountDisabled as error:
        raise CloseConnection(CloseCode.DISABLED, str(error)) from None
    except NewsstandError as error:
        raise CloseConnection(CloseCode.INTERNAL_ERROR, str(error)) from None
    # Connections belong to the session: each has its own limits, and its own end.
    session = subscriber.claims.session
    return TopicClient(session, session, subscriber.claims.expires_s * 1000, subscriber)


def serve(settings: BrokerSettings, say: Callable[[str], None] = print) -> None:
    """Run a broker until SIGTERM or Ctrl-C; then move its subscribers to other brokers and stop."""
    with ExitStack() as stack:
        stack.enter_context(terminated_like_interrupted())
        bound = stack.enter_context(listening(settings.host, settings.port))
        make_private(settings.data)
        store = SubscriberStore(settings.data / "broker.sqlite", replicate=settings.coordinator is not None)
        stack.callback(store.close)
        check_certificate(settings.certificate, settings.key)
        url = url_of(bound, settings.certificate)
        assembly = BrokerAssembly(settings, store, url)
        api = create_api(assembly.context, lambda _: assembly.running())
        config = server_config(api, settings, timeout_graceful_shutdown=5, ws=Connection, ws_ping_interval=None)
        bound.listen(BACKLOG)  # clients may connect as soon as the address is printed
        say(f"newsstand: broker {settings.name} on {url}")
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal again
            BrokerServer(config, assembly).run(sockets=[bound])
        if assembly.fault is not None:
            raise BadOption(str(assembly.fault)) from assembly.fault


class BrokerServer(uvicorn.Server):
    """A server that moves its subscribers to other brokers before it stops."""

    def __init__(self, config: uvicorn.Config, assembly: BrokerAssembly) -> None:
        super().__init__(config)
        self._assembly = assembly

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._assembly.fault is not None

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Withdraw from the coordinator, close the connections and stop."""
        await self._assembly.leave()
        await super().shutdown(sockets)  # type: ignore[arg-type]
