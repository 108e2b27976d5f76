"""Routes for pages: for subscribers, and for clients that other brokers redirect here."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from newsstand.broker.api.context import BrokerContext
from newsstand.broker.pages.content import PageContent, PageTooLarge, is_fixed
from newsstand.broker.pages.resolver import NotModified, PageRequest, RedirectTo, ResolvedPage
from newsstand.geo.location import Location
from newsstand.http.app import Routes
from newsstand.http.errors import HttpError, service_unavailable, unauthorized
from newsstand.http.openapi import Declaration, DeclaredResponse
from newsstand.http.pages import (
    MODIFIED,
    PAGE_ANSWERS,
    REDIRECT,
    REDIRECTS,
    ClientLocation,
    Whole,
    invalid_at_of,
    page_answer,
)
from newsstand.model import is_page_path

_FORWARDED = (
    "content-type",
    "content-length",
    "content-range",
    "accept-ranges",
    "etag",
    "cache-control",
    "last-modified",
    MODIFIED.lower(),
)
_CONDITIONS = ("range", "if-range", "if-none-match")
_ELSEWHERE = {307: DeclaredResponse("Another broker has it, at `Location`.")}


def page_routes(context: BrokerContext) -> Routes:
    """Return the routes of `/pages/{page}` and `/named/{name}`."""
    routes = Routes("pages")

    async def page(request: Request, page: str) -> Response:
        """Return a page or a part of it (`Range`); a page never changes."""
        await context.subscriber(request)
        return await _page(context, request, f"pages/{page}")

    async def named(request: Request, name: str) -> Response:
        """Return the page that the origin has under a name; its content may change, and its `ETag` with it."""
        await context.unrestricted_subscriber(request)
        return await _page(context, request, f"named/{name}")

    declared: Declaration = {
        "head": True,
        "answers": {**PAGE_ANSWERS, **_ELSEWHERE},
        "errors": (401, 404, 416, 422, 503),
    }
    routes.get("/pages/{page}", **declared)(page)
    routes.get("/named/{name:path}", **declared)(named)
    return routes


def copy_routes(context: BrokerContext) -> Routes:
    """Return the routes of `/copies/{path}`."""
    routes = Routes("copies", secured=False)

    @routes.get("/copies/{path:path}", head=True, answers=PAGE_ANSWERS, errors=(401, 404, 416, 422))
    async def copy(request: Request, path: str, signature: str = "") -> Response:
        """Return a cached page to a client that another broker redirects here with a signed URL."""
        if not context.pages.signed_urls.verify(signature, path, time.time()):
            raise unauthorized("the signature is missing, not for this page, or expired")
        served = await context.pages.here(path)
        if served is None:
            raise HttpError(404, f"invalid: the page is not cached any more: {path}")
        return _complete_page(request, path, served)

    return routes


async def _page(context: BrokerContext, request: Request, path: str) -> Response:
    if not is_page_path(path):  # nothing else becomes part of a URL of the cluster
        raise HttpError(404, f"there is no page '{path.partition('/')[2]}'")
    begun = time.monotonic()
    try:
        served = await context.pages.get(path, _page_request(context, request))
    except PageTooLarge:
        return await _stream(context, request, path, begun)
    except NotModified:
        return _unchanged(request)
    if isinstance(served, RedirectTo):
        headers = {REDIRECT: served.peer.server, "Location": served.location, "Cache-Control": "no-store"}
        return Response(status_code=307, headers=headers)
    if is_fixed(path):
        here = served.by == context.pages.name
        context.results.on_page_read(
            path[len("pages/") :], len(served.content.data), here, time.monotonic() - begun
        )
    return _complete_page(request, path, served)


def _page_request(context: BrokerContext, request: Request) -> PageRequest:
    """Return who requests a page, and from where; without location headers it is this broker's location."""
    near, settings = ClientLocation.read(request.headers), context.settings
    here = Location(settings.lat, settings.lon, settings.node)
    place = here if near is None else Location(*near).about()
    follows = request.headers.get(REDIRECTS, "").lower() == "yes" and request.method == "GET"
    invalid_at = invalid_at_of(request.headers)
    tag = re.fullmatch(r'(?:W/)?"([0-9a-f]{32})"', request.headers.get("if-none-match", ""))
    return PageRequest(
        place, follows, invalid_at, "" if tag is None else tag[1], is_demand=request.method == "GET"
    )


def _complete_page(request: Request, path: str, served: ResolvedPage) -> Response:
    content = served.content
    more = {"X-Cache": served.source, "X-Served-By": served.by}
    if is_fixed(path):
        whole = Whole(path[len("pages/") :], len(content.data), content.type)
    else:
        whole = Whole(content.version, len(content.data), content.type)
        more |= {"Cache-Control": "private, no-cache", **_dated(content)}
    return page_answer(request, whole, lambda start, end: content.data[start:end], more)


def _unchanged(request: Request) -> Response:
    headers = {"ETag": request.headers["if-none-match"], "Cache-Control": "private, no-cache"}
    return Response(status_code=304, headers={**headers, "X-Cache": "miss", "X-Served-By": "origin"})


def _dated(content: PageContent) -> dict[str, str]:
    return {MODIFIED: str(content.modified_ms)} if content.modified_ms else {}


async def _stream(context: BrokerContext, request: Request, path: str, begun: float) -> Response:
    """Stream a page that is too large for memory from its origin to the client."""
    conditions = _CONDITIONS if request.method == "GET" else ("if-none-match",)
    conditional = {name: request.headers[name] for name in conditions if name in request.headers}
    stack = AsyncExitStack()
    origin = await stack.enter_async_context(context.pages.at_origin(path, conditional, streamed=True))
    if origin.status not in (200, 206, 304, 416):
        await stack.aclose()
        raise service_unavailable(f"the origin of the page responds {origin.status}")

    async def chunks() -> AsyncIterator[bytes]:
        async with stack:
            async for chunk in origin.chunks:
                yield chunk

    size = _size_of(origin.headers)
    if size is not None and is_fixed(path):
        context.results.on_page_read(path[len("pages/") :], size, False, time.monotonic() - begun)
    if origin.status == 416:
        await stack.aclose()
        raise HttpError(416, "the range lies outside of the page", {"Content-Range": f"bytes */{size}"})
    headers = {name: origin.headers[name] for name in _FORWARDED if name in origin.headers}
    headers = {name: value for name, value in headers.items() if value.isascii()}  # other values cannot be sent
    headers |= {"X-Cache": "miss", "X-Served-By": "origin"}
    headers |= {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
    if request.method == "HEAD":
        await stack.aclose()
        return Response(status_code=origin.status, headers=headers)
    return StreamingResponse(chunks(), origin.status, headers)


def _size_of(headers: Mapping[str, str]) -> int | None:
    """Return the size of a complete page, from the headers of a response with it or with a part of it."""
    size = headers.get("content-range", "").rpartition("/")[2] or headers.get("content-length", "")
    return int(size) if size.isdecimal() else None
