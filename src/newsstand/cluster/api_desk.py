"""What all routes of the HTTP API share: who asks, how a body is read within limits, how the cluster is called."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import ParamSpec, TypeVar

import anyio.to_thread
import msgspec
from fastapi import Request, Response

from newsstand.cluster.app_folder import ClusterOptions
from newsstand.cluster.catalog import Conflict, Exists
from newsstand.cluster.facade import Cluster, Form
from newsstand.cluster.results import Gone
from newsstand.cluster.tokens import Token, Tokens
from newsstand.errors import BadApp, BadQuery, BadValues, Busy, NewsstandError, NoRoom, NotFound
from newsstand.serving.refusals import Refused

P = ParamSpec("P")
T = TypeVar("T")

SLOWEST = 10_000
"""Bytes a second: a body that comes slower than this for long is not waited for."""


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


def refusal_of(error: NewsstandError | Gone) -> Refused:
    """The answer to what the cluster refuses."""
    if isinstance(error, Gone):
        return Refused(410, str(error), earliest=error.earliest)
    if isinstance(error, Busy):
        return Refused(429, str(error), {"Retry-After": str(max(1, math.ceil(error.after_s)))})
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


def answer(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Anything that JSON can hold, as a response."""
    return Response(msgspec.json.encode(content), status, headers, "application/json")


class Budget:
    """How many bytes of bodies are held at once, over all requests; asked from the event loop only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    def take(self, count: int) -> None:
        """Hold more, or raise Busy."""
        if self._held and self._held + count > self._most:
            raise Busy("many large bodies are being received; try again in a moment")
        self._held += count

    def give_back(self, count: int) -> None:
        """Hold less."""
        self._held -= count


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
    measuring: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    bodies: dict[int, Budget] = field(default_factory=dict)

    def admit(self, request: Request, *needs: tuple[str, str | Whichever | None]) -> Token:
        """The holder of the request's token, if it has a scope for at least one of the needs: (action, name)."""
        scheme, _, presented = request.headers.get("authorization", "").partition(" ")
        holder = self.tokens.holder(presented.strip()) if scheme.lower() == "bearer" else None
        if holder is None:
            said = "is not known" if presented else "is missing"
            raise Refused(
                401,
                f"the token {said}: send the header 'Authorization: Bearer TOKEN'",
                {"WWW-Authenticate": "Bearer"},
            )
        request.state.token = holder.name
        for action, name in needs:
            if holder.is_admin or (
                holder.has_any(action) if isinstance(name, Whichever) else holder.may(action, name)
            ):
                return holder
        named = ((action, name.value if isinstance(name, Whichever) else name) for action, name in needs)
        wanted = " or ".join(action if name is None else f"{action}:{name}" for action, name in named)
        raise Refused(403, f"the token '{holder.name}' lacks the scope {wanted}")

    async def ask(
        self, limiter: anyio.CapacityLimiter, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the cluster, which blocks, in a thread."""
        return await anyio.to_thread.run_sync(functools.partial(function, *args, **kwargs), limiter=limiter)

    @asynccontextmanager
    async def body(self, request: Request, limit: int) -> AsyncIterator[bytes]:
        """The body of a request, counted while it is read; held within a budget until the block ends."""
        encoding = request.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise Refused(415, f"Content-Encoding '{encoding}' is not read; send the body as it is")
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > limit:
            raise _too_large(limit)
        budget = self.bodies.setdefault(limit, Budget(max(2 * limit, 2**26)))
        pieces: list[bytes] = []
        size = 0
        try:
            async for piece in _pieces(request, self.options.body_timeout_s):
                if size + len(piece) > limit:
                    raise _too_large(limit)
                budget.take(len(piece))
                size += len(piece)
                pieces.append(piece)
            yield b"".join(pieces)
        finally:
            budget.give_back(size)


async def _pieces(request: Request, patience_s: float) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    begun, size = loop.time(), 0
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(begun + patience_s + size / SLOWEST):
                piece = await anext(stream, None)
        except TimeoutError:
            raise Refused(408, "the body comes too slowly", {"Connection": "close"}) from None
        if piece is None:
            return
        size += len(piece)
        if piece:
            yield piece


def _too_large(limit: int) -> Refused:
    # The rest of the body is not read, so the connection cannot be used again.
    return Refused(
        413, f"the body is larger than {limit} bytes; send it in several requests", {"Connection": "close"}
    )


def form_of(request: Request) -> Form:
    """How the records of a body are written, by its Content-Type."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    form = FORMS.get(content_type)
    if form is None:
        raise Refused(
            415, f"Content-Type '{content_type}' is not known: send application/json or application/x-ndjson"
        )
    return form


def decoded(body: bytes, shape: type[T]) -> T:
    """A JSON body of a given shape."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as error:
        raise Refused(422, f"body: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(400, f"body: {error}") from error
