"""Routes of accounts: register, log in, refresh, log out; and for operators, who manage accounts."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from newsstand.auth.passwords import BadLogin
from newsstand.auth.tokens import ChannelScope
from newsstand.broker.api.context import BrokerContext
from newsstand.broker.api.subscriptions import durability_header
from newsstand.broker.sessions.accounts import TokenPair
from newsstand.broker.sessions.subscribers import AuthenticatedSubscriber
from newsstand.concurrency.pacing import Rate
from newsstand.errors import Busy
from newsstand.http.app import Routes
from newsstand.http.errors import HttpError, json_response
from newsstand.http.request_log import log_caller
from newsstand.http.server import client_of, network_of
from newsstand.model import is_subscriber_name
from newsstand.wire.subscribers import SubscriberAccount, SubscriberAccounts, SubscriberRecord

logger = logging.getLogger(__name__)
HOUR_S = 3600.0
MOST_LISTED = 1000


class RegisterRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The account to register."""

    name: Annotated[str, msgspec.Meta(description="1 to 64 letters, digits or any of _ . @ -")]
    password: Annotated[str, msgspec.Meta(description="8 to 1024 characters")]


class LoginRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A name, a password, and the scopes that limit the session."""

    name: str
    password: str
    allow: list[ChannelScope] | None = None


class PasswordRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new password; a subscriber also gives the current one."""

    password: Annotated[str, msgspec.Meta(description="8 to 1024 characters")]
    current: Annotated[str | None, msgspec.Meta(description="the current password; an operator leaves it out")] = (
        None
    )


class RefreshRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A refresh token."""

    refresh: str


class RegisterResponse(msgspec.Struct):
    """A subscriber's name."""

    name: str


def account_routes(context: BrokerContext) -> Routes:
    """Return the routes of accounts and sessions."""
    routes = Routes("accounts")
    registrations = Rate(context.settings.limits.registrations_per_hour, HOUR_S)

    @routes.post(
        "/subscribers", status=201, response=RegisterResponse, errors=(403, 409, 503, 507), body=RegisterRequest
    )
    async def register(request: Request) -> Response:
        """Register as a subscriber."""
        operator = context.is_operator(request)
        if not operator and not context.settings.registration:
            await context.require_operator(request)
        given = await context.decode(request, RegisterRequest)
        address = "" if operator else network_of(client_of(request.scope))
        if address:
            registrations.take(address, "too many registrations from this address; try again later")
        await context.accounts.register(given.name, given.password, address)
        return json_response({"name": given.name}, 201)

    @routes.post("/login", response=TokenPair, errors=(503, 507), body=LoginRequest)
    async def login(request: Request) -> Response:
        """Begin a session, limited to the given channels and values."""
        given = await context.decode(request, LoginRequest)
        with _login_log(request, given.name) as address:
            pair = await context.accounts.login(given.name, given.password, given.allow, address)
        return json_response(pair, headers=durability_header())

    @routes.post("/refresh", response=TokenPair, errors=(503, 507), body=RefreshRequest)
    async def refresh(request: Request) -> Response:
        """Return new tokens for the session of a refresh token, which is valid once."""
        given = await context.decode(request, RefreshRequest)
        pair = await context.accounts.refresh(given.refresh)
        return json_response(pair, headers=durability_header())

    @routes.post("/logout", errors=(503, 507))
    async def logout(request: Request) -> Response:
        """End the session of the token."""
        subscriber = await context.subscriber(request)
        await context.accounts.end_sessions(subscriber.name, [subscriber.claims.session])
        return Response(status_code=204, headers=durability_header())

    @routes.delete("/sessions", errors=(403, 503, 507))
    async def end_sessions(request: Request) -> Response:
        """End all sessions of the subscriber."""
        subscriber = await context.subscriber(request)
        if subscriber.claims.allow is not None:
            raise HttpError(403, "a token that is limited cannot end other sessions")
        await context.accounts.end_sessions(subscriber.name, list(subscriber.record.sessions))
        return Response(status_code=204, headers=durability_header())

    @routes.put("/subscribers/{name}/password", errors=(403, 404, 409, 503, 507), body=PasswordRequest)
    async def change_password(request: Request, name: str) -> Response:
        """Change a password: a subscriber its own, an operator any. The other sessions end."""
        subscriber = None if context.is_operator(request) else await _own_account(context, request, name)
        given = await context.decode(request, PasswordRequest)
        if subscriber is None:
            await context.accounts.set_password(name, given.password)
        elif given.current is None:
            raise HttpError(422, "current: missing; give the current password")
        else:
            with _login_log(request, name) as address:
                await context.accounts.change_password(subscriber, given.current, given.password, address)
        return Response(status_code=204)

    @routes.get("/subscribers", response=SubscriberAccounts, errors=(403, 409, 422))
    async def accounts(
        request: Request,
        after: Annotated[str, msgspec.Meta(max_length=64)] = "",
        limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_LISTED)] = 100,
    ) -> Response:
        """List accounts in the order of their names, after `after`; without a coordinator only."""
        await _require_operator_alone(context, request)
        names = heapq.nsmallest(limit, (name for name in context.subscribers.records if name > after))
        found = [_account(context, context.subscribers.records[name]) for name in names]
        return json_response({"subscribers": found, "next": names[-1] if len(names) == limit else None})

    @routes.get("/subscribers/{name}", response=SubscriberAccount, errors=(403, 404, 409))
    async def account(request: Request, name: str) -> Response:
        """Return one account; without a coordinator only."""
        await _require_operator_alone(context, request)
        return json_response(_account(context, _record(context, name)))

    disabled = "/subscribers/{name}/disabled"

    @routes.put(disabled, response=SubscriberAccount, errors=(403, 404, 409, 503, 507))
    async def disable(request: Request, name: str) -> Response:
        """Disable an account: it gets no tokens and no results, and keeps its subscriptions."""
        return await set_disabled(request, name, True)

    @routes.delete(disabled, response=SubscriberAccount, errors=(403, 404, 409, 503, 507))
    async def enable(request: Request, name: str) -> Response:
        """Enable an account that was disabled."""
        return await set_disabled(request, name, False)

    async def set_disabled(request: Request, name: str, disabled: bool) -> Response:
        await _require_operator_alone(context, request)
        await context.accounts.set_disabled(name, disabled)
        return json_response(_account(context, _record(context, name)))

    @routes.delete("/subscribers/{name}", errors=(403, 404, 503, 507))
    async def delete(request: Request, name: str) -> Response:
        """Delete an account with its subscriptions: a subscriber its own, an operator any."""
        if not context.is_operator(request):
            await _own_account(context, request, name)
        await context.accounts.delete(name)
        return Response(status_code=204)

    return routes


