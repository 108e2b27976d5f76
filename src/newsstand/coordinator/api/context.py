"""What all routes of the coordinator's API share: who may call it, and how it is called."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

import anyio
from starlette.requests import Request

from newsstand.auth.credentials import Caller, PlatformCredentials, Role, SharedKeys
from newsstand.auth.tokens import SubscriberTokens
from newsstand.concurrency.pacing import Rate
from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.metrics import Metrics
from newsstand.http.app import ApiContext, in_thread
from newsstand.http.errors import HttpError, bearer, unauthorized, unknown_token
from newsstand.http.request_log import log_caller
from newsstand.model import INSTANCE_HEADER

P = ParamSpec("P")
T = TypeVar("T")
HOUR_S = 3600.0


class Authenticator(PlatformCredentials):
    """A reader of bearer tokens, all of which follow from the platform's secret."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        super().__init__(secret, clock)
        self.shared = SharedKeys.of(secret)
        """The keys that every broker gets when it registers."""
        self.tokens = SubscriberTokens(self.shared.subscribers)


@dataclass(frozen=True, kw_only=True)
class CoordinatorContext(ApiContext[Caller]):
    """The services of the coordinator, and who may use them."""

    coordinator: Coordinator
    keys: Authenticator
    metrics: Metrics
    clock: Callable[[], float]
    check: Callable[[], None]
    """Raises if the store does not answer."""
    open_metrics: bool = False
    one_by_one: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    """Makes the coordinator's calls one after the other, in the order of their arrival."""
    registrations: Rate = field(init=False)
    """Limits registrations of subscribers by the addresses of clients."""
    hashing: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    """Hashes the passwords that operators set one by one."""
    checking: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))

    def __post_init__(self) -> None:
        most = self.coordinator.limits.registrations_per_hour
        object.__setattr__(self, "registrations", Rate(most, HOUR_S))

    async def run_for_broker(
        self, request: Request, broker: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the coordinator for a broker; raise Duplicate if another process has its name."""
        instance = request.headers.get(INSTANCE_HEADER, "")

        def fenced() -> T:
            self.coordinator.require_instance(broker, instance)
            return function(*args, **kwargs)

        return await self.run(fenced)

    async def run_for_account(
        self,
        request: Request,
        caller: Caller,
        subscriber: str,
        function: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call the coordinator about an account: for an operator, or for the account's broker."""
        if caller.role != "broker":
            return await self.run(function, *args, **kwargs)

        def checked() -> T:
            self.coordinator.require_owner(caller.name, subscriber)
            return function(*args, **kwargs)

        return await self.run_for_broker(request, caller.name, checked)

    def admit(self, request: Request, *roles: Role, broker: str | None = None) -> Caller:
        """Return the caller; raise HttpError unless it has one of these roles and, as a broker, that name."""
        caller = self.caller(request)
        if caller is None:
            subscriber = self.keys.tokens.identify(bearer(request))
            if subscriber is None:
                raise unknown_token(request)
            log_caller(request.scope, subscriber[0])
            raise HttpError(403, f"this is not for subscribers, but for the token of: {' or '.join(roles)}")
        if caller.role not in roles:
            raise HttpError(403, f"this is not for {caller}, but for the token of: {' or '.join(roles)}")
        if broker is not None:
            self.require_own(caller, broker)
        return caller

    def require_own(self, caller: Caller, broker: str) -> None:
        """Raise HttpError for a broker that acts under another broker's name."""
        if caller.role == "broker" and caller.name != broker:
            raise HttpError(403, f"the credential of broker '{caller.name}' is not for broker '{broker}'")

    def session(self, request: Request) -> tuple[str, str] | None:
        """Return the name and the session of a subscriber that calls; None for other callers."""
        token = bearer(request)
        if not token or self.caller(request) is not None:
            return None
        found = self.keys.tokens.identify(token)
        if found is None:
            raise unauthorized("the token is none of this platform: send a subscriber's token, or none")
        log_caller(request.scope, found[0])
        return found

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the coordinator, which waits for the disk, in a thread."""
        return await in_thread(self.one_by_one, function, *args, **kwargs)
