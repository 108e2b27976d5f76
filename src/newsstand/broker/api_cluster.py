"""Routes for the data cluster and for who runs the platform: webhook, statistics, policy, health."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request, Response

from newsstand.broker.api_shapes import PolicyShape
from newsstand.broker.desk import TOLD_BODY, Desk
from newsstand.broker.stats import stats_of
from newsstand.broker.told import read_told
from newsstand.broker.webhook import Sender
from newsstand.caching import RESULT_POLICIES
from newsstand.serving.refusals import BODY, TOKEN, Refused, answer, json_body, problems, unauthorized
from newsstand.serving.request_counts import CONTENT_TYPE
from newsstand.signing import HEADER, BadSignature, SignedHead


def cluster_routes(desk: Desk) -> APIRouter:
    """What the data cluster calls."""
    routes = APIRouter(tags=["cluster"])

    @routes.post("/told", status_code=204, response_class=Response, responses=problems(401, *BODY))
    async def told(request: Request) -> Response:
        """A signed notification of the data cluster's."""
        try:
            head = admitted(desk, request, "cluster")
            news = None
            if not desk.webhook.seen("cluster", head):  # the answer to what was acted on may have been lost
                async with desk.bodies.read(request, TOLD_BODY) as body:
                    head.check(body)
                    news = read_told(body)
        except BadSignature as error:
            desk.edge.metrics.webhook("refused")
            raise forged(error) from None
        if news is None or desk.webhook.seen("cluster", head):  # it may have come twice at a time
            desk.edge.metrics.webhook("repeated")
            return Response(status_code=204)
        desk.edge.metrics.webhook("taken")
        desk.edge.told(news)
        desk.webhook.acted_on("cluster", head)
        return Response(status_code=204)

    return routes


def admitted(desk: Desk, request: Request, sender: Sender) -> SignedHead:
    """Verify the head of a signed request: whoever cannot sign gets no memory for a body. Raise BadSignature."""
    head = desk.webhook.admit(sender, request.headers.get(HEADER, ""), time.time())
    announced = request.headers.get("content-length", str(head.length))
    if announced != str(head.length):
        raise BadSignature(f"header {HEADER}: signed for a body of {head.length} bytes, which this is not")
    return head


def forged(error: BadSignature) -> Refused:
    """Answer a request that is not signed as it should be, and read no body of it."""
    refused = unauthorized(str(error))
    refused.headers = {**(refused.headers or {}), "Connection": "close"}
    return refused


def operator_routes(desk: Desk) -> APIRouter:
    """What those who run the platform call."""
    routes = APIRouter(tags=["operation"])

    @routes.get("/stats", response_model=dict[str, object], responses=problems(*TOKEN))
    async def stats(request: Request) -> Response:
        """What the broker holds and does, for the dashboard."""
        if not desk.settings.open_stats:
            await desk.admin(request)
        return answer(stats_of(desk.edge, desk.members, desk.pages), headers={"Access-Control-Allow-Origin": "*"})

    @routes.get("/policy", response_model=PolicyShape, responses=problems(*TOKEN))
    async def policy(request: Request) -> Response:
        """What is cached, and how."""
        await desk.admin(request)
        return answer(_policy(desk))

    @routes.put(
        "/policy",
        response_model=PolicyShape,
        responses=problems(*TOKEN, *BODY),
        openapi_extra=json_body(PolicyShape),
    )
    async def put_policy(request: Request) -> Response:
        """Change what is cached, and how, while the broker runs."""
        await desk.admin(request)
        given = await desk.body(request, PolicyShape)
        if given.results.policy is not None:
            RESULT_POLICIES[given.results.policy]  # all or nothing: raises before anything is changed
        shelf = desk.edge.shelf
        if given.pages != PagesUnchanged:
            shelf.arrange(
                given.pages.policy or shelf.policy,
                shelf.capacity if given.pages.capacity is None else given.pages.capacity,
                given.pages.push or shelf.push,
            )
        desk.edge.switch(given.results.policy, given.results.budget)
        return answer(_policy(desk))

    return routes


PagesUnchanged = PolicyShape().pages


def health_routes(desk: Desk) -> APIRouter:
    """What watches over the process."""
    routes = APIRouter(tags=["health"])

    @routes.get("/healthz", response_model=dict[str, str])
    async def healthz() -> Response:
        """Whether the process answers."""
        return answer({"status": "alive"})

    @routes.get("/readyz", response_model=dict[str, object], responses=problems(503))
    async def readyz() -> Response:
        """Whether the broker can serve; what it lacks if not."""
        lacking = []
        if not desk.webhook.ready:
            lacking.append("the data cluster does not know this broker yet")
        if desk.topics.links.key is None:
            lacking.append("the coordinator has not given this broker its keys yet")
        if lacking:
            return answer({"error": f"not ready: {'; '.join(lacking)}", "lacking": lacking}, 503)
        return answer({"status": "ready"})

    @routes.get("/metrics", response_class=Response, responses=problems(*TOKEN))
    async def metrics(request: Request) -> Response:
        """All metrics, as Prometheus reads them."""
        if not desk.settings.open_metrics:
            await desk.operator(request, "metrics")
        return Response(desk.edge.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return routes


def _policy(desk: Desk) -> dict[str, object]:
    results, shelf = desk.edge.core.results, desk.edge.shelf
    return {
        "results": {"policy": results.policy.name, "budget": results.budget},
        "pages": {"policy": shelf.policy, "capacity": shelf.capacity, "push": shelf.push},
    }
