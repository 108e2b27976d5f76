"""Routes of named pages: put, read, listed and dropped."""

from __future__ import annotations

from email.utils import formatdate
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from newsstand.cluster.api_desk import ANY, TOKEN, Desk
from newsstand.cluster.api_push import REDIRECT, Wanted, counted, redirect_answer
from newsstand.cluster.api_shapes import NamedPagesShape, PutPageShape
from newsstand.cluster.named_pages import NamedPage, Put
from newsstand.cluster.page_origin import SentTo
from newsstand.model import LONGEST_PAGE_NAME
from newsstand.serving.near import MODIFIED
from newsstand.serving.page import PAGE_RESPONSES, Whole, page_answer
from newsstand.serving.paging import USUAL, Limit
from newsstand.serving.refusals import BODY, answer, problems

_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def named_routes(desk: Desk) -> APIRouter:
    """`/named`."""
    router = APIRouter(tags=["pages"])
    path = "/named/{name:path}"

    @router.get("/named", responses={200: {"model": NamedPagesShape}, **problems(*TOKEN, 422)})
    async def list_named(
        request: Request,
        after: Annotated[str, Query(max_length=LONGEST_PAGE_NAME)] = "",
        limit: Limit = USUAL,
    ) -> Response:
        """Named pages in the order of their names, from the one after `after` on."""
        desk.admit(request, ("read", None), ("broker", ANY))
        found = await desk.ask(desk.looking, desk.cluster.origin.named.list, after, limit)
        return answer({"pages": found, "next": found[-1].name if len(found) == limit else None})

    @router.put(
        path,
        responses={
            200: {"model": PutPageShape},
            201: {"model": PutPageShape, "description": "It is new."},
            **problems(*TOKEN, *BODY, 507),
        },
        openapi_extra={"requestBody": {"required": True, "content": _BINARY}},
    )
    async def put_named(request: Request, name: str) -> Response:
        """Store the body as the page of that name, with its `Content-Type`; durable when answered."""
        desk.admit(request, ("publish", "*"))
        type = request.headers.get("content-type", "application/octet-stream")
        advice = "that is all that max_page_bytes of [cluster] allows"
        async with desk.bodies.read(request, desk.options.max_page_bytes, advice) as body:

            def put() -> Put:
                origin = desk.cluster.origin
                return origin.named.put(name, body, type, origin.now_ms())

            done = await desk.ask(desk.publishing, put)
        facts = msgspec.structs.asdict(done.page) | {"changed": done.changed}
        return answer(facts, 201 if done.is_new else 200)

    @router.delete(path, response_model=dict[str, object], responses=problems(*TOKEN, 404, 422, 507))
    async def drop_named(request: Request, name: str) -> Response:
        """Drop the page of that name."""
        desk.admit(request, ("publish", "*"))
        await desk.ask(desk.publishing, desk.cluster.origin.named.drop, name)
        return answer({"dropped": name})

    async def named(request: Request, name: str, demand: Wanted) -> Response:
        """The page of that name, or a part of it (`Range`). It may be replaced at any time."""
        desk.admit(request, ("broker", ANY), ("read", None))
        origin = desk.cluster.origin

        def look() -> SentTo | tuple[NamedPage, bytes]:
            if request.method == "HEAD":
                return origin.named.find(name), b""
            origin.named.find(name)
            return origin.asked(f"named/{name}", demand) or origin.named.read(name)

        found = await desk.ask(desk.looking, look)
        if isinstance(found, SentTo):
            return redirect_answer(f"named/{name}", found)
        page, content = found
        more = {
            "Cache-Control": "private, no-cache",
            "Last-Modified": formatdate(page.modified_ms // 1000, usegmt=True),
            MODIFIED: str(page.modified_ms),
        }
        whole = Whole(page.id, page.size, page.type)
        response = page_answer(request, whole, lambda start, end: content[start:end], more)
        return response if request.method == "HEAD" else counted(desk, demand, response)

    responses = {**PAGE_RESPONSES, **REDIRECT, **problems(*TOKEN, 404, 416, 422)}
    router.get(path, response_class=Response, responses=responses)(named)
    router.head(path, include_in_schema=False)(named)
    return router
