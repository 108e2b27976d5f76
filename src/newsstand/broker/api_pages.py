"""Routes for pages: for subscribers, for those whom other brokers send here, and for the origin that pushes."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from newsstand.broker.api_cluster import admitted, forged
from newsstand.broker.copies import read_pushed
from newsstand.broker.desk import Desk
from newsstand.broker.page_content import Content, TooLarge, is_fixed
from newsstand.broker.pages import Asker, SentTo, Served, Unchanged
from newsstand.model import is_broker_name, is_page_path
from newsstand.planning.places import Place
from newsstand.serving.near import INVALID_AT, MODIFIED, REDIRECT, REDIRECTS, near_of
from newsstand.serving.page import PAGE_RESPONSES, Whole, page_answer
from newsstand.serving.refusals import BODY, Refused, Responses, answer, not_now, problems, unauthorized
from newsstand.signing import BadSignature

_PASSED_ON = (
    "content-type",
    "content-length",
    "content-range",
    "accept-ranges",
    "etag",
    "cache-control",
    "last-modified",
    MODIFIED.lower(),
)
PIECE = 256 * 1024
PUSHED_BODY = 4 * 1024 * 1024
_ASKED = ("range", "if-range", "if-none-match")
_ELSEWHERE: Responses = {307: {"description": "Another broker has it, at `Location`."}}


def page_routes(desk: Desk) -> APIRouter:
    """`/pages/{page}` and `/named/{name}`."""
    routes = APIRouter(tags=["pages"])

    async def page(request: Request, page: str) -> Response:
        """A page, or a part of it (`Range`). It never changes, so it can be kept for ever."""
        await desk.member(request)
        return await _page(desk, request, f"pages/{page}")

    async def named(request: Request, name: str) -> Response:
        """The page that the origin has under a name; what it is may change, and `ETag` with it."""
        await desk.free_member(request)
        return await _page(desk, request, f"named/{name}")

    responses = {**PAGE_RESPONSES, **_ELSEWHERE, **problems(401, 404, 416, 422, 503)}
    for path, function in (("/pages/{page}", page), ("/named/{name:path}", named)):
        routes.get(path, response_class=Response, responses=responses)(function)
        routes.head(path, include_in_schema=False)(function)
    return routes


def copy_routes(desk: Desk) -> APIRouter:
    """`/copies/{path}` and `/pushed`."""
    routes = APIRouter(tags=["copies"])

    async def copy(request: Request, path: str, ticket: str = "") -> Response:
        """A page that this broker has, for whom another broker has sent here with a ticket."""
        if not desk.pages.tickets.admits(ticket, path, time.time()):
            raise unauthorized("the ticket is missing, not for this page, or too old")
        served = await desk.pages.here(path)
        if served is None:
            raise Refused(404, f"invalid: the page is not here any more: {path}")
        return _whole(request, path, served)

    responses = {**PAGE_RESPONSES, **problems(401, 404, 416, 422)}
    routes.get("/copies/{path:path}", response_class=Response, responses=responses)(copy)
    routes.head("/copies/{path:path}", include_in_schema=False)(copy)

    @routes.post("/pushed", response_model=dict[str, list[str]], responses=problems(401, *BODY))
    async def pushed(request: Request) -> Response:
        """Pages that the origin pushes, signed: which of them are here now, and which others have left."""
        try:
            head = admitted(desk, request, "origin")
            desk.webhook.require_new("origin", head)
            async with desk.bodies.read(request, PUSHED_BODY) as body:
                head.check(body)
                desk.webhook.require_new("origin", head)
                desk.webhook.acted_on("origin", head)
                offered = read_pushed(body)
        except BadSignature as error:
            raise forged(error) from None
        kept = await desk.pages.copies.pushed(offered.pages)
        return answer({"kept": kept.kept, "left": kept.left})

    return routes


async def _page(desk: Desk, request: Request, path: str) -> Response:
    if not is_page_path(path):  # nothing else gets into an address of the cluster's
        raise Refused(404, f"there is no page '{path.partition('/')[2]}'")
    begun = time.monotonic()
    try:
        served = await desk.pages.get(path, _asker(desk, request))
    except TooLarge:
        return await _passed_on(desk, request, path, begun)
    except Unchanged:
        return _unchanged(request)
    if isinstance(served, SentTo):
        headers = {REDIRECT: served.peer.server, "Location": served.location, "Cache-Control": "no-store"}
        return Response(status_code=307, headers=headers)
    if is_fixed(path):
        here = served.by == desk.pages.name
        desk.edge.page_read(path[len("pages/") :], len(served.content.data), here, time.monotonic() - begun)
    return _whole(request, path, served)


def _asker(desk: Desk, request: Request) -> Asker:
    """Who wants a page; one that does not say where it is is taken to be where this broker is."""
    near, settings = near_of(request.headers), desk.settings
    here = Place(settings.lat, settings.lon, settings.node)
    place = here if near is None else Place(*near).about()
    goes = request.headers.get(REDIRECTS, "").lower() == "yes" and request.method == "GET"
    invalid_at = request.headers.get(INVALID_AT)
    if invalid_at is not None and not is_broker_name(invalid_at):
        raise Refused(422, f"header {INVALID_AT}: must be the name of a broker")
    has = re.fullmatch(r'(?:W/)?"([0-9a-f]{32})"', request.headers.get("if-none-match", ""))
    return Asker(place, goes, invalid_at, "" if has is None else has[1], wants=request.method == "GET")


def _whole(request: Request, path: str, served: Served) -> Response:
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


def _dated(content: Content) -> dict[str, str]:
    return {MODIFIED: str(content.modified_ms)} if content.modified_ms else {}


async def _passed_on(desk: Desk, request: Request, path: str, begun: float) -> Response:
    """A page that is too large for memory, piece by piece from its origin to the reader."""
    conditions = _ASKED if request.method == "GET" else ("if-none-match",)
    asked = {name: request.headers[name] for name in conditions if name in request.headers}
    stack = AsyncExitStack()
    origin = await stack.enter_async_context(desk.pages.at_origin(path, asked, streamed=True))
    if origin.status_code not in (200, 206, 304, 416):
        await stack.aclose()
        raise not_now(f"the origin of the page answers {origin.status_code}")

    async def pieces() -> AsyncIterator[bytes]:
        async with stack:
            async for piece in origin.aiter_bytes(PIECE):
                yield piece

    size = _size_of(origin.headers)
    if size is not None and is_fixed(path):
        desk.edge.page_read(path[len("pages/") :], size, False, time.monotonic() - begun)
    if origin.status_code == 416:
        await stack.aclose()
        raise Refused(416, "the range lies outside of the page", {"Content-Range": f"bytes */{size}"})
    headers = {name: origin.headers[name] for name in _PASSED_ON if name in origin.headers}
    headers |= {"X-Cache": "miss", "X-Served-By": "origin"}
    headers |= {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
    if request.method == "HEAD":
        await stack.aclose()
        return Response(status_code=origin.status_code, headers=headers)
    return StreamingResponse(pieces(), origin.status_code, headers)


def _size_of(headers: Mapping[str, str]) -> int | None:
    """The size of the whole page, by the answer for it or for a part of it."""
    size = headers.get("content-range", "").rpartition("/")[2] or headers.get("content-length", "")
    return int(size) if size.isdecimal() else None
