"""A transport between a client and its brokers that forwards requests, answers them or fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer

Send = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]


@dataclass(frozen=True)
class Reply:
    """An invented response: text as it is, anything else as JSON."""

    status: int
    body: object
    headers: Mapping[str, str] = field(default_factory=dict)


Meddle = Callable[[aiohttp.ClientRequest, Send], Awaitable[aiohttp.ClientResponse | Reply]]


async def _tell(request: web.Request) -> web.Response:
    response = {name: value for name, value in request.headers.items() if name in ("Retry-After", "Location")}
    return web.Response(status=int(request.headers["X-Status"]), body=await request.read(), headers=response)


@asynccontextmanager
async def between(meddle: Meddle) -> AsyncIterator[aiohttp.ClientSession]:
    """Send an invented response over a real connection: from a server that repeats what it is given."""
    parrot = web.Application()
    parrot.router.add_post("/", _tell)
    async with TestServer(parrot) as server, aiohttp.ClientSession() as asking:

        async def meddling(request: aiohttp.ClientRequest, send: Send) -> aiohttp.ClientResponse:
            response = await meddle(request, send)
            if isinstance(response, Reply):
                body = (
                    response.body.encode()
                    if isinstance(response.body, str)
                    else msgspec.json.encode(response.body)
                )
                headers = {"X-Status": str(response.status), **response.headers}
                return await asking.post(server.make_url("/"), data=body, headers=headers, allow_redirects=False)
            return response

        async with aiohttp.ClientSession(middlewares=[meddling]) as http:
            yield http


@asynccontextmanager
async def answering(
    *answers: Reply | Exception,
) -> AsyncIterator[tuple[aiohttp.ClientSession, list[str]]]:
    """Answer with these in turn, the last one repeatedly; also yield the requests."""
    asked: list[str] = []
    left = list(answers)

    async def meddle(request: aiohttp.ClientRequest, send: Send) -> Reply:
        asked.append(f"{request.method} {request.url.host}{request.url.path}")
        one = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(one, Exception):
            raise one
        return one

    async with between(meddle) as http:
        yield http, asked
