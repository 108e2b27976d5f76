"""Routes for channels, subscriptions and their results."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from newsstand.auth.tokens import permits_channel
from newsstand.broker.api.context import BrokerContext
from newsstand.broker.results.service import ResultPage, SubscriptionInfo
from newsstand.broker.sessions.subscribers import durability
from newsstand.http.app import Routes
from newsstand.http.errors import json_response
from newsstand.http.openapi import JSON, REMOVED, USUAL, DeclaredResponse, page_of
from newsstand.http.openapi import After as Name
from newsstand.http.openapi import Limit as Entries
from newsstand.wire.cluster import Position

After = (
    Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="the acknowledged position if left out")] | None
)
Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Value = str | bool | int | float


class NewSubscription(msgspec.Struct, forbid_unknown_fields=True):
    """A channel with values, and the position to begin from."""

    channel: str
    values: Annotated[
        dict[str, Value] | list[Value], msgspec.Meta(description="by name, or in the order of the parameters")
    ] = {}
    since: Literal["now", "earliest"] | Position = "now"
    subscriber: Annotated[
        str | None, msgspec.Meta(description="the subscriber; only operators may name another one")
    ] = None


class AckRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The last position that the client has received."""

    position: Position


class AckResponse(msgspec.Struct):
    """The position up to which a subscription is acknowledged."""

    position: int


class ChannelInfo(msgspec.Struct):
    """A channel that can be subscribed to."""

    name: str
    parameters: dict[str, str]
    period_s: float | None
    bind: Annotated[
        dict[str, str], msgspec.Meta(description="parameters that are bound to a claim of the subscriber")
    ]


class ChannelList(msgspec.Struct):
    """Channels that the token may be used for; `next` is the `after` of the next page, null at the end."""

    channels: list[ChannelInfo]
    next: str | None


class SubscriptionList(msgspec.Struct):
    """Subscriptions of the subscriber; `next` as for channels."""

    subscriptions: list[SubscriptionInfo]
    next: str | None


class ResultItem(msgspec.Struct):
    """One result, and its source."""

    position: int
    at_ms: int
    payload: dict[str, Any]
    publication: int | None
    page: dict[str, Any] | None
    origin: Literal["cache", "cluster"]
    latency_ms: float


class ResultList(msgspec.Struct):
    """Pending results, oldest first."""

    results: list[ResultItem]
    head: int
    next: Annotated[int | None, msgspec.Meta(description="the position of the last one if more are pending")]


def subscription_routes(context: BrokerContext) -> Routes:
    """Return the routes of channels, subscriptions and results."""
    routes = Routes("subscriptions")
    service = context.results

    @routes.get("/channels", response=ChannelList, errors=(422, 503))
    async def channels(request: Request, after: Name = "", limit: Entries = USUAL) -> Response:
        """List the channels that the token permits, in the order of their names, after `after`."""
        subscriber = await context.subscriber(request)
        known = await service.channels.get()
        permitted = [one for one in known.values() if permits_channel(subscriber.claims.allow, one.name)]
        found, following = page_of(permitted, attrgetter("name"), after, limit)
        listed = [
            ChannelInfo(one.name, {each.name: each.type for each in one.parameters}, one.period_s, dict(one.bind))
            for one in found
        ]
        return json_response(ChannelList(listed, following))

    @routes.post(
        "/subscriptions",
        status=201,
        response=SubscriptionInfo,
        answers={200: DeclaredResponse("The subscription exists already.", {JSON: SubscriptionInfo})},
        errors=(403, 404, 503, 507),
        body=NewSubscription,
    )
    async def subscribe(request: Request) -> Response:
        """Subscribe to a channel with values; 200 if there is such a subscription already.

        An operator subscribes for the subscriber that it names.
        """
        operator = context.is_operator(request)
        subscriber = None if operator else await context.subscriber(request, fresh=True)
        given = await context.decode(request, NewSubscription)
        if subscriber is None or given.subscriber not in (None, subscriber.name):
            subscriber = await context.on_behalf(given.subscriber, operator)
        frontend, new = await service.subscribe(subscriber, given.channel, given.values, given.since)
        return json_response(frontend, 201 if new else 200, headers=durability_header())

    @routes.get("/subscriptions", response=SubscriptionList, errors=(422, 503))
    async def subscriptions(request: Request, after: Name = "", limit: Entries = USUAL) -> Response:
        """List the subscriptions that the token permits, in the order of their ids, after `after`."""
        subscriber = await context.subscriber(request, fresh=True)
        await service.channels.get(math.inf)  # values have names once channels are known
        found, following = page_of(service.subscriptions(subscriber), attrgetter("id"), after, limit)
        return json_response({"subscriptions": found, "next": following})

    @routes.get("/subscriptions/{subscription}", response=SubscriptionInfo, errors=(404, 503))
    async def subscription(request: Request, subscription: str) -> Response:
        """Return one subscription."""
        subscriber = await context.subscriber(request, subscription=subscription)
        await service.channels.get(math.inf)  # values have names once channels are known
        return json_response(service.subscription(subscriber, subscription))

    @routes.delete("/subscriptions/{subscription}", errors=(404, 503, 507))
    async def unsubscribe(request: Request, subscription: str) -> Response:
        """Drop a subscription with its pending results."""
        await service.unsubscribe(await context.subscriber(request, subscription=subscription), subscription)
        return Response(status_code=204, headers=durability_header())

    @routes.get(
        "/subscriptions/{subscription}/results",
        response=ResultList,
        answers=REMOVED,
        errors=(404, 422, 503),
        fast=True,
    )
    async def results(request: Request, subscription: str, after: After = None, limit: Limit = 100) -> Response:
        """Return pending results, oldest first, from the cache or from the cluster."""
        subscriber = await context.subscriber(request, subscription=subscription)
        delivery = await service.read(subscriber, subscription, after, limit)
        return Response(_written(delivery), 200, None, JSON)

    @routes.post(
        "/subscriptions/{subscription}/ack",
        response=AckResponse,
        errors=(404, 503, 507),
        body=AckRequest,
        fast=True,
    )
    async def acknowledge(request: Request, subscription: str) -> Response:
        """Acknowledge all results up to a position; durable when answered."""
        subscriber = await context.subscriber(request, subscription=subscription)
        given = await context.decode(request, AckRequest)
        acked = await service.acknowledge(subscriber, {subscription: given.position})
        return json_response({"position": acked[subscription]}, headers=durability_header())

    return routes


def durability_header() -> dict[str, str]:
    """Return the header that says where the changes of this request are durable."""
    return {"Newsstand-Durability": durability.get()}


def _written(delivery: ResultPage) -> bytes:
    following = b"null" if delivery.next is None else b"%d" % delivery.next
    return b'{"results":[%b],"head":%d,"next":%b}' % (b",".join(delivery.results), delivery.head, following)
