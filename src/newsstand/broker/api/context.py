"""The services and the authentication that all routes of a broker's API share."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from newsstand.auth.credentials import Operator, Scope
from newsstand.auth.tokens import Claims
from newsstand.broker.cluster_client.webhook import Webhook
from newsstand.broker.pages.resolver import PageResolver
from newsstand.broker.results.service import ResultService
from newsstand.broker.sessions.accounts import AccountService
from newsstand.broker.sessions.subscribers import AuthenticatedSubscriber, SubscriberDirectory
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.topics.service import TopicService
from newsstand.http.app import ApiContext
from newsstand.http.errors import HttpError, bearer, unknown_token
from newsstand.http.request_log import log_caller


@dataclass(frozen=True, kw_only=True)
class BrokerContext(ApiContext[Operator]):
    """The services of a broker, and the authentication of callers."""

    results: ResultService
    subscribers: SubscriberDirectory
    accounts: AccountService
    webhook: Webhook
    settings: BrokerSettings
    topics: TopicService
    pages: PageResolver
    json_only: bool = True

    async def subscriber(
        self, request: Request, *, fresh: bool = False, subscription: str | None = None
    ) -> AuthenticatedSubscriber:
        """Return the subscriber that calls, as `SubscriberDirectory.authenticate` with the same arguments."""
        presented = bearer(request)
        if not presented:
            raise unknown_token(request)
        subscriber = await self.subscribers.authenticate(presented, fresh=fresh, subscription=subscription)
        log_caller(request.scope, subscriber.name)
        return subscriber

    async def unrestricted_subscriber(self, request: Request) -> AuthenticatedSubscriber:
        """Return the subscriber that calls with a token that is not limited to channels."""
        subscriber = await self.subscriber(request)
        if subscriber.claims.allow is not None:
            raise HttpError(
                403, "the token is limited to channels; topics and named pages need one without limits"
            )
        return subscriber

    async def require_operator(self, request: Request, scope: Scope = "operator") -> None:
        """Raise HttpError unless the caller is an operator whose token has a scope."""
        operator = self.caller(request)
        if operator is None:
            await self.subscriber(request)
            raise HttpError(403, "operator token required")
        if not operator.may(scope):
            raise HttpError(403, f"the token of operator '{operator.name}' lacks the scope {scope}")

    def is_operator(self, request: Request) -> bool:
        """Return whether the caller has an operator's token with the scope `operator`."""
        operator = self.caller(request)
        return operator is not None and operator.may("operator")

    async def on_behalf(self, name: str | None, operator: bool) -> AuthenticatedSubscriber:
        """Return the subscriber that an operator names."""
        if not operator:
            raise HttpError(403, "subscriber: only an operator subscribes for others")
        if name is None:
            raise HttpError(422, "subscriber: missing; an operator names the subscriber")
        record = await self.subscribers.find(name)
        if record is None:
            raise HttpError(404, f"there is no subscriber '{name}'")
        return AuthenticatedSubscriber(record, Claims(name, "", 0))
