"""Routes about subscribers: which broker is whose, who they are, and what is theirs."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from newsstand.coordinator.api_brokers import place_of
from newsstand.coordinator.api_shapes import (
    AddedShape,
    ChosenShape,
    Lookup,
    NameShape,
    NewHash,
    NewSubscriber,
    QueryLatitude,
    QueryLongitude,
    QueryNode,
    QueryPolicy,
    RecordsShape,
    body_of,
)
from newsstand.coordinator.desk import SUBSCRIBER, Desk
from newsstand.planning.places import NOWHERE, Place
from newsstand.serving.quick import Quick
from newsstand.serving.refusals import BODY, TOKEN, Refused, answer, not_now, problems, unauthorized

MOST_SUBSCRIBER_BYTES = 65_536
MOST_LOOKUP_BYTES = 2**21


def subscriber_routes(desk: Desk) -> APIRouter:
    """`/broker` and `/subscribers`."""
    router = APIRouter(tags=["subscribers"])
    coordinator = desk.coordinator

    @router.get("/broker", responses={200: {"model": ChosenShape}, **problems(*TOKEN, 422, 503, 507)})
    async def broker(
        request: Request,
        lat: QueryLatitude = None,
        lon: QueryLongitude = None,
        node: QueryNode = None,
        policy: QueryPolicy = None,
    ) -> Response:
        """The broker for whoever asks: with a subscriber's token its home, without one what the policy chooses."""
        return await choose_broker(desk, request, place_of(lat, lon, node), policy)

    @router.post(
        "/subscribers",
        status_code=201,
        responses={201: {"model": AddedShape}, **problems(*TOKEN, *BODY, 404, 409, 507)},
        openapi_extra=body_of(NewSubscriber),
    )
    async def add_subscriber(request: Request) -> Response:
        """Add a subscriber, whose home is the broker that tells of it. The same one again is no harm."""
        caller = desk.admit(request, "broker")
        told = await desk.read(request, NewSubscriber, MOST_SUBSCRIBER_BYTES)
        desk.require_own(caller, told.broker)
        if SUBSCRIBER.fullmatch(told.name) is None:
            raise Refused(422, "name: 1 to 64 of letters, digits, _ . @ and -")
        if told.client:
            desk.registrations.take(told.client, "too many registrations from this address; try again later")
        asked = (told.name, told.hash, told.broker)
        epoch = await desk.ask_as(request, told.broker, coordinator.add_subscriber, *asked)
        return answer({"name": told.name, "epoch": epoch}, 201)

    @router.post(
        "/subscribers/lookup",
        responses={200: {"model": RecordsShape}, **problems(*TOKEN, *BODY, 404, 409, 507)},
        openapi_extra=body_of(Lookup),
    )
    async def lookup(request: Request) -> Response:
        """The records of subscribers; with `take` the broker that asks becomes their home, unless it drains."""
        caller = desk.admit(request, "broker")
        told = await desk.read(request, Lookup, MOST_LOOKUP_BYTES)
        desk.require_own(caller, told.broker)
        asked = (told.broker, told.names, told.take, told.sessions)
        found = await desk.ask_as(request, told.broker, coordinator.lookup, *asked)
        return answer({"subscribers": found.records, "elsewhere": found.elsewhere, "handovers": found.handovers})

    path = "/subscribers/{name}"

    @router.put(
        path,
        responses={200: {"model": NameShape}, **problems(*TOKEN, *BODY, 404, 409, 507)},
        openapi_extra=body_of(NewHash),
    )
    async def set_hash(request: Request, name: str) -> Response:
        """Replace the hash of a subscriber's password."""
        caller = desk.admit(request, "broker")
        told = await desk.read(request, NewHash, MOST_SUBSCRIBER_BYTES)
        await desk.ask_for(request, caller, name, coordinator.set_hash, name, told.hash, told.epoch)
        return answer({"name": name})

    @router.delete(path, responses={200: {"model": NameShape}, **problems(*TOKEN, 404, 409, 507)})
    async def delete_subscriber(request: Request, name: str) -> Response:
        """Delete a subscriber with its sessions and subscriptions."""
        caller = desk.admit(request, "broker", "operator")
        await desk.ask_for(request, caller, name, coordinator.delete_subscriber, name)
        return answer({"name": name})

    return router


async def choose_broker(desk: Desk, request: Request, place: Place, policy: str | None) -> Response:
    """Answer who asks for a broker."""
    who = desk.who(request)
    if who is not None and await desk.ask(desk.coordinator.is_revoked, *who):
        raise unauthorized("the session has ended: log in")
    if who is not None and await desk.ask(desk.coordinator.is_disabled, who[0]):
        raise Refused(403, f"the account '{who[0]}' is disabled: ask the operator of the platform")
    chosen = await desk.ask(desk.coordinator.broker_for, None if who is None else who[0], place, policy)
    if chosen is None:
        raise not_now("no broker is up; try again in a moment")
    return answer(
        {"broker": {"name": chosen.broker.name, "url": chosen.broker.url}, "sticky": chosen.sticky},
        headers={"Cache-Control": "no-store"},
    )


def quick_calls(desk: Desk) -> list[Quick]:
    """What all clients of a broker that has died call at the same time."""
    return [Quick("GET", "/broker", lambda request: choose_broker(desk, request, NOWHERE, None), bare=True)]
