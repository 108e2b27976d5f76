"""Routes for who a subscriber is: register, log in, refresh, log out; and for operators, who manage accounts."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from newsstand.broker.accounts import NAME, BadLogin, BadToken
from newsstand.broker.api_shapes import (
    AccountShape,
    AccountsShape,
    Login,
    NameShape,
    NewPassword,
    PairShape,
    Refresh,
    Registration,
)
from newsstand.broker.api_subscriptions import durability_header
from newsstand.broker.desk import Desk
from newsstand.broker.members import Member
from newsstand.broker.records import Allowed, Record
from newsstand.errors import Busy
from newsstand.serving.client_address import client_of, network_of
from newsstand.serving.rates import Rate
from newsstand.serving.refusals import BODY, TOKEN, Refused, answer, json_body, problems, unauthorized

logger = logging.getLogger(__name__)
HOUR_S = 3600.0


MOST_LISTED = 1000


def account_routes(desk: Desk) -> APIRouter:
    """Everything about names, passwords and sessions."""
    routes = APIRouter(tags=["accounts"])
    registrations = Rate(desk.settings.limits.registrations_per_hour, HOUR_S)

    @routes.post(
        "/subscribers",
        status_code=201,
        response_model=NameShape,
        responses=problems(*TOKEN, 409, 503, 507, *BODY),
        openapi_extra=json_body(Registration),
    )
    async def register(request: Request) -> Response:
        """Register as a subscriber."""
        operator = desk.is_operator(request)
        if not operator and not desk.settings.registration:
            await desk.admin(request)
        given = await desk.body(request, Registration)
        address = "" if operator else network_of(client_of(request.scope))
        if address:
            registrations.take(address, "too many registrations from this address; try again later")
        await desk.members.register(given.name, given.password, address)
        return answer({"name": given.name}, 201)

    @routes.post(
        "/login",
        response_model=PairShape,
        responses=problems(401, 429, 503, 507, *BODY),
        openapi_extra=json_body(Login),
    )
    async def login(request: Request) -> Response:
        """Begin a session, limited to channels and values at the wish of who logs in."""
        given = await desk.body(request, Login)
        allow = None if given.allow is None else [Allowed(one.channel, one.values) for one in given.allow]
        with _noted(request, given.name) as address:
            pair = await desk.members.login(given.name, given.password, allow, address)
        return answer(pair, headers=durability_header())

    @routes.post(
        "/refresh",
        response_model=PairShape,
        responses=problems(401, 503, 507, *BODY),
        openapi_extra=json_body(Refresh),
    )
    async def refresh(request: Request) -> Response:
        """New tokens for the session of a refresh token, which is good once."""
        given = await desk.body(request, Refresh)
        try:
            pair = await desk.members.refresh(given.refresh)
        except BadToken as error:
            raise unauthorized(str(error)) from None
        return answer(pair, headers=durability_header())

    @routes.post("/logout", status_code=204, response_class=Response, responses=problems(401, 503, 507))
    async def logout(request: Request) -> Response:
        """End the session of the token: it is not accepted any more."""
        member = await desk.member(request)
        await desk.members.end(member.name, [member.claims.session])
        return Response(status_code=204, headers=durability_header())

    @routes.delete("/sessions", status_code=204, response_class=Response, responses=problems(*TOKEN, 503, 507))
    async def end_sessions(request: Request) -> Response:
        """End all sessions of the subscriber."""
        member = await desk.member(request)
        if member.claims.allow is not None:
            raise Refused(403, "a token that is limited cannot end other sessions")
        await desk.members.end(member.name, list(member.record.sessions))
        return Response(status_code=204, headers=durability_header())

    @routes.put(
        "/subscribers/{name}/password",
        status_code=204,
        response_class=Response,
        responses=problems(*TOKEN, 404, 409, 503, 507, *BODY),
        openapi_extra=json_body(NewPassword),
    )
    async def change_password(request: Request, name: str) -> Response:
        """Change a password: a subscriber its own, an operator anybody's. The other sessions end."""
        member = None if desk.is_operator(request) else await _own(desk, request, name)
        given = await desk.body(request, NewPassword)
        if member is None:
            await desk.members.set_password(name, given.password)
        elif given.current is None:
            raise Refused(422, "current: is missing; give the password until now")
        else:
            with _noted(request, name) as address:
                await desk.members.change_password(member, given.current, given.password, address)
        return Response(status_code=204)

    @routes.get("/subscribers", response_model=AccountsShape, responses=problems(*TOKEN, 409, 422))
    async def accounts(
        request: Request,
        after: Annotated[str, Query(max_length=64)] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
    ) -> Response:
        """Accounts in the order of their names, from the one after `after` on; without a coordinator only."""
        await _operator_alone(desk, request)
        names = heapq.nsmallest(limit, (name for name in desk.members.records if name > after))
        found = [_account(desk, desk.members.records[name]) for name in names]
        return answer({"subscribers": found, "next": names[-1] if len(names) == limit else None})

    @routes.get("/subscribers/{name}", response_model=AccountShape, responses=problems(*TOKEN, 404, 409))
    async def account(request: Request, name: str) -> Response:
        """One account; without a coordinator only."""
        await _operator_alone(desk, request)
        return answer(_account(desk, _known(desk, name)))

    disabled = "/subscribers/{name}/disabled"

    @routes.put(disabled, response_model=AccountShape, responses=problems(*TOKEN, 404, 409, 503, 507))
    async def disable(request: Request, name: str) -> Response:
        """Disable an account: it gets no tokens and no answers, and keeps its subscriptions."""
        await _operator_alone(desk, request)
        await desk.members.set_disabled(name, True)
        return answer(_account(desk, _known(desk, name)))

    @routes.delete(disabled, response_model=AccountShape, responses=problems(*TOKEN, 404, 409, 503, 507))
    async def enable(request: Request, name: str) -> Response:
        """Enable an account that was disabled."""
        await _operator_alone(desk, request)
        await desk.members.set_disabled(name, False)
        return answer(_account(desk, _known(desk, name)))

    @routes.delete(
        "/subscribers/{name}",
        status_code=204,
        response_class=Response,
        responses=problems(*TOKEN, 404, 503, 507),
    )
    async def delete(request: Request, name: str) -> Response:
        """Delete an account with its subscriptions: a subscriber its own, an operator anybody's."""
        if not desk.is_operator(request):
            await _own(desk, request, name)
        await desk.members.delete(name)
        return Response(status_code=204)

    return routes


