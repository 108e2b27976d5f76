"""What all routes of the HTTP API share: who asks, how a body is read within limits, how the cluster is called."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import ParamSpec, TypeVar

import anyio.to_thread
from fastapi import Request

from newsstand.cluster.app_folder import ClusterOptions
from newsstand.cluster.broker_instances import BrokerInstances
from newsstand.cluster.catalog import Conflict, Exists
from newsstand.cluster.facade import Cluster, Form
from newsstand.cluster.results import Gone
from newsstand.cluster.tokens import Token, Tokens
from newsstand.errors import (
    BadApp,
    BadQuery,
    BadValues,
    Busy,
    Duplicate,
    NewsstandError,
    NoRoom,
    NotFound,
    Unavailable,
)
from newsstand.model import INSTANCE_HEADER
from newsstand.serving.bodies import Bodies
from newsstand.serving.credentials import BadOperatorToken
from newsstand.serving.refusals import Refused, bearer, not_now, unauthorized

P = ParamSpec("P")
T = TypeVar("T")


TOKEN = (401, 403, 503)
"""What every route may answer that needs a token and asks the results."""


class Whichever(Enum):
    """For `Desk.admit`: a scope of this kind, whatever name it has. No text from outside can be equal to it."""

    NAME = "NAME"


ANY = Whichever.NAME

FORMS: dict[str, Form] = {
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
}


def refusal_of(error: NewsstandError) -> Refused:
    """The answer to what the cluster refuses."""
    if isinstance(error, Gone):
        return Refused(410, str(error), earliest=error.earliest)
    if isinstance(error, Duplicate):
        return Refused(409, str(error), reason="duplicate", lease_s=error.lease_s)
    if isinstance(error, Busy):
        return Refused(429, str(error), {"Retry-After": str(max(1, math.ceil(error.after_s)))})
    if isinstance(error, Unavailable):
        return not_now(error.reason, max(1, math.ceil(error.after_s)))
    statuses: tuple[tuple[type[NewsstandError], int], ...] = (
        (NotFound, 404),
        (Exists, 412),
        (Conflict, 409),
        (BadApp, 422),
        (BadQuery, 422),
        (BadValues, 422),
        (NoRoom, 507),
    )
    for kind, status in statuses:
        if isinstance(error, kind):
            return Refused(status, str(error))
    return Refused(400, str(error))


@dataclass(frozen=True)
class Desk:
    """Where requests come to: the cluster, who may ask, and the limits."""

    cluster: Cluster
    tokens: Tokens
    options: ClusterOptions
    publishing: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(64))
    """Threads for publishers, who are not to wait for those who explain and try."""
    looking: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(16))
    checking: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(2))
    """Threads for health checks, which are answered however busy the rest is."""
    instances: BrokerInstances = field(default_factory=BrokerInstances)
    measuring: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    bodies: Bodies = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bodies", Bodies(self.options.body_timeout_s))

    def admit(self, request: Request, *needs: tuple[str, str | Whichever | None], claim: bool = False) -> Token:
        """The holder of the request's token, if it has a scope for at least one of the needs: (action, name).

        A process that acts as a broker is refused if another one does; with `claim` it is the broker from now on.
        """
        presented = bearer(request)
        try:
            holder = self.tokens.holder(presented) if presented else None
        except BadOperatorToken as error:
            raise unauthorized(str(error)) from None
        if holder is None:
            missing = "the token is missing: send the header 'Authorization: Bearer TOKEN'"
            raise unauthorized("the token is not known" if presented else missing)
        request.state.token = holder.name
        for action, name in needs:
            if holder.is_admin or (
                holder.has_any(action) if isinstance(name, Whichever) else holder.may(action, name)
            ):
                if action == "broker" and isinstance(name, str):
                    instance = request.headers.get(INSTANCE_HEADER, "")
                    (self.instances.claim if claim else self.instances.require)(name, instance)
                return holder
        named = ((action, name.value if isinstance(name, Whichever) else name) for action, name in needs)
        wanted = " or ".join(action if name is None else f"{action}:{name}" for action, name in named)
        raise Refused(403, f"the token '{holder.name}' lacks the scope {wanted}")

    async def ask(
        self, limiter: anyio.CapacityLimiter, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the cluster, which blocks, in a thread."""
        return await anyio.to_thread.run_sync(functools.partial(function, *args, **kwargs), limiter=limiter)

    def body(self, request: Request, limit: int) -> AbstractAsyncContextManager[bytes]:
        """The body of a request, counted while it is read; held within a budget until the block ends."""
        return self.bodies.read(request, limit)


def form_of(request: Request) -> Form:
    """How the records of a body are written, by its Content-Type."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    form = FORMS.get(content_type)
    if form is None:
        raise Refused(
            415, f"Content-Type '{content_type}' is not known: send application/json or application/x-ndjson"
        )
    return form