@contextmanager
def _login_log(request: Request, name: str) -> Iterator[str]:
    """Yield the client's address; log a login that fails, with the account and this address."""
    address = client_of(request.scope)
    if not is_subscriber_name(name):  # it may be a password in the wrong field
        name = "(not a name)"
    log_caller(request.scope, name)
    try:
        yield address
    except (BadLogin, Busy) as error:
        fields = {"account": name, "client": address, "reason": str(error)}
        logger.warning("login failed", extra={"fields": fields})
        raise


async def _require_operator_alone(context: BrokerContext, request: Request) -> None:
    """Raise HttpError unless an operator calls a broker that has no coordinator."""
    await context.require_operator(request)
    if context.settings.coordinator is not None:
        raise HttpError(409, f"accounts are managed at the coordinator: ask {context.settings.coordinator}")


def _record(context: BrokerContext, name: str) -> SubscriberRecord:
    record = context.subscribers.records.get(name)
    if record is None:
        raise HttpError(404, f"there is no subscriber '{name}'")
    return record


def _account(context: BrokerContext, record: SubscriberRecord) -> SubscriberAccount:
    now_ms = context.results.now_ms()
    return SubscriberAccount(
        record.name,
        context.settings.name,
        len(record.subscriptions),
        sum(one.expires > now_ms for one in record.sessions.values()),
        "disabled" if record.disabled else "active",
        record.created or None,
    )


async def _own_account(context: BrokerContext, request: Request, name: str) -> AuthenticatedSubscriber:
    """Return the subscriber of an account; raise HttpError for other callers and for limited tokens."""
    subscriber = await context.subscriber(request, fresh=True)  # an operator may have reset the password
    if subscriber.name != name or subscriber.claims.allow is not None:
        raise HttpError(
            403, "an account is for its own subscriber, with a token without limits, or for an operator"
        )
    return subscriber
