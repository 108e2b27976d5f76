"""What all routes of the coordinator's API share: who asks, how a body is read, how the coordinator is called."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, ParamSpec, TypeVar

import anyio.to_thread
import jwt
from fastapi import Request

from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.metrics import Metrics
from newsstand.model import INSTANCE_HEADER
from newsstand.serving.bodies import Bodies
from newsstand.serving.credentials import BadOperatorToken, Operators, SharedKeys, broker_of
from newsstand.serving.rates import Rate
from newsstand.serving.refusals import Refused, bearer, decoded, unauthorized

P = ParamSpec("P")
T = TypeVar("T")
Role = Literal["broker", "operator", "metrics"]

HOUR_S = 3600.0
SUBSCRIBER = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
"""The names that subscribers may have."""


@dataclass(frozen=True)
class Caller:
    """A broker or an operator that asks."""

    role: Role
    name: str

    def __str__(self) -> str:
        return f"{'broker' if self.role == 'broker' else 'operator'} {self.name}"


class Keys:
    """Who somebody is, by the bearer token; all tokens come from the platform's one secret."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives Unix seconds, for tokens of operators that expire."""
        self._secret = secret
        self._clock = clock
        self._operators = Operators.of_platform(secret)
        self.shared = SharedKeys.of(secret)
        """What every broker is given when it registers."""

    def caller(self, token: str) -> Caller | None:
        """Return the broker or operator whose token it is; raise BadOperatorToken if it has expired."""
        if (broker := broker_of(self._secret, token)) is not None:
            return Caller("broker", broker)
        operator = self._operators.holder(token, self._clock())
        if operator is None:
            return None
        return Caller("operator" if operator.may("operator") else "metrics", operator.name)

    def subscriber(self, token: str) -> str | None:
        """The name in a subscriber's token."""
        found = self.session(token)
        return None if found is None else found[0]

    def session(self, token: str) -> tuple[str, str] | None:
        """The name and the session in a subscriber's token. It may have expired: it says who asks, no more."""
        try:
            claims = jwt.decode(
                token,
                self.shared.subscribers,
                algorithms=["HS256"],
                issuer="newsstand",
                options={
                    "require": ["sub", "iss"],
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                    "verify_aud": False,
                },
            )
        except (jwt.InvalidTokenError, RecursionError):  # older PyJWT lets the latter pass
            return None
        name = claims["sub"]
        return (name, str(claims.get("sid", ""))) if SUBSCRIBER.fullmatch(name) else None


@dataclass(frozen=True)
class Desk:
    """Where requests come to: the coordinator, who may ask, and the clock."""

    coordinator: Coordinator
    keys: Keys
    metrics: Metrics
    clock: Callable[[], float]
    check: Callable[[], None]
    """Raises if the store does not answer."""
    open_metrics: bool = False
    bodies: Bodies = field(default_factory=Bodies)
    one_by_one: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    """The coordinator's calls are made one after the other, in the order in which they come."""
    registrations: Rate = field(init=False)
    """Of subscribers, by the addresses of clients."""
    hashing: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    """Passwords that operators set are hashed one by one."""
    checking: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))

    def __post_init__(self) -> None:
        most = self.coordinator.limits.registrations_per_hour
        object.__setattr__(self, "registrations", Rate(most, HOUR_S))

    async def ask_as(
        self, request: Request, broker: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the coordinator for a broker; refuse a process whose name belongs to another one by now."""
        instance = request.headers.get(INSTANCE_HEADER, "")

        def fenced() -> T:
            self.coordinator.require_instance(broker, instance)
            return function(*args, **kwargs)

        return await self.ask(fenced)

    async def ask_for(
        self,
        request: Request,
        caller: Caller,
        subscriber: str,
        function: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call the coordinator about an account: for an operator, or for the broker that is the account's home."""
        if caller.role != "broker":
            return await self.ask(function, *args, **kwargs)

        def at_home() -> T:
            self.coordinator.require_home(caller.name, subscriber)
            return function(*args, **kwargs)

        return await self.ask_as(request, caller.name, at_home)

    def admit(self, request: Request, *roles: Role, broker: str | None = None) -> Caller:
        """Refuse whoever has none of these roles, and a broker that is not the one of a name; return who it is."""
        token = bearer(request)
        caller = self._caller(token)
        if caller is None:
            name = self.keys.subscriber(token) if token else None
            if name is None:
                missing = "the token is missing: send the header 'Authorization: Bearer TOKEN'"
                raise unauthorized("the token is not known" if token else missing)
            request.state.token = name
            raise Refused(403, f"this is not for subscribers, but for the token of: {' or '.join(roles)}")
        request.state.token = str(caller)
        if caller.role not in roles:
            raise Refused(403, f"this is not for {caller}, but for the token of: {' or '.join(roles)}")
        if broker is not None:
            self.require_own(caller, broker)
        return caller

    def require_own(self, caller: Caller, broker: str) -> None:
        """Refuse a broker that acts under the name of another one."""
        if caller.role == "broker" and caller.name != broker:
            raise Refused(403, f"the credential of broker '{caller.name}' is not for broker '{broker}'")

    def who(self, request: Request) -> tuple[str, str] | None:
        """The subscriber that asks, and its session; None if it is anybody else."""
        token = bearer(request)
        if not token:
            return None
        if (caller := self._caller(token)) is not None:
            request.state.token = str(caller)
            return None
        found = self.keys.session(token)
        if found is None:
            raise unauthorized("the token is none of this platform: send a subscriber's token, or none")
        request.state.token = found[0]
        return found

    def _caller(self, token: str) -> Caller | None:
        try:
            return self.keys.caller(token) if token else None
        except BadOperatorToken as error:
            raise unauthorized(str(error)) from None

    async def ask(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the coordinator, which waits for the disk, in a thread."""
        call = functools.partial(function, *args, **kwargs)
        return await anyio.to_thread.run_sync(call, limiter=self.one_by_one)

    async def read(self, request: Request, shape: type[T], limit: int) -> T:
        """The JSON body of a request, of a given shape."""
        async with self.bodies.read(request, limit) as body:
            return decoded(body, shape)
