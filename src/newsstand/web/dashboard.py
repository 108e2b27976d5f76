"""The dashboard as a web application: one page, its data of each second, and the switch of the policy.

It loads nothing from other hosts and runs no script but its own, by its Content-Security-Policy. It has no tokens:
everyone who reaches it may read it and switch the policy, so it belongs on loopback. Pages of other origins can do
neither, even if their host name resolves to this machine: only configured host names are answered.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from importlib import resources
from mimetypes import guess_type
from typing import Protocol

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from newsstand.http.bodies import Bodies
from newsstand.http.errors import HttpError, decoded, error_handlers, json_response

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
LARGEST_BODY = 1024


class DashboardState(Protocol):
    """What the page shows, and what it can change."""

    def snapshot(self) -> dict[str, object]:
        """Return the present state, as JSON: `docs/how-to/watch-the-demo.md` names the fields."""
        ...

    async def switch(self, policy: str) -> None:
        """Give all brokers this policy for their results, or raise BadInput if there is none of that name."""
        ...


class PolicyChange(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /policy."""

    policy: str


def create_dashboard(state: DashboardState, hosts: Collection[str] = ()) -> Starlette:
    """Return the dashboard, to be served by uvicorn; `hosts` are its names beside addresses and `localhost`."""
    bodies = Bodies()
    files = {file.name: file.read_bytes() for file in resources.files(__package__).joinpath("static").iterdir()}

    async def page(_: Request) -> Response:
        return _file("index.html", files["index.html"])

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            raise HttpError(404, "there is no such file")
        return _file(name, files[name])

    async def shown(_: Request) -> Response:
        return json_response(state.snapshot(), headers={"Cache-Control": "no-store"})

    async def switch(request: Request) -> Response:
        _must_come_from_the_page(request)
        async with bodies.read(request, LARGEST_BODY) as body:
            wanted = decoded(body, PolicyChange).policy
        await state.switch(wanted)
        return json_response({"policy": wanted}, headers={"Cache-Control": "no-store"})

    return Starlette(
        routes=[
            Route("/", page),
            Route("/static/{name}", static),
            Route("/state.json", shown),
            Route("/policy", switch, methods=["POST"]),
        ],
        middleware=[Middleware(OwnPage, hosts=frozenset(name.lower() for name in hosts))],
        exception_handlers=error_handlers(),
    )


class OwnPage:
    """ASGI middleware: rejects unknown host names, and adds headers that isolate the page."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        name = _name_in(Request(scope).headers.get("host", ""))
        if name == "localhost" or name in self._hosts or _is_address(name):
            await self._app(scope, receive, guarded)
        else:
            wrong = json_response({"error": f"this is not '{name}'; ask by address or as localhost"}, 421)
            await wrong(scope, receive, guarded)


def _must_come_from_the_page(request: Request) -> None:
    """Reject a POST that a browser sends from a page of another origin."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers["host"]:
        raise HttpError(403, f"a page of {origin} may not switch the policy")
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise HttpError(415, f"Content-Type '{content_type}' is not supported: send application/json")


def _name_in(host: str) -> str:
    """Return a Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _file(name: str, content: bytes) -> Response:
    kind = guess_type(name)[0] or "application/octet-stream"
    return Response(content, headers={"Cache-Control": "no-cache"}, media_type=kind)
