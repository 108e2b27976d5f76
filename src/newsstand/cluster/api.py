"""The HTTP API of the data cluster. Its description is at /openapi.json."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from newsstand.cluster.api_brokers import broker_routes, subscription_routes
from newsstand.cluster.api_definitions import channel_routes, dataset_routes
from newsstand.cluster.api_desk import TOKEN, Desk, refusal_of
from newsstand.cluster.api_named import named_routes
from newsstand.cluster.api_publish import page_routes, publish_routes, result_routes
from newsstand.cluster.api_push import push_cache_routes
from newsstand.cluster.app_folder import ClusterOptions
from newsstand.cluster.facade import Cluster
from newsstand.cluster.tokens import Tokens
from newsstand.serving.described import BEARER, new_api
from newsstand.serving.refusals import answer, answer_errors, problems
from newsstand.serving.request_counts import CONTENT_TYPE
from newsstand.serving.request_log import RequestLog


def create_api(cluster: Cluster, tokens: Tokens, options: ClusterOptions) -> FastAPI:
    """The API of a cluster, to be served by uvicorn."""
    desk = Desk(cluster, tokens, options)
    api = new_api("Newsstand data cluster", "Datasets, channels, brokers' subscriptions, results and pages.")
    for routes in (
        publish_routes,
        dataset_routes,
        channel_routes,
        broker_routes,
        subscription_routes,
        result_routes,
        page_routes,
        named_routes,
        push_cache_routes,
    ):
        api.include_router(routes(desk), dependencies=[BEARER])
    _add_health(api, desk)
    answer_errors(api, refusal_of)
    api.add_middleware(RequestLog, metrics=cluster.metrics.requests)
    return api


def _add_health(api: FastAPI, desk: Desk) -> None:
    @api.get("/healthz", tags=["health"], response_model=dict[str, str])
    async def healthz() -> Response:
        """Whether the process answers."""
        return answer({"status": "alive"})

    @api.get("/readyz", tags=["health"], response_model=dict[str, object], responses=problems(503))
    async def readyz() -> Response:
        """Whether the cluster takes publications and executes channels; which parts it lacks if not."""
        lacking = list(await desk.ask(desk.checking, desk.cluster.ready))
        if lacking:
            return answer({"error": f"not ready: {'; '.join(lacking)}", "lacking": lacking}, 503)
        degraded = list(await desk.ask(desk.checking, desk.cluster.degraded))
        return answer({"status": "ready"} | ({"degraded": degraded} if degraded else {}))

    @api.get("/metrics", tags=["health"], response_class=Response, responses=problems(*TOKEN))
    async def metrics(request: Request) -> Response:
        """All metrics, as Prometheus reads them."""
        if not desk.options.open_metrics:
            desk.admit(request, ("metrics", None))
        text = await desk.ask(desk.measuring, desk.cluster.metrics.text)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})
