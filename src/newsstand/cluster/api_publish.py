"""Routes of publishers and readers: publications, their traces, results, pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path as File
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response

from newsstand.cluster.api_desk import ANY, TOKEN, Desk, form_of
from newsstand.cluster.api_push import Wanted, counted, redirect_answer
from newsstand.cluster.api_shapes import GoneProblem, ReceiptShape, ResultsShape, SlicesShape, raw_body
from newsstand.cluster.facade import Facts
from newsstand.cluster.notification import result_facts, suspended_facts
from newsstand.cluster.page_origin import SentTo
from newsstand.cluster.pages import StoredPage
from newsstand.cluster.reading import Asked
from newsstand.errors import NotFound
from newsstand.serving.described import schema_of
from newsstand.serving.page import PAGE_RESPONSES, Whole, page_answer
from newsstand.serving.refusals import BODY, Refused, Responses, answer, decoded, problems

BLOCK = 256 * 1024
MOST_RESULTS = 10_000
Number = Annotated[int, Path(ge=1, le=2**63 - 1)]
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def publish_routes(desk: Desk) -> APIRouter:
    """`/datasets/{dataset}/publications` and what one can ask about one of them."""
    router = APIRouter(tags=["publications"])
    record: dict[str, object] = {"type": "object"}

    @router.post(
        "/datasets/{dataset}/publications",
        responses={
            200: {"model": ReceiptShape},
            422: {"model": ReceiptShape, "description": "Every record was refused."},
            **problems(*TOKEN, 404, 400, 408, 413, 415, 429, 507),
        },
        openapi_extra=raw_body(
            json={"anyOf": [record, {"type": "array", "items": record}]}, ndjson="one JSON object a line"
        ),
    )
    async def publish(
        request: Request, dataset: str, idempotency_key: Annotated[str | None, Header()] = None
    ) -> Response:
        """Add records to a dataset: one JSON object, an array of them, or NDJSON; durable when answered."""
        holder = desk.admit(request, ("publish", dataset))
        form = form_of(request)
        if idempotency_key is not None and _KEY.fullmatch(idempotency_key) is None:
            raise Refused(400, "Idempotency-Key: must be 1 to 255 printable ASCII characters without spaces")
        desk.cluster.dataset(dataset)  # before a large body is read for nothing
        async with desk.body(request, desk.options.max_body_bytes) as body:
            receipt = await desk.ask(
                desk.publishing, desk.cluster.publish, dataset, body, form, idempotency_key, holder.name
            )
        told: Facts = {
            "accepted": receipt.accepted,
            "first": receipt.first,
            "last": receipt.last,
            "refused": [{"index": one.index, "reason": one.reason} for one in receipt.refused],
            "repeated": receipt.repeated,
        }
        if receipt.refused and not receipt.accepted:
            first = receipt.refused[0]
            told["error"] = (
                f"all {len(receipt.refused)} records were refused; record {first.index}: {first.reason}"
            )
            return answer(told, 422)
        return answer(told)

    @router.get(
        "/datasets/{dataset}/publications/{seq}/trace",
        response_model=dict[str, object],
        responses=problems(*TOKEN, 404, 422),
    )
    async def trace(request: Request, dataset: str, seq: Number) -> Response:
        """What became of a publication: when accepted, where evaluated, whom it reached, when they were told."""
        desk.admit(request, ("read", None))
        return answer(await desk.ask(desk.looking, desk.cluster.trace, dataset, seq))

    return router


def result_routes(desk: Desk) -> APIRouter:
    """`/subscriptions/{subscription}/results`."""
    router = APIRouter(tags=["results"])

    @router.get(
        "/subscriptions/{subscription}/results",
        responses={200: {"model": ResultsShape}, 410: {"model": GoneProblem}, **problems(*TOKEN, 404, 422)},
    )
    async def results(
        request: Request,
        subscription: str,
        after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
        until: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_RESULTS)] = 1000,
    ) -> Response:
        """Results with after < position <= until, oldest first, at most `limit`."""
        holder = desk.admit(request, ("broker", ANY))

        def read() -> Response:
            # To who may not see it, a subscription does not exist.
            if not holder.may("broker", desk.cluster.subscription(subscription).broker):
                raise NotFound(f"no subscription '{subscription}'")
            found = desk.cluster.results(subscription, after, until, limit)
            earliest, head = desk.cluster.extent(subscription)
            return answer({"results": [result_facts(one) for one in found], "head": head, "earliest": earliest})

        return await desk.ask(desk.looking, read)

    @router.post(
        "/brokers/{broker}/results",
        responses={200: {"model": SlicesShape}, **problems(*TOKEN, *BODY, 404)},
        openapi_extra=raw_body(json={"type": "array", "items": schema_of(Asked)}),
    )
    async def read_all(request: Request, broker: str) -> Response:
        """The next results of many subscriptions of a broker's, or with a limit of 0 only where they stand."""
        desk.admit(request, ("broker", broker))
        async with desk.body(request, desk.options.max_subscriptions_body_bytes) as body:
            asked = decoded(body, list[Asked])

        def read() -> Response:
            slices = [
                {
                    "subscription": one.subscription,
                    "results": [result_facts(result) for result in one.results],
                    "head": one.head,
                    "earliest": one.earliest,
                    **({"suspended": suspended_facts(one.suspended)} if one.suspended else {}),
                }
                for one in desk.cluster.read_all(broker, asked)
            ]
            return answer({"streams": slices})

        return await desk.ask(desk.looking, read)

    return router


def page_routes(desk: Desk) -> APIRouter:
    """`/pages/{page}`."""
    router = APIRouter(tags=["pages"])

    async def page(request: Request, page: str, demand: Wanted) -> Response:
        """A page, or a part of it (`Range`). It never changes, so it can be kept for ever."""
        desk.admit(request, ("broker", ANY), ("read", None))
        is_head = request.method == "HEAD"

        def look() -> tuple[StoredPage, SentTo | None]:
            stored = desk.cluster.page(page)
            here = stored.url is None and not is_head
            return stored, desk.cluster.origin.asked(f"pages/{page}", demand) if here else None

        stored, redirected = await desk.ask(desk.looking, look)
        if stored.url is not None:
            return Response(status_code=307, headers={"Location": stored.url})
        if stored.path is None:
            raise NotFound(f"no page '{page}'")
        if redirected is not None:
            return redirect_answer(f"pages/{page}", redirected)
        path = stored.path
        whole = Whole(stored.id, stored.size, stored.type)
        response = page_answer(request, whole, lambda start, end: _blocks(path, start, end))
        return response if is_head else counted(desk, demand, response)

    elsewhere: Responses = {307: {"description": "A broker has a copy, or its origin keeps it, at `Location`."}}
    responses = {**PAGE_RESPONSES, **elsewhere, **problems(*TOKEN, 404, 416, 422)}
    router.get("/pages/{page}", response_class=Response, responses=responses)(page)
    router.head("/pages/{page}", include_in_schema=False)(page)
    return router


def _blocks(path: File, start: int, end: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        file.seek(start)
        while start < end and (block := file.read(min(BLOCK, end - start))):
            start += len(block)
            yield block
