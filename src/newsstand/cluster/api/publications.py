"""Routes of publishers and of readers of results."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from newsstand.cluster.api.context import ANY, ClusterContext, record_format
from newsstand.errors import NotFound
from newsstand.http.app import Routes
from newsstand.http.errors import HttpError, json_response
from newsstand.http.openapi import JSON, NDJSON, REMOVED, DeclaredResponse, Header
from newsstand.model import JsonObject
from newsstand.wire.cluster import MOST_RESULTS, Position, Receipt, StreamPages, StreamRange, StreamResult

LINES = {"type": "string", "description": "one JSON object a line"}
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class RejectedPublication(Receipt, frozen=True, kw_only=True):
    """The outcome of a publication without an accepted record."""

    error: str


class ResultsResponse(msgspec.Struct):
    """Results of a stream, and the positions of its newest and its earliest remaining result."""

    results: list[StreamResult]
    head: int
    earliest: int


def publish_routes(context: ClusterContext) -> Routes:
    """Return the routes under `/datasets/{dataset}/publications`."""
    routes = Routes("publications")
    publications = context.cluster.publications

    @routes.post(
        "/datasets/{dataset}/publications",
        response=Receipt,
        answers={422: DeclaredResponse("Every record is rejected.", {JSON: RejectedPublication})},
        errors=(403, 404, 503, 507),
        body={JSON: JsonObject | list[JsonObject], NDJSON: LINES},
    )
    async def publish(
        request: Request, dataset: str, idempotency_key: Annotated[str | None, Header("Idempotency-Key")] = None
    ) -> Response:
        """Add records to a dataset: one JSON object, an array, or NDJSON; they are durable when this returns."""
        received = context.cluster.metrics.stages.now()
        holder = context.admit(request, ("publish", dataset))
        format = record_format(request)
        if idempotency_key is not None and _KEY.fullmatch(idempotency_key) is None:
            raise HttpError(400, "Idempotency-Key: must be 1 to 255 printable ASCII characters without spaces")
        context.cluster.catalog.dataset(dataset)  # before a large body is read for nothing
        async with context.bodies.read(request, context.options.max_body_bytes) as body:
            receipt = await context.run_publish(
                publications.publish, dataset, body, format, idempotency_key, holder.name, received
            )
        if receipt.accepted or not receipt.rejected:
            return json_response(receipt)
        first = receipt.rejected[0]
        error = f"all {len(receipt.rejected)} records were rejected; record {first.index}: {first.reason}"
        return json_response(RejectedPublication(**msgspec.structs.asdict(receipt), error=error), 422)

    @routes.get(
        "/datasets/{dataset}/publications/{seq}/trace", response=dict[str, object], errors=(403, 404, 422, 503)
    )
    async def trace(request: Request, dataset: str, seq: Annotated[int, Meta(ge=1, le=2**63 - 1)]) -> Response:
        """Return when each stage of a publication ended, its streams, and what the notified brokers report."""
        context.admit(request, ("read", None))
        async with context.traces:
            audit = await context.run(publications.audit, dataset, seq)
            return json_response(audit.add_reports(await publications.reports.request(audit.asked)))

    return routes


def result_routes(context: ClusterContext) -> Routes:
    """Return the routes of results."""
    routes = Routes("results")
    subscriptions = context.cluster.subscriptions

    @routes.get(
        "/subscriptions/{subscription}/results",
        response=ResultsResponse,
        answers=REMOVED,
        errors=(403, 404, 422, 503),
    )
    async def results(
        request: Request,
        subscription: str,
        after: Position = 0,
        until: Position | None = None,
        limit: Annotated[int, Meta(ge=1, le=MOST_RESULTS)] = 1000,
    ) -> Response:
        """Return results with after < position <= until, oldest first, at most `limit`."""
        holder = context.admit(request, ("broker", ANY))

        def read() -> Response:
            # To a broker that may not read it, a subscription does not exist.
            if not holder.may("broker", subscriptions.get(subscription).broker):
                raise NotFound(f"no subscription '{subscription}'")
            found = subscriptions.read(subscription, after, until, limit)
            earliest, head = subscriptions.extent(subscription)
            return json_response(ResultsResponse(found, head, earliest))

        return await context.run(read)

    @routes.post(
        "/brokers/{broker}/results",
        response=StreamPages[StreamResult],
        errors=(403, 404, 503),
        body=list[StreamRange],
    )
    async def read_all(request: Request, broker: str) -> Response:
        """Return the next results of many subscriptions of a broker; with a limit of 0 only their extents."""
        context.admit(request, ("broker", broker))
        ranges = await context.decode(request, list[StreamRange], context.options.max_subscriptions_body_bytes)
        return await context.run(lambda: json_response(StreamPages(subscriptions.read_many(broker, ranges))))

    return routes
