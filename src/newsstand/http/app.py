"""An API that describes itself at /openapi.json: its routes, its log of requests, metrics and its fast path."""

from __future__ import annotations

import functools
import itertools
import re
import threading
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, Unpack

import anyio.to_thread
from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from newsstand.http.bodies import Bodies
from newsstand.http.errors import HttpError, bearer, decoded, error_handlers, json_response
from newsstand.http.openapi import JSON, Declaration, Handler, Operation, document
from newsstand.http.request_log import RequestCounts, RequestLog, log_caller

C = TypeVar("C")
H = TypeVar("H", bound=Handler)
P = ParamSpec("P")
T = TypeVar("T")
SMALL_BODY = 64 * 1024
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The type of what Prometheus reads."""


class Routes:
    """Operations of one tag, as decorators of their handlers."""

    def __init__(self, tag: str, secured: bool = True) -> None:
        """`secured`: the description says that they need a token; the handlers check it."""
        self.operations: list[Operation] = []
        self._tag = tag
        self._secured = secured

    def get(self, path: str, **declared: Unpack[Declaration]) -> Callable[[H], H]:
        """Declare a handler of GET."""
        return self._adding("GET", path, declared)

    def put(self, path: str, **declared: Unpack[Declaration]) -> Callable[[H], H]:
        """Declare a handler of PUT."""
        return self._adding("PUT", path, declared)

    def post(self, path: str, **declared: Unpack[Declaration]) -> Callable[[H], H]:
        """Declare a handler of POST."""
        return self._adding("POST", path, declared)

    def delete(self, path: str, **declared: Unpack[Declaration]) -> Callable[[H], H]:
        """Declare a handler of DELETE."""
        return self._adding("DELETE", path, declared)

    def _adding(self, method: str, path: str, declared: Declaration) -> Callable[[H], H]:
        def add(handler: H) -> H:
            self.operations.append(Operation(method, path, handler, self._tag, self._secured, declared))
            return handler

        return add


@dataclass(frozen=True, kw_only=True)
class ApiContext(Generic[C]):
    """What all routes of a server share; each server adds its services."""

    authenticate: Callable[[str], C | None]
    """Returns the holder of a token; raises BadToken for one that is not valid any more."""
    bodies: Bodies = field(default_factory=Bodies)
    json_only: bool = False
    """Whether a JSON body must not have another Content-Type."""

    def caller(self, request: Request) -> C | None:
        """Return the holder of the request's token, whom the log names; None without a token that is known."""
        token = bearer(request)
        holder = self.authenticate(token) if token else None
        if holder is not None:
            log_caller(request.scope, str(holder))
        return holder

    async def decode(self, request: Request, shape: type[T], limit: int = SMALL_BODY) -> T:
        """Return the JSON body of a request as a type; raise HttpError if it is not of the type, or too large."""
        content_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        if self.json_only and content_type != JSON:
            raise HttpError(415, f"Content-Type '{content_type}' is not supported: send {JSON}")
        async with self.bodies.read(request, limit) as body:
            return decoded(body, shape)


