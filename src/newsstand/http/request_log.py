"""The log of requests: one line of JSON for each on standard error, one histogram, and an id in each response."""

from __future__ import annotations

import itertools
import json
import logging
import re
import sys
import time
import traceback
import uuid
from typing import TextIO

import msgspec
from prometheus_client import CollectorRegistry, Histogram
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from newsstand.http.server import client_of

logger = logging.getLogger(__name__)
_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PROCESS = uuid.uuid4().hex[:16]
_NUMBERS = itertools.count(1)
GONE_CLIENT = 499
"""The status in the log for a client that closed its connection before the response."""


SLOW_S = 1.0
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))


class RequestCounts:
    """One histogram of all requests of a server."""

    def __init__(self, registry: CollectorRegistry, buckets: tuple[float, ...]) -> None:
        self._seconds = Histogram(
            "newsstand_http_request_seconds",
            "Requests by route.",
            ["method", "route", "status"],
            buckets=buckets,
            registry=registry,
        )
        self._known: dict[tuple[str, str | None, int], Histogram] = {}
        """Histograms by their labels, since looking labels up is slow."""

    def requested(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count a request; `route` is the template of its path, None if no route matches."""
        if method not in _METHODS:
            method = "other"
        counted = self._known.get((method, route, status))
        if counted is None:
            counted = self._seconds.labels(method, route or "none", str(status))
            self._known[method, route, status] = counted
        counted.observe(seconds)


class RequestLog:
    """ASGI middleware: logs and counts requests, gives them ids, and answers unexpected exceptions."""

    def __init__(self, app: ASGIApp, metrics: RequestCounts, quiet: bool = False) -> None:
        """`quiet`: log only requests that were rejected, failed or took long."""
        self._app = app
        self._metrics = metrics
        self._quiet = quiet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()
        request_id = _request_id(scope)
        status, sent = 0, 0

        async def counting(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, counting)
        except ClientDisconnect:
            status = status or GONE_CLIENT
        except Exception:
            logger.error("request %s failed: %s", request_id, traceback.format_exc())
            if status:
                raise  # the response has begun, if only its head: the server must close the connection
            await _answer_failure(counting, request_id)
        seconds = time.monotonic() - begun
        route = getattr(scope.get("route"), "path", None)
        self._metrics.requested(scope["method"], route, status, seconds)
        if self._quiet and status < 400 and seconds < SLOW_S:
            return
        fields = {
            "method": scope["method"],
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 1),
            "bytes": sent,
            "client": client_of(scope),
            "token": scope.get("state", {}).get("token"),
            "request": request_id,
        }
        logger.info("request", extra={"fields": fields})


def log_caller(scope: Scope, name: str) -> None:
    """Let the log of a request name its caller."""
    scope.setdefault("state", {})["token"] = name


async def _answer_failure(send: Send, request_id: str) -> None:
    body = msgspec.json.encode({"error": f"internal error; the log has details under {request_id}"})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _request_id(scope: Scope) -> str:
    """Return the caller's id of the request if it is valid, so that the logs of both sides match."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _ID.fullmatch(given := value.decode("latin-1")):
            return str(given)
    return f"{_PROCESS}-{next(_NUMBERS):x}"


class JsonLines(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON: time, level, logger, message, and `extra={"fields": {...}}`."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "at": f"{when}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def log_to(stream: TextIO = sys.stderr, level: int = logging.INFO) -> logging.Handler:
    """Write what Newsstand and its server log to a stream, as lines of JSON; return the handler, for removal."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    for name in ("newsstand", "uvicorn.error"):
        named = logging.getLogger(name)
        named.addHandler(handler)
        named.setLevel(level)
        named.propagate = False
    return handler
