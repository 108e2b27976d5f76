"""Routes for the data cluster and for who runs the platform: webhook, statistics, policy, health."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request, Response

from newsstand.broker.api_shapes import PolicyShape
from newsstand.broker.desk import TOLD_BODY, Desk
from newsstand.broker.stats import stats_of
from newsstand.caching import RESULT_POLICIES
from newsstand.serving.refusals import BODY, TOKEN, answer, json_body, problems, unauthorized
from newsstand.serving.request_counts import CONTENT_TYPE
from newsstand.signing import HEADER, BadSignature


def cluster_routes(desk: Desk) -> APIRouter:
    """What the data cluster calls."""
    routes = APIRouter(tags=["cluster"])

    @routes.post("/told", status_code=204, response_class=Response, responses=problems(401, *BODY))
    async def told(request: Request) -> Response:
        """A signed notification of the data cluster's."""
        async with desk.bodies.read(request, TOLD_BODY) as body:
            try:
                news = desk.webhook.take(request.headers.get(HEADER, ""), body, time.time())
            except BadSignature as error:
                desk.edge.metrics.webhook("refused")
                raise unauthorized(str(error)) from None
        desk.edge.metrics.webhook("repeated" if news is None else "taken")
        if news is not None:
            delivery, told = news
            desk.edge.told(told)
            desk.webhook.acted_on(delivery)
        return Response(status_code=204)

    return routes


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
        if not desk.webhook.ready:
            lacking = ["the data cluster does not know this broker yet"]
            return answer({"error": f"not ready: {lacking[0]}", "lacking": lacking}, 503)
        return answer({"status": "ready"})

    @routes.get("/metrics", response_class=Response, responses=problems(*TOKEN))
    async def metrics(request: Request) -> Response:
        """All metrics, as Prometheus reads them."""
        if not desk.settings.open_metrics:
            await desk.admin(request)
        return Response(desk.edge.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return routes


def _policy(desk: Desk) -> dict[str, object]:
    results, shelf = desk.edge.core.results, desk.edge.shelf
    return {
        "results": {"policy": results.policy.name, "budget": results.budget},
        "pages": {"policy": shelf.policy, "capacity": shelf.capacity, "push": shelf.push},
    }
