"""The HTTP API of the coordinator. Its description is at /openapi.json."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import anyio.to_thread
from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp

from newsstand.coordinator.api_accounts import account_routes
from newsstand.coordinator.api_brokers import broker_routes
from newsstand.coordinator.api_overlay import overlay_routes
from newsstand.coordinator.api_subscribers import quick_calls, subscriber_routes
from newsstand.coordinator.desk import Desk
from newsstand.coordinator.store import NotHome, OutOfDate, Taken
from newsstand.errors import Duplicate, NewsstandError
from newsstand.serving.described import BEARER, new_api
from newsstand.serving.quick import QuickLane
from newsstand.serving.refusals import TOKEN, Refused, answer, answer_errors, problems, refusal_of
from newsstand.serving.request_counts import CONTENT_TYPE
from newsstand.serving.request_log import RequestLog

logger = logging.getLogger(__name__)


def create_app(desk: Desk) -> ASGIApp:
    """The API as uvicorn serves it: logged, and with a quick lane past the framework."""
    return RequestLog(
        QuickLane(create_api(desk), quick_calls(desk), _refusal_of), desk.metrics.requests, quiet=True
    )


def create_api(desk: Desk) -> FastAPI:
    """The API of a coordinator, with its description; while it is served, dead brokers are noticed."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        noticing = asyncio.create_task(_notice(desk))
        try:
            yield
        finally:
            noticing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await noticing

    api = new_api("Newsstand coordinator", "Brokers, subscribers, and which of them belong together.")
    api.router.lifespan_context = lifespan
    for routes in (broker_routes, overlay_routes, subscriber_routes, account_routes):
        api.include_router(routes(desk), dependencies=[BEARER])
    _add_health(api, desk)
    answer_errors(api, _refusal_of)
    return api


async def _notice(desk: Desk) -> None:
    """Look for dead brokers four times in a lease."""
    while True:
        await asyncio.sleep(desk.coordinator.lease_s / 4)
        try:
            moved = await desk.ask(lambda: desk.coordinator.tick(desk.clock()))
        except Exception:  # the disk may be full: it is tried again the next time
            logger.exception("dead brokers could not be looked for")
        else:
            if moved:
                logger.info("subscribers moved", extra={"told": {"moved": moved}})


def _add_health(api: FastAPI, desk: Desk) -> None:
    @api.get("/healthz", tags=["health"], response_model=dict[str, str])
    async def healthz() -> Response:
        """Whether the process answers."""
        return answer({"status": "alive"})

    @api.get("/readyz", tags=["health"], response_model=dict[str, str], responses=problems(503))
    async def readyz() -> Response:
        """Whether the coordinator can keep what it is told."""
        try:
            await anyio.to_thread.run_sync(desk.check, limiter=desk.checking)
        except Exception as error:
            logger.warning("the store does not answer: %s", error)
            raise Refused(503, "not ready: the store does not answer", {"Retry-After": "1"}) from error
        return answer({"status": "ready"})

    @api.get("/metrics", tags=["health"], response_class=Response, responses=problems(*TOKEN))
    async def metrics(request: Request) -> Response:
        """All metrics, as Prometheus reads them."""
        if not desk.open_metrics:
            desk.admit(request, "operator", "metrics")
        text = await desk.ask(desk.metrics.text, desk.coordinator)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})


def _refusal_of(error: NewsstandError) -> Refused:
    if isinstance(error, Duplicate):
        return Refused(409, str(error), reason="duplicate", lease_s=error.lease_s)
    if isinstance(error, NotHome):
        return Refused(403, str(error))
    return Refused(409, str(error)) if isinstance(error, (OutOfDate, Taken)) else refusal_of(error)
