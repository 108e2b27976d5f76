"""Routes of subscribers: their brokers, accounts and state."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from newsstand.auth.passwords import check_password, password_hasher
from newsstand.config.types import Latitude, Longitude
from newsstand.coordinator.api.brokers import place_of
from newsstand.coordinator.api.context import CoordinatorContext
from newsstand.http.app import Routes, in_thread
from newsstand.http.errors import HttpError, json_response, service_unavailable, unauthorized
from newsstand.model import is_subscriber_name
from newsstand.wire.coordination import (
    AddedSubscriber,
    LookupRequest,
    LookupResponse,
    NewHash,
    NewSubscriber,
    Node,
)
from newsstand.wire.subscribers import SubscriberAccount, SubscriberAccounts

MOST_PASSWORD_BYTES = 65_536
MOST_LISTED = 1000

SelectionPolicy = Literal["nearest", "hops", "miles", "random", "least-loaded"]


class BrokerAddress(msgspec.Struct):
    """A broker, and its URL."""

    name: str
    url: str


class ChosenBroker(msgspec.Struct):
    """The broker for a client; `sticky` if the subscriber was assigned to it before."""

    broker: BrokerAddress
    sticky: bool


class SubscriberName(msgspec.Struct):
    """A subscriber that was changed."""

    name: str


class ResetPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new password."""

    password: str


def account_routes(context: CoordinatorContext) -> Routes:
    """Return the routes of `/subscribers` for operators."""
    routes = Routes("accounts")
    coordinator = context.coordinator

    @routes.get("/subscribers", response=SubscriberAccounts, errors=(403, 422))
    async def accounts(
        request: Request,
        after: Annotated[str, msgspec.Meta(max_length=64)] = "",
        limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_LISTED)] = 100,
    ) -> Response:
        """List accounts in the order of their names, after `after`."""
        context.admit(request, "operator")
        found = await context.run(coordinator.store.accounts, after, limit)
        return json_response({"subscribers": found, "next": found[-1].name if len(found) == limit else None})

    path = "/subscribers/{name}"

    @routes.get(path, response=SubscriberAccount, errors=(403, 404))
    async def account(request: Request, name: str) -> Response:
        """Return one account."""
        context.admit(request, "operator")
        return json_response(await context.run(coordinator.account, name))

    @routes.put(f"{path}/disabled", response=SubscriberAccount, errors=(403, 404, 507))
    async def disable(request: Request, name: str) -> Response:
        """Disable an account: it gets no tokens and no results, and keeps its subscriptions."""
        context.admit(request, "operator")
        return json_response(await context.run(coordinator.set_disabled, name, True))

    @routes.delete(f"{path}/disabled", response=SubscriberAccount, errors=(403, 404, 507))
    async def enable(request: Request, name: str) -> Response:
        """Enable an account that was disabled."""
        context.admit(request, "operator")
        return json_response(await context.run(coordinator.set_disabled, name, False))

    @routes.put(f"{path}/password", errors=(403, 404, 507), body=ResetPassword)
    async def reset(request: Request, name: str) -> Response:
        """Set a subscriber's password; all its sessions end."""
        context.admit(request, "operator")
        given = await context.decode(request, ResetPassword, MOST_PASSWORD_BYTES)
        check_password(given.password)
        await context.run(coordinator.account, name)
        hashed = await in_thread(context.hashing, password_hasher().hash, given.password)
        await context.run(coordinator.reset_password, name, hashed)
        return Response(status_code=204)

    return routes


MOST_SUBSCRIBER_BYTES = 65_536
MOST_LOOKUP_BYTES = 2**21


def subscriber_routes(context: CoordinatorContext) -> Routes:
    """Return the routes of `/broker` and `/subscribers`."""
    routes = Routes("subscribers")
    coordinator = context.coordinator

    @routes.get("/broker", response=ChosenBroker, fast=True, errors=(403, 422, 503, 507))
    async def broker(
        request: Request,
        lat: Latitude | None = None,
        lon: Longitude | None = None,
        node: Node | None = None,
        policy: SelectionPolicy | None = None,
    ) -> Response:
        """Return a broker: with a subscriber's token its own, else the one that the policy selects."""
        place = place_of(lat, lon, node)
        session = context.session(request)
        if session is not None and await context.run(coordinator.store.has_ended, *session):
            raise unauthorized("the session has ended: log in")
        if session is not None and await context.run(coordinator.store.is_disabled, session[0]):
            raise HttpError(403, f"the account '{session[0]}' is disabled: ask the operator of the platform")
        name = None if session is None else session[0]
        chosen = await context.run(coordinator.broker_for, name, place, policy)
        if chosen is None:
            raise service_unavailable("no broker is up; try again in a moment")
        return json_response(
            {"broker": {"name": chosen.broker.name, "url": chosen.broker.url}, "sticky": chosen.sticky},
            headers={"Cache-Control": "no-store"},
        )

    @routes.post(
        "/subscribers", status=201, response=AddedSubscriber, errors=(403, 404, 409, 507), body=NewSubscriber
    )
    async def add_subscriber(request: Request) -> Response:
        """Add a subscriber of the calling broker; repeating the call is harmless."""
        caller = context.admit(request, "broker")
        given = await context.decode(request, NewSubscriber, MOST_SUBSCRIBER_BYTES)
        context.require_own(caller, given.broker)
        if not is_subscriber_name(given.name):
            raise HttpError(422, "name: 1 to 64 of letters, digits, _ . @ and -")
        if given.client:
            context.registrations.take(given.client, "too many registrations from this address; try again later")
        asked = (given.name, given.hash, given.broker)
        epoch = await context.run_for_broker(request, given.broker, coordinator.add_subscriber, *asked)
        return json_response({"name": given.name, "epoch": epoch}, 201)

    @routes.post("/subscribers/lookup", response=LookupResponse, errors=(403, 404, 409, 507), body=LookupRequest)
    async def lookup(request: Request) -> Response:
        """Return records of subscribers; with `take` they are assigned to the calling broker, unless it drains."""
        caller = context.admit(request, "broker")
        given = await context.decode(request, LookupRequest, MOST_LOOKUP_BYTES)
        context.require_own(caller, given.broker)
        asked = (given.broker, given.names, given.take, given.sessions)
        found = await context.run_for_broker(request, given.broker, coordinator.lookup, *asked)
        return json_response(found)

    path = "/subscribers/{name}"

    @routes.put(path, response=SubscriberName, errors=(403, 404, 409, 507), body=NewHash)
    async def set_hash(request: Request, name: str) -> Response:
        """Replace the hash of a subscriber's password."""
        caller = context.admit(request, "broker")
        given = await context.decode(request, NewHash, MOST_SUBSCRIBER_BYTES)
        await context.run_for_account(request, caller, name, coordinator.set_hash, name, given.hash, given.epoch)
        return json_response({"name": name})

    @routes.delete(path, response=SubscriberName, errors=(403, 404, 409, 507))
    async def delete_subscriber(request: Request, name: str) -> Response:
        """Delete a subscriber with its sessions and subscriptions."""
        caller = context.admit(request, "broker", "operator")
        await context.run_for_account(request, caller, name, coordinator.delete_subscriber, name)
        return json_response({"name": name})

    return routes
