"""Somebody between a client and its brokers, who passes requests on, answers them or breaks the line."""

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
class Told:
    """An answer made up: text as it is, anything else as JSON."""

    status: int
    body: object
    headers: Mapping[str, str] = field(default_factory=dict)


Meddle = Callable[[aiohttp.ClientRequest, Send], Awaitable[aiohttp.ClientResponse | Told]]


async def _tell(request: web.Request) -> web.Response:
    told = {name: value for name, value in request.headers.items() if name in ("Retry-After", "Location")}
    return web.Response(status=int(request.headers["X-Status"]), body=await request.read(), headers=told)


@asynccontextmanager
async def between(meddle: Meddle) -> AsyncIterator[aiohttp.ClientSession]:
    """What is made up comes over a line, too: from a server that says what it is told to."""
    parrot = web.Application()
    parrot.router.add_post("/", _tell)
    async with TestServer(parrot) as server, aiohttp.ClientSession() as asking:

        async def meddling(request: aiohttp.ClientRequest, send: Send) -> aiohttp.ClientResponse:
            told = await meddle(request, send)
            if isinstance(told, Told):
                body = told.body.encode() if isinstance(told.body, str) else msgspec.json.encode(told.body)
                headers = {"X-Status": str(told.status), **told.headers}
                return await asking.post(server.make_url("/"), data=body, headers=headers, allow_redirects=False)
            return told

        async with aiohttp.ClientSession(middlewares=[meddling]) as http:
            yield http


@asynccontextmanager
async def answering(*answers: Told | Exception) -> AsyncIterator[tuple[aiohttp.ClientSession, list[str]]]:
    """These answers one after the other, the last one again and again; and what was asked."""
    asked: list[str] = []
    left = list(answers)

    async def meddle(request: aiohttp.ClientRequest, send: Send) -> Told:
        asked.append(f"{request.method} {request.url.host}{request.url.path}")
        one = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(one, Exception):
            raise one
        return one

    async with between(meddle) as http:
        yield http, asked