async def in_thread(
    limiter: anyio.CapacityLimiter, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return what a blocking function returns, called in one of the threads of a limiter."""
    return await anyio.to_thread.run_sync(functools.partial(function, *args, **kwargs), limiter=limiter)


class Api(Starlette):
    """An API with its description; it logs and counts requests."""

    def __init__(
        self,
        title: str,
        summary: str,
        routes: Iterable[Routes],
        requests: RequestCounts,
        *,
        websockets: Sequence[BaseRoute] = (),
        lifespan: Lifespan[Any] | None = None,
        quiet: bool = False,
    ) -> None:
        """`quiet`: log only requests that were rejected, failed or took long."""
        self._title, self._summary = title, summary
        self._requests, self._quiet = requests, quiet
        self.operations = [operation for one in routes for operation in one.operations]
        super().__init__(
            routes=[Route("/openapi.json", self._description), *map(_route, self.operations), *websockets],
            exception_handlers=error_handlers("there is no such path; /openapi.json lists them all"),
            lifespan=lifespan,
        )
        self.router.redirect_slashes = False

    def build_middleware_stack(self) -> ASGIApp:
        """Return the layers around the router; the log answers unexpected exceptions instead of Starlette."""
        routed = ExceptionMiddleware(self.router, handlers=self.exception_handlers)
        fast = FastPath(routed, [one for one in self.operations if one.is_fast])
        return RequestLog(fast, self._requests, self._quiet)

    def openapi(self) -> dict[str, Any]:
        """Return the description of the API."""
        return document(self._title, self._summary, self.operations)

    async def _description(self, _: Request) -> Response:
        return json_response(self.openapi())


class Readiness(NamedTuple):
    """Whether a server does its work: what it lacks for that, and what works less well than it should."""

    lacking: Sequence[str] = ()
    degraded: Sequence[str] = ()


def health_routes(
    ready: Callable[[], Awaitable[Readiness]], metrics: Callable[[Request], Awaitable[bytes]]
) -> Routes:
    """Return the routes that supervise a server: `/healthz`, `/readyz` and `/metrics`.

    `metrics` checks the request and returns all metrics as Prometheus reads them.
    """
    routes = Routes("health", secured=False)

    @routes.get("/healthz", response=dict[str, str])
    async def healthz(_: Request) -> Response:
        """Return that the process answers."""
        return json_response({"status": "alive"})

    @routes.get("/readyz", response=dict[str, object], errors=(503,))
    async def readyz(_: Request) -> Response:
        """Return whether the server does its work, or what it lacks."""
        lacking, degraded = await ready()
        if lacking:
            raise HttpError(503, f"not ready: {'; '.join(lacking)}", {"Retry-After": "1"}, lacking=list(lacking))
        return json_response({"status": "ready"} | ({"degraded": list(degraded)} if degraded else {}))

    @routes.get("/metrics", response={"text/plain": str}, errors=(401, 403, 503))
    async def read_metrics(request: Request) -> Response:
        """Return all metrics, as Prometheus reads them."""
        return Response(await metrics(request), headers={"Content-Type": METRICS_TYPE})

    return routes


STAGE_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
"""The buckets of stages."""


class StageHistogram(Collector):
    """One histogram of the stages of publications, by stage and channel. Methods may be called from any thread.

    An observation has a weight, so that one call counts all publications of an execution.
    """

    def __init__(self, name: str, text: str, registry: CollectorRegistry) -> None:
        self._name = name
        self._text = text
        self._counts: dict[tuple[str, str], list[int]] = {}
        """The observations in each bucket, by stage and channel."""
        self._seconds: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()
        registry.register(self)

    def observe(self, stage: str, channel: str, seconds: float, weight: int = 1) -> None:
        """Count a stage that took so long; one that clocks of two machines show as negative took no time."""
        seconds = max(0.0, seconds)
        labels, bucket = (stage, channel), bisect_left(STAGE_SECONDS, seconds)
        with self._lock:
            counts = self._counts.get(labels)
            if counts is None:
                counts = self._counts[labels] = [0] * (len(STAGE_SECONDS) + 1)
            counts[bucket] += weight
            self._seconds[labels] = self._seconds.get(labels, 0.0) + seconds * weight

    def forget(self, channel: str) -> None:
        """Remove the stages of a channel."""
        with self._lock:
            for labels in [one for one in self._counts if one[1] == channel]:
                del self._counts[labels], self._seconds[labels]

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Return the histogram for Prometheus."""
        family = HistogramMetricFamily(self._name, self._text, labels=("stage", "channel"))
        bounds = [*(str(float(one)) for one in STAGE_SECONDS), "+Inf"]
        with self._lock:
            for labels, counts in self._counts.items():
                cumulative = [float(one) for one in itertools.accumulate(counts)]
                buckets = list(zip(bounds, cumulative, strict=True))
                family.add_metric(labels, buckets, self._seconds[labels])
        yield family


class FastPath:
    """ASGI middleware: calls frequent operations itself, past the router, and leaves other requests to the app."""

    def __init__(self, app: ASGIApp, operations: Iterable[Operation]) -> None:
        """No parameter in a path of the operations may contain a slash."""
        self._app = app
        self._calls = [(one.method, _pattern(one.template), one) for one in operations]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            for method, pattern, operation in self._calls:
                if scope["method"] == method and (found := pattern.fullmatch(scope["path"])) is not None:
                    scope["path_params"] = found.groupdict()
                    await operation(scope, receive, send)
                    return
        await self._app(scope, receive, send)


def _route(operation: Operation) -> Route:
    route = Route(operation.template, operation, name=operation.path)
    route.methods = operation.methods  # Starlette would add HEAD to every GET
    return route


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(template)))
