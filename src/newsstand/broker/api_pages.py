"""Routes for pages: from the shelf, or from their origin."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from newsstand.broker.desk import Desk
from newsstand.broker.shelf import TooLarge
from newsstand.serving.page import PAGE_RESPONSES, Whole, page_answer
from newsstand.serving.refusals import Refused, not_now, problems

_PASSED_ON = ("content-type", "content-length", "content-range", "accept-ranges", "etag", "cache-control")
_ID = re.compile(r"[0-9a-f]{32}")
PIECE = 256 * 1024
_ASKED = ("range", "if-range", "if-none-match")


def page_routes(desk: Desk) -> APIRouter:
    """`/pages/{page}`."""
    routes = APIRouter(tags=["pages"])

    async def page(request: Request, page: str) -> Response:
        """A page, or a part of it (`Range`). It never changes, so it can be kept for ever."""
        await desk.member(request)
        if _ID.fullmatch(page) is None:  # nothing else gets into an address of the cluster's
            raise Refused(404, f"there is no page '{page}'")
        begun = time.monotonic()
        try:
            content, hit = await desk.edge.shelf.get(page)
        except TooLarge:
            return await _passed_on(desk, request, page, begun)
        desk.edge.page_read(page, len(content.data), hit, time.monotonic() - begun)
        whole = Whole(page, len(content.data), content.type)
        return page_answer(
            request, whole, lambda start, end: content.data[start:end], {"X-Cache": "hit" if hit else "miss"}
        )

    responses = {**PAGE_RESPONSES, **problems(401, 404, 416, 503)}
    routes.get("/pages/{page}", response_class=Response, responses=responses)(page)
    routes.head("/pages/{page}", include_in_schema=False)(page)
    return routes


async def _passed_on(desk: Desk, request: Request, page: str, begun: float) -> Response:
    """A page that is too large for memory, piece by piece from its origin to the reader."""
    conditions = _ASKED if request.method == "GET" else ("if-none-match",)
    asked = {name: request.headers[name] for name in conditions if name in request.headers}
    stack = AsyncExitStack()
    origin = await stack.enter_async_context(desk.edge.upstream.page(page, asked))
    if origin.status_code not in (200, 206, 304, 416):
        await stack.aclose()
        raise not_now(f"the origin of the page answers {origin.status_code}")

    async def pieces() -> AsyncIterator[bytes]:
        async with stack:
            async for piece in origin.aiter_bytes(PIECE):
                yield piece

    size = _size_of(origin.headers)
    if size is not None:
        desk.edge.page_read(page, size, False, time.monotonic() - begun)
    if origin.status_code == 416:
        await stack.aclose()
        raise Refused(416, "the range lies outside of the page", {"Content-Range": f"bytes */{size}"})
    headers = {name: origin.headers[name] for name in _PASSED_ON if name in origin.headers}
    headers |= {"X-Cache": "miss", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
    if request.method == "HEAD":
        await stack.aclose()
        return Response(status_code=origin.status_code, headers=headers)
    return StreamingResponse(pieces(), origin.status_code, headers)


def _size_of(headers: Mapping[str, str]) -> int | None:
    """The size of the whole page, by the answer for it or for a part of it."""
    size = headers.get("content-range", "").rpartition("/")[2] or headers.get("content-length", "")
    return int(size) if size.isdecimal() else None
