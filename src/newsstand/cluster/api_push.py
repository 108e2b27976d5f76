"""Push-caching over HTTP: where the demand for a page is, redirects to brokers with a copy, and who they are."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Header, Request, Response

from newsstand.cluster.api_brokers import require_url
from newsstand.cluster.api_desk import TOKEN, Desk
from newsstand.cluster.api_shapes import AnnouncedShape, RedirectShape, raw_body
from newsstand.cluster.origin import Demand
from newsstand.cluster.page_origin import SentTo
from newsstand.cluster.push_caches import KnownCache
from newsstand.model import is_broker_name
from newsstand.planning.places import Place
from newsstand.serving.described import schema_of
from newsstand.serving.near import INVALID_AT, NEAR, NODE, near_of
from newsstand.serving.near import REDIRECT as REDIRECTED_TO
from newsstand.serving.refusals import BODY, Refused, Responses, answer, decoded, problems

MOST_ANNOUNCED_BYTES = 4 * 2**20
MOST_ANNOUNCED = 10_000

REDIRECT: Responses = {307: {"model": RedirectShape, "description": "A broker has a copy, at `Location`."}}
"""The answer to a request for a page that is sent elsewhere, for /openapi.json."""


class Announcement(msgspec.Struct, forbid_unknown_fields=True):
    """A broker that keeps copies: where it is reached, where pushes are posted to, where it is, what it has."""

    url: str
    push: str
    pages: Annotated[list[str], msgspec.Meta(max_length=MOST_ANNOUNCED)]
    lat: Annotated[float, msgspec.Meta(ge=-90, le=90)] | None = None
    lon: Annotated[float, msgspec.Meta(ge=-180, le=180)] | None = None
    node: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] | None = None


async def demand_of(
    near: Annotated[str | None, Header(alias=NEAR, description="where the demand is: latitude, longitude")] = None,
    node: Annotated[str | None, Header(alias=NODE, description="where the demand is in the network")] = None,
    invalid_at: Annotated[
        str | None, Header(alias=INVALID_AT, description="the broker that was asked in vain")
    ] = None,
) -> Demand | None:
    """Who wants a page, as the headers tell; None if they do not tell where that is."""
    if invalid_at is not None and not is_broker_name(invalid_at):
        raise Refused(422, f"header {INVALID_AT}: must be the name of a broker")
    told = {name: value for name, value in ((NEAR, near), (NODE, node)) if value is not None}
    place = near_of(told)
    return None if place is None else Demand(Place(*place), invalid_at)


Wanted = Annotated[Demand | None, Depends(demand_of)]


def redirect_answer(path: str, found: SentTo) -> Response:
    """The answer that sends a request to a broker."""
    cache = found.cache
    headers = {
        "Location": f"{cache.url.rstrip('/')}/copies/{path}",
        REDIRECTED_TO: cache.name,
        "Cache-Control": "no-store",
    }
    return answer({"server": cache.name, "url": cache.url, "pages": found.pages}, 307, headers)


def counted(desk: Desk, demand: Demand | None, response: Response) -> Response:
    """An answer to demand, once the bytes of the page in it have been counted."""
    size = response.headers.get("content-length", "0") if response.status_code in (200, 206) else "0"
    desk.cluster.origin.answered(demand, int(size))
    return response


def push_cache_routes(desk: Desk) -> APIRouter:
    """`/brokers/{broker}/push-cache`."""
    router = APIRouter(tags=["brokers"])
    path = "/brokers/{broker}/push-cache"

    @router.put(
        path,
        responses={200: {"model": AnnouncedShape}, **problems(*TOKEN, *BODY, 404)},
        openapi_extra=raw_body(json=schema_of(Announcement)),
    )
    async def announce(request: Request, broker: str) -> Response:
        """A broker keeps copies of pages: those that it names and no others. It holds for a while: repeat it."""
        desk.admit(request, ("broker", broker))
        async with desk.body(request, MOST_ANNOUNCED_BYTES) as body:
            told = decoded(body, Announcement)
        require_url("url", told.url, "http://127.0.0.1:8790")
        require_url("push", told.push, "http://127.0.0.1:8790/pushed")
        if "?" in told.url:
            raise Refused(422, "url: must not have a query")
        if (told.lat is None) != (told.lon is None):
            raise Refused(422, "lat and lon: give both or neither")
        cache = KnownCache(broker, told.url, told.push, Place(told.lat, told.lon, told.node))
        return answer(await desk.ask(desk.looking, desk.cluster.origin.announce, cache, told.pages))

    @router.delete(path, response_model=dict[str, object], responses=problems(*TOKEN, 404))
    async def withdraw(request: Request, broker: str) -> Response:
        """A broker keeps no copies any more: nobody is sent there."""
        desk.admit(request, ("broker", broker))
        await desk.ask(desk.looking, desk.cluster.origin.withdraw, broker)
        return answer({"dropped": broker})

    return router
