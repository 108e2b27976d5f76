"""What all routes of a broker's API share: who asks, and how errors are answered."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from newsstand.broker.accounts import BadLogin, BadToken, Claims, Disabled, NoKeys
from newsstand.broker.change_sender import NoCoordinator
from newsstand.broker.edge import Edge
from newsstand.broker.home import AccountChanged, Taken
from newsstand.broker.members import Elsewhere, GoingDown, Member, Members
from newsstand.broker.pages import Pages
from newsstand.broker.permits import Forbidden
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.topics import Topics
from newsstand.broker.upstream import Away, Gone
from newsstand.broker.webhook import Webhook
from newsstand.errors import NewsstandError
from newsstand.serving.bodies import Bodies
from newsstand.serving.credentials import BadOperatorToken, Operator, Operators, Scope
from newsstand.serving.refusals import Refused, bearer, not_now, refusal_of, unauthorized

B = TypeVar("B", bound=BaseModel)
SMALL_BODY = 64 * 1024
JSON = "application/json"
TOLD_BODY = 64 * 1024 * 1024


@dataclass(frozen=True)
class Desk:
    """Where requests come to."""

    edge: Edge
    members: Members
    webhook: Webhook
    settings: BrokerSettings
    operators: Operators = field(repr=False)
    topics: Topics
    pages: Pages
    bodies: Bodies = field(default_factory=Bodies)

    async def member(self, request: Request, *, fresh: bool = False, subscription: str | None = None) -> Member:
        """The subscriber who asks; `fresh` and `subscription` as in `Members.admit`."""
        presented = bearer(request)
        if not presented:
            raise unauthorized("the token is missing: send the header 'Authorization: Bearer TOKEN'")
        try:
            member = await self.members.admit(presented, fresh=fresh, subscription=subscription)
        except BadToken as error:
            raise unauthorized(str(error)) from None
        request.scope.setdefault("state", {})["token"] = member.name
        return member

    async def free_member(self, request: Request) -> Member:
        """A subscriber whose token is not limited to channels."""
        member = await self.member(request)
        require_free(member)
        return member

    async def admin(self, request: Request) -> None:
        """Only an operator may go on."""
        await self.operator(request, "operator")

    async def operator(self, request: Request, scope: Scope) -> None:
        """Only an operator whose token has a scope may go on."""
        held = self._operator(request)
        if held is None:
            await self.member(request)
            raise Refused(403, "this needs the token of an operator")
        if not held.may(scope):
            raise Refused(403, f"the token of operator '{held.name}' lacks the scope {scope}")

    def is_operator(self, request: Request) -> bool:
        """Whether who asks has an operator's token, which is good for everything."""
        held = self._operator(request)
        return held is not None and held.may("operator")

    def _operator(self, request: Request) -> Operator | None:
        try:
            held = self.operators.holder(bearer(request), time.time())
        except BadOperatorToken as error:
            raise unauthorized(str(error)) from None
        if held is not None:
            request.state.token = f"operator {held.name}"
        return held

    async def on_behalf(self, name: str | None, operator: bool) -> Member:
        """The subscriber that an operator names."""
        if not operator:
            raise Refused(403, "subscriber: only an operator subscribes for others")
        if name is None:
            raise Refused(422, "subscriber: is missing; an operator says for whom")
        record = await self.members.at_home(name)
        if record is None:
            raise Refused(404, f"there is no subscriber '{name}'")
        return Member(record, Claims(name, "", 0))

    async def body(self, request: Request, shape: type[B]) -> B:
        """The body of a request, which has no reason to be large."""
        content_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        if content_type != JSON:
            raise Refused(415, f"Content-Type '{content_type}' is not known: send {JSON}")
        async with self.bodies.read(request, SMALL_BODY) as body:
            try:
                return shape.model_validate_json(body)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                if first["type"] == "json_invalid":
                    raise Refused(400, f"body: {first['msg']}") from None
                place = ".".join(str(part) for part in first["loc"])
                raise Refused(422, f"body: {place}: {first['msg']}") from None


def require_free(member: Member) -> None:
    """Topics and named pages are not for tokens that are limited to channels."""
    if member.claims.allow is not None:
        raise Refused(403, "the token is limited to channels; topics and named pages need one without limits")


def refused(error: NewsstandError) -> Refused:
    """How an error of ours is answered."""
    match error:
        case BadLogin():
            return unauthorized(str(error))
        case Forbidden() | Disabled():
            return Refused(403, str(error))
        case Taken() | AccountChanged():
            return Refused(409, str(error))
        case Gone():
            return Refused(410, str(error), earliest=error.earliest)
        case Away() | NoCoordinator() | NoKeys() | Elsewhere() | GoingDown():
            return not_now(str(error))
        case _:
            return refusal_of(error)
