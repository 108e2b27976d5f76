"""Routes for pages: from the shelf, or from their origin."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from newsstand.broker.desk import Desk
from newsstand.broker.shelf import TooLarge
from newsstand.serving.page import PAGE_RESPONSES, Whole, page_answer
from newsstand.serving.refusals import Refused, not_now, problems

_PASSED_ON = ("content-type", "content-length", "content-range", "accept-ranges", "etag", "cache-control")
PIECE = 256 * 1024
_ASKED = ("range", "if-range", "if-none-match")


def page_routes(desk: Desk) -> APIRouter:
    """`/pages/{page}`."""
    routes = APIRouter(tags=["pages"])

    async def page(request: Request, page: str) -> Response:
        """A page, or a part of it (`Range`). It never changes, so it can be kept for ever."""
        await desk.member(request)
        begun = time.monotonic()
        try:
            content, hit = await desk.edge.shelf.get(page)
        except TooLarge:
            return await _passed_on(desk, request, page)
        desk.edge.page_read(page, len(content.data), hit, time.monotonic() - begun)
        whole = Whole(page, len(content.data), content.type)
        return page_answer(
            request, whole, lambda start, end: content.data[start:end], {"X-Cache": "hit" if hit else "miss"}
        )

    responses = {**PAGE_RESPONSES, **problems(401, 404, 416, 503)}
    routes.get("/pages/{page}", response_class=Response, responses=responses)(page)
    routes.head("/pages/{page}", include_in_schema=False)(page)
    return routes


async def _passed_on(desk: Desk, request: Request, page: str) -> Response:
    """A page that is too large for memory, piece by piece from its origin to the reader."""
    asked = {name: request.headers[name] for name in _ASKED if name in request.headers}
    stack = AsyncExitStack()
    origin = await stack.enter_async_context(desk.edge.upstream.page(page, asked))
    if origin.status_code not in (200, 206, 304, 416):
        await stack.aclose()
        raise not_now(f"the origin of the page answers {origin.status_code}")

    async def pieces() -> AsyncIterator[bytes]:
        async with stack:
            async for piece in origin.aiter_bytes(PIECE):
                yield piece

    if origin.status_code == 416:
        await stack.aclose()
        raise Refused(416, "the range lies outside of the page")
    headers = {name: origin.headers[name] for name in _PASSED_ON if name in origin.headers}
    headers |= {"X-Cache": "miss", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
    return StreamingResponse(pieces(), origin.status_code, headers)
