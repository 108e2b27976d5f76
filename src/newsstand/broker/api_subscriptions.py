"""Routes for channels, subscriptions and their results."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from newsstand.broker.api_shapes import (
    Acknowledgement,
    ChannelsShape,
    DeliveryShape,
    FrontendShape,
    FrontendsShape,
    GoneProblem,
    NewSubscription,
    PositionShape,
)
from newsstand.broker.desk import Desk
from newsstand.broker.edge import Delivery
from newsstand.broker.members import durability
from newsstand.broker.permits import permits_channel
from newsstand.serving.paging import USUAL, page_of
from newsstand.serving.paging import After as Name
from newsstand.serving.paging import Limit as Entries
from newsstand.serving.quick import Quick, whole_number
from newsstand.serving.refusals import BODY, TOKEN, Responses, answer, json_body, problems

After = Annotated[int | None, Query(ge=0, le=2**63 - 1, description="the acknowledged position if left out")]
Limit = Annotated[int, Query(ge=1, le=1000)]
_GONE: Responses = {410: {"model": GoneProblem, "description": "Retention has removed what was asked for."}}


def subscription_routes(desk: Desk) -> APIRouter:
    """Everything that a subscriber does with channels."""
    routes = APIRouter(tags=["subscriptions"])
    edge = desk.edge

    @routes.get("/channels", response_model=ChannelsShape, responses=problems(401, 422, 503))
    async def channels(request: Request, after: Name = "", limit: Entries = USUAL) -> Response:
        """The channels that the token may be used for, in the order of their names, after `after`."""
        member = await desk.member(request)
        known = await edge.channels.get()
        permitted = [one for one in known.values() if permits_channel(member.claims.allow, one.name)]
        found, following = page_of(permitted, attrgetter("name"), after, limit)
        return answer(
            {
                "channels": [
                    {
                        "name": one.name,
                        "parameters": {parameter.name: parameter.type for parameter in one.parameters},
                        "period_s": one.period_s,
                        "bind": dict(one.bind),
                    }
                    for one in found
                ],
                "next": following,
            }
        )

    @routes.post(
        "/subscriptions",
        status_code=201,
        response_model=FrontendShape,
        responses={200: {"model": FrontendShape}, **problems(*TOKEN, 404, 503, 507, *BODY)},
        openapi_extra=json_body(NewSubscription),
    )
    async def subscribe(request: Request) -> Response:
        """Subscribe to a channel with values; 200 if there is such a subscription already.

        An operator subscribes for the subscriber that it names.
        """
        operator = desk.is_operator(request)
        member = None if operator else await desk.member(request, fresh=True)
        given = await desk.body(request, NewSubscription)
        if member is None or given.subscriber not in (None, member.name):
            member = await desk.on_behalf(given.subscriber, operator)
        frontend, new = await edge.subscribe(member, given.channel, given.values, given.since)
        return answer(frontend, 201 if new else 200, headers=durability_header())

    @routes.get("/subscriptions", response_model=FrontendsShape, responses=problems(401, 422, 503))
    async def subscriptions(request: Request, after: Name = "", limit: Entries = USUAL) -> Response:
        """The subscriptions that the token may see, in the order of their ids, after `after`."""
        member = await desk.member(request, fresh=True)
        await edge.channels.get(math.inf)  # values have names once channels are known
        found, following = page_of(edge.subscriptions(member), attrgetter("id"), after, limit)
        return answer({"subscriptions": found, "next": following})

    @routes.get("/subscriptions/{subscription}", response_model=FrontendShape, responses=problems(401, 404, 503))
    async def subscription(request: Request, subscription: str) -> Response:
        """One subscription."""
        member = await desk.member(request, subscription=subscription)
        await edge.channels.get(math.inf)  # values have names once channels are known
        return answer(edge.subscription(member, subscription))

    @routes.delete(
        "/subscriptions/{subscription}",
        status_code=204,
        response_class=Response,
        responses=problems(401, 404, 503, 507),
    )
    async def unsubscribe(request: Request, subscription: str) -> Response:
        """Drop a subscription, with what is pending."""
        await edge.unsubscribe(await desk.member(request, subscription=subscription), subscription)
        return Response(status_code=204, headers=durability_header())

    @routes.get(
        "/subscriptions/{subscription}/results",
        response_model=DeliveryShape,
        responses={**_GONE, **problems(401, 404, 422, 503)},
    )
    async def results(request: Request, subscription: str, after: After = None, limit: Limit = 100) -> Response:
        """What is pending, oldest first, from the cache and then from the cluster."""
        return await read_results(desk, request)

    @routes.post(
        "/subscriptions/{subscription}/ack",
        response_model=PositionShape,
        responses=problems(401, 404, 503, 507, *BODY),
        openapi_extra=json_body(Acknowledgement),
    )
    async def acknowledge(request: Request, subscription: str) -> Response:
        """Acknowledge everything up to a position; durable when it is answered."""
        return await acknowledge_results(desk, request)

    return routes


async def read_results(desk: Desk, request: Request) -> Response:
    """Answer a read."""
    subscription = request.path_params["subscription"]
    member = await desk.member(request, subscription=subscription)
    after = whole_number(request, "after", None, 0, 2**63 - 1)
    limit = whole_number(request, "limit", 100, 1, 1000)
    assert limit is not None
    delivery = await desk.edge.read(member, subscription, after, limit)
    return Response(_written(delivery), 200, None, "application/json")


async def acknowledge_results(desk: Desk, request: Request) -> Response:
    """Answer an acknowledgement."""
    subscription = request.path_params["subscription"]
    member = await desk.member(request, subscription=subscription)
    given = await desk.body(request, Acknowledgement)
    acked = await desk.edge.acknowledge(member, {subscription: given.position})
    return answer({"position": acked[subscription]}, headers=durability_header())


def durability_header() -> dict[str, str]:
    """Return the header that says where the changes of this request are durable."""
    return {"Newsstand-Durability": durability.get()}


def quick_calls(desk: Desk) -> list[Quick]:
    """What subscribers call all the time."""
    return [
        Quick("GET", "/subscriptions/{subscription}/results", lambda request: read_results(desk, request)),
        Quick("POST", "/subscriptions/{subscription}/ack", lambda request: acknowledge_results(desk, request)),
    ]


def _written(delivery: Delivery) -> bytes:
    following = b"null" if delivery.next is None else b"%d" % delivery.next
    return b'{"results":[%b],"head":%d,"next":%b}' % (b",".join(delivery.results), delivery.head, following)
