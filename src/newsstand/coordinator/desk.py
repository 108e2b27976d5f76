"""What all routes of the coordinator's API share: who asks, how a body is read, how the coordinator is called."""

from __future__ import annotations

import functools
import hmac
import re
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
from newsstand.serving.rates import Rate
from newsstand.serving.refusals import Refused, bearer, decoded, unauthorized
from newsstand.signing import key

P = ParamSpec("P")
T = TypeVar("T")
Role = Literal["broker", "admin"]

HOUR_S = 3600.0
SUBSCRIBER = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
"""The names that subscribers may have."""


class Keys:
    """Who somebody is, by the bearer token; all tokens come from the platform's one secret."""

    def __init__(self, secret: str) -> None:
        self._bearers: dict[Role, bytes] = {
            "broker": key(secret, "brokers").encode(),
            "admin": key(secret, "admin").encode(),
        }
        self._subscribers = key(secret, "subscribers")

    def role(self, token: str) -> Role | None:
        """Whose token it is, if it is not a subscriber's."""
        presented = token.encode("utf-8", "replace")
        found: Role | None = None
        for role, known in self._bearers.items():  # all of them, so that the time tells nothing
            if hmac.compare_digest(presented, known):
                found = role
        return found

    def subscriber(self, token: str) -> str | None:
        """The name in a subscriber's token."""
        found = self.session(token)
        return None if found is None else found[0]

    def session(self, token: str) -> tuple[str, str] | None:
        """The name and the session in a subscriber's token. It may have expired: it says who asks, no more."""
        try:
            claims = jwt.decode(
                token,
                self._subscribers,
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
        except jwt.InvalidTokenError:
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

    def admit(self, request: Request, *roles: Role) -> Role:
        """Refuse whoever is not one of these; return which it is."""
        token = bearer(request)
        role = self.keys.role(token) if token else None
        if role is None:
            name = self.keys.subscriber(token) if token else None
            if name is None:
                missing = "the token is missing: send the header 'Authorization: Bearer TOKEN'"
                raise unauthorized("the token is not known" if token else missing)
            request.state.token = name
            raise Refused(403, f"this is not for subscribers, but for the token of: {' or '.join(roles)}")
        request.state.token = role
        if role not in roles:
            raise Refused(403, f"this is not for the token of {role}, but for that of: {' or '.join(roles)}")
        return role

    def who(self, request: Request) -> tuple[str, str] | None:
        """The subscriber that asks, and its session; None if it is anybody else."""
        token = bearer(request)
        if not token:
            return None
        if (role := self.keys.role(token)) is not None:
            request.state.token = role
            return None
        found = self.keys.session(token)
        if found is None:
            raise unauthorized("the token is none of this platform: send a subscriber's token, or none")
        request.state.token = found[0]
        return found

    async def ask(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the coordinator, which waits for the disk, in a thread."""
        call = functools.partial(function, *args, **kwargs)
        return await anyio.to_thread.run_sync(call, limiter=self.one_by_one)

    async def read(self, request: Request, shape: type[T], limit: int) -> T:
        """The JSON body of a request, of a given shape."""
        async with self.bodies.read(request, limit) as body:
            return decoded(body, shape)
