"""Routes of pages, fixed ones and named ones; requests with a location may be redirected to push-caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from newsstand.cluster.api.context import ANY, ClusterContext
from newsstand.cluster.pages.origin import Demand
from newsstand.cluster.pages.redirector import CacheRedirect
from newsstand.cluster.pages.store import NamedPageInfo
from newsstand.geo.location import Location
from newsstand.http.app import Routes
from newsstand.http.errors import json_response
from newsstand.http.openapi import BINARY, JSON, USUAL, DeclaredResponse, FromHeaders, Limit
from newsstand.http.pages import (
    INVALID_AT,
    MODIFIED,
    NEAR,
    NODE,
    PAGE_ANSWERS,
    REDIRECT,
    ClientLocation,
    Whole,
    invalid_at_of,
    page_answer,
)
from newsstand.model import LONGEST_PAGE_NAME, PageMetadata

BLOCK_BYTES = 256 * 1024


class RedirectResponse(msgspec.Struct):
    """The push-cache to which a request is redirected."""

    server: Annotated[str, Meta(description="the broker")]
    url: str
    pages: Annotated[tuple[str, ...], Meta(description="paths of pages that it has, including the requested one")]


class PutPageResponse(NamedPageInfo, frozen=True):
    """A named page that was put."""

    changed: Annotated[bool, Meta(description="false if it had this content and type before")]


class NamedPageList(msgspec.Struct):
    """Named pages; `next` is the `after` of the next page of the list, null at the end."""

    pages: list[NamedPageInfo]
    next: str | None


def demand_of(headers: Mapping[str, str]) -> Demand | None:
    """Return the location of the demand for a page from the headers of a request; None without one."""
    invalid_at = invalid_at_of(headers)
    location = ClientLocation.read(headers)
    return None if location is None else Demand(Location(*location), invalid_at)


DemandHeaders = Annotated[
    Demand | None,
    FromHeaders(
        demand_of,
        {
            NEAR: "location of the demand: latitude, longitude",
            NODE: "location of the demand in the network",
            INVALID_AT: "the broker that did not have the page",
        },
    ),
]


def page_routes(context: ClusterContext) -> Routes:
    """Return the routes under `/pages`."""
    routes = Routes("pages")
    origin, pages = context.cluster.origin, context.cluster.pages
    answers = {**PAGE_ANSWERS, 307: DeclaredResponse("A broker or another server has it, at `Location`.")}

    @routes.get("/pages/{page}", head=True, answers=answers, errors=(403, 404, 416, 422, 503))
    async def page(request: Request, page: str, demand: DemandHeaders) -> Response:
        """Return a page, or a part of it (`Range`). It never changes and can be cached without a time limit."""
        context.admit(request, ("broker", ANY), ("read", None))
        is_head = request.method == "HEAD"

        def find() -> tuple[PageMetadata, CacheRedirect | None]:
            stored = pages.get(page)
            is_here = stored.url is None and not is_head
            return stored, origin.redirect(f"pages/{page}", demand) if is_here else None

        stored, redirect = await context.run(find)
        if stored.url is not None:
            return Response(status_code=307, headers={"Location": stored.url})
        if redirect is not None:
            return _redirect(f"pages/{page}", redirect)
        content = Whole(stored.id, stored.size, stored.type)
        response = page_answer(request, content, lambda start, end: _read_blocks(pages.file(page), start, end))
        return response if is_head else _counted(context, demand, response)

    return routes


def named_routes(context: ClusterContext) -> Routes:
    """Return the routes under `/named`."""
    routes = Routes("pages")
    path = "/named/{name:path}"
    origin = context.cluster.origin

    @routes.get("/named", response=NamedPageList, errors=(403, 422, 503))
    async def list_named(
        request: Request,
        after: Annotated[str, Meta(max_length=LONGEST_PAGE_NAME)] = "",
        limit: Limit = USUAL,
    ) -> Response:
        """List named pages by name, starting after the name `after`."""
        context.admit(request, ("read", None), ("broker", ANY))
        found = await context.run(origin.named.list, after, limit)
        return json_response(NamedPageList(found, found[-1].name if len(found) == limit else None))

    @routes.put(
        path,
        response=PutPageResponse,
        answers={201: DeclaredResponse("It is new.", {JSON: PutPageResponse})},
        errors=(403, 503, 507),
        body={"application/octet-stream": BINARY},
    )
    async def put_named(request: Request, name: str) -> Response:
        """Store the body as the page of that name, with its `Content-Type`; it is durable when this returns."""
        context.admit(request, ("publish", "*"))
        media_type = request.headers.get("content-type", "application/octet-stream")
        advice = "max_page_bytes of [cluster] sets this limit"
        async with context.bodies.read(request, context.options.max_page_bytes, advice) as body:
            put = await context.run_publish(lambda: origin.named.put(name, body, media_type, origin.now_ms()))
        response = PutPageResponse(**msgspec.structs.asdict(put.page), changed=put.changed)
        return json_response(response, 201 if put.is_new else 200)

    @routes.delete(path, response=dict[str, object], errors=(403, 404, 422, 503, 507))
    async def drop_named(request: Request, name: str) -> Response:
        """Drop the page of that name."""
        context.admit(request, ("publish", "*"))
        await context.run_publish(origin.named.drop, name)
        return json_response({"dropped": name})

    redirected = {307: DeclaredResponse("A broker has a copy, at `Location`.", {JSON: RedirectResponse})}

    @routes.get(path, head=True, answers={**PAGE_ANSWERS, **redirected}, errors=(403, 404, 416, 422, 503))
    async def named(request: Request, name: str, demand: DemandHeaders) -> Response:
        """Return the page of that name, or a part of it (`Range`). It may be replaced at any time."""
        context.admit(request, ("broker", ANY), ("read", None))

        def find() -> CacheRedirect | tuple[NamedPageInfo, bytes]:
            if request.method == "HEAD":
                return origin.named.find(name), b""
            origin.named.find(name)
            return origin.redirect(f"named/{name}", demand) or origin.named.read(name)

        found = await context.run(find)
        if isinstance(found, CacheRedirect):
            return _redirect(f"named/{name}", found)
        page, content = found
        headers = {
            "Cache-Control": "private, no-cache",
            "Last-Modified": formatdate(page.modified_ms // 1000, usegmt=True),
            MODIFIED: str(page.modified_ms),
        }
        described = Whole(page.id, page.size, page.type)
        response = page_answer(request, described, lambda start, end: content[start:end], headers)
        return response if request.method == "HEAD" else _counted(context, demand, response)

    return routes


def _redirect(path: str, redirect: CacheRedirect) -> Response:
    """Return the response that redirects a request to a push-cache."""
    cache = redirect.cache
    headers = {
        "Location": f"{cache.url.rstrip('/')}/copies/{path}",
        REDIRECT: cache.name,
        "Cache-Control": "no-store",
    }
    return json_response(RedirectResponse(cache.name, cache.url, redirect.pages), 307, headers)


def _counted(context: ClusterContext, demand: Demand | None, response: Response) -> Response:
    """Count the bytes of the page in a response to demand; return the response."""
    if demand is not None:
        size = response.headers.get("content-length", "0") if response.status_code in (200, 206) else "0"
        context.cluster.origin.count_response(int(size))
    return response


def _read_blocks(path: Path, start: int, end: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        file.seek(start)
        while start < end and (block := file.read(min(BLOCK_BYTES, end - start))):
            start += len(block)
            yield block
