"""The HTTP API of a broker. Its description is at /openapi.json."""

from __future__ import annotations

from collections import Counter

from fastapi import FastAPI
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from newsstand.broker.accounts import BadToken, Disabled
from newsstand.broker.api_accounts import account_routes
from newsstand.broker.api_cluster import cluster_routes, health_routes, operator_routes
from newsstand.broker.api_pages import copy_routes, page_routes
from newsstand.broker.api_subscriptions import quick_calls, subscription_routes
from newsstand.broker.api_topics import topic_routes
from newsstand.broker.change_sender import Superseded
from newsstand.broker.desk import Desk, refused
from newsstand.broker.members import Elsewhere, GoingDown
from newsstand.broker.overlay_door import serve_neighbour
from newsstand.broker.socket_frames import BROKEN, DISABLED, GOING_DOWN, MOVED, NO_TOKEN, TOO_MANY, Dismissed
from newsstand.broker.socket_talk import serve_socket
from newsstand.broker.topic_rules import TopicRules
from newsstand.broker.topic_socket import Guest, serve_topics
from newsstand.errors import LimitReached, NewsstandError
from newsstand.serving.described import BEARER, new_api
from newsstand.serving.quick import QuickLane
from newsstand.serving.refusals import answer_errors
from newsstand.serving.request_log import RequestLog


def create_app(desk: Desk, api: FastAPI) -> ASGIApp:
    """The API as it is served: logged, and with a quick lane past the framework."""
    return RequestLog(QuickLane(api, quick_calls(desk), refused), desk.edge.metrics.requests, quiet=True)


def create_api(desk: Desk) -> FastAPI:
    """The API of a broker, with its description."""
    api = new_api("Newsstand broker", "Subscriptions, results and pages for subscribers.")
    for routes in (subscription_routes, page_routes, topic_routes, account_routes, operator_routes):
        api.include_router(routes(desk), dependencies=[BEARER])
    api.include_router(copy_routes(desk))
    api.include_router(cluster_routes(desk))
    api.include_router(health_routes(desk))
    _add_notifications(api, desk)
    _add_topics(api, desk)
    answer_errors(api, refused)
    return api


def _add_notifications(api: FastAPI, desk: Desk) -> None:
    async def admit(token: str) -> Guest:
        guest = await _admitted(desk, token)
        try:
            await desk.edge.channels.get()  # to know which streams the token may see
        except NewsstandError as error:
            raise Dismissed(BROKEN, str(error)) from None
        return guest

    def ready(guest: Guest) -> list[tuple[str, int | None]]:
        desk.edge.connected(guest.member)
        return list(desk.edge.streams(guest.member))

    async def acknowledge(guest: Guest, positions: dict[str, int]) -> dict[str, int]:
        try:
            return await desk.edge.acknowledge(guest.member, positions)
        except Elsewhere as error:
            raise Dismissed(MOVED, str(error)) from None
        except (GoingDown, Superseded) as error:
            raise Dismissed(GOING_DOWN, str(error)) from None

    @api.websocket("/notifications")
    async def notifications(websocket: WebSocket) -> None:
        """How far the subscriber's streams have come, as it happens."""
        await serve_socket(
            websocket,
            desk.edge.hub,
            admit=admit,
            on_ready=ready,
            on_ack=acknowledge,
            require_room=lambda guest: _require_room(desk, guest),
        )


def _add_topics(api: FastAPI, desk: Desk) -> None:
    rules = TopicRules(desk.settings.topics)
    interests: Counter[str] = Counter()

    async def admit(token: str) -> Guest:
        guest = await _admitted(desk, token)
        if guest.member.claims.allow is not None:
            raise Dismissed(NO_TOKEN, "the token is limited to channels; topics need one without limits")
        return guest

    @api.websocket("/topics")
    async def topics(websocket: WebSocket) -> None:
        """Publications and subscriptions of topics, and their past."""
        await serve_topics(
            websocket,
            desk.edge.topic_hub,
            desk.topics,
            admit,
            rules,
            desk.members.limits,
            interests,
            lambda guest: _require_room(desk, guest),
        )

    @api.websocket("/overlay")
    async def overlay(websocket: WebSocket) -> None:
        """The link of a neighbour."""
        await serve_neighbour(websocket, desk.topics.links)


def _require_room(desk: Desk, guest: Guest) -> None:
    try:
        desk.members.limits.require(
            "sockets", desk.edge.sockets(guest.member), f"WebSockets of '{guest.member.name}'"
        )
    except LimitReached as error:
        raise Dismissed(TOO_MANY, str(error)) from None


async def _admitted(desk: Desk, token: str) -> Guest:
    try:
        member = await desk.members.admit(token, fresh=True)
    except BadToken as error:
        raise Dismissed(NO_TOKEN, str(error)) from None
    except Disabled as error:
        raise Dismissed(DISABLED, str(error)) from None
    except NewsstandError as error:
        raise Dismissed(BROKEN, str(error)) from None
    # Connections belong to the session: each has its own limits, and its own end.
    session = member.claims.session
    return Guest(session, session, member.claims.expires_s * 1000, member)