@contextmanager
def _noted(request: Request, name: str) -> Iterator[str]:
    """Log a password that is refused, with the account and the address of the client, which is given."""
    address = client_of(request.scope)
    if NAME.fullmatch(name) is None:  # it may be a password in the wrong field
        name = "(not a name)"
    request.scope.setdefault("state", {})["token"] = name
    try:
        yield address
    except (BadLogin, Busy) as error:
        told = {"account": name, "client": address, "reason": str(error)}
        logger.warning("a login failed", extra={"told": told})
        raise


async def _operator_alone(desk: Desk, request: Request) -> None:
    """Let operators on, at a broker without a coordinator: with one that knows all accounts."""
    await desk.admin(request)
    if desk.settings.coordinator is not None:
        raise Refused(409, f"the coordinator manages accounts: ask {desk.settings.coordinator}")


def _known(desk: Desk, name: str) -> Record:
    record = desk.members.records.get(name)
    if record is None:
        raise Refused(404, f"there is no subscriber '{name}'")
    return record


def _account(desk: Desk, record: Record) -> dict[str, object]:
    now_ms = desk.edge.now_ms()
    return {
        "name": record.name,
        "broker": desk.settings.name,
        "subscriptions": len(record.subscriptions),
        "sessions": sum(one.expires > now_ms for one in record.sessions.values()),
        "state": "disabled" if record.disabled else "active",
        "created": record.created or None,
    }


async def _own(desk: Desk, request: Request, name: str) -> Member:
    """The subscriber who asks for its own account, with a token that is not limited."""
    member = await desk.member(request, fresh=True)  # an operator may have reset the password
    if member.name != name or member.claims.allow is not None:
        raise Refused(403, "an account is for its own subscriber, with a token without limits, or for an operator")
    return member
