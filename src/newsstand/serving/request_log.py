"""One line of JSON on standard error for each request, and one counter; a request's id goes with its answer."""

from __future__ import annotations

import itertools
import json
import logging
import re
import sys
import time
import traceback
import uuid
from typing import Protocol, TextIO

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from newsstand.serving.client_address import client_of

logger = logging.getLogger(__name__)
_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PROCESS = uuid.uuid4().hex[:16]
_NUMBERS = itertools.count(1)
GONE_CLIENT = 499
"""Logged for a client that left before it was answered."""


SLOW_S = 1.0


class Requests(Protocol):
    """Who counts requests."""

    def requested(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """A request was answered; `route` is the template of its path, None if no route fits."""
        ...


class RequestLog:
    """ASGI middleware: logs and counts requests, gives them ids, and answers what went wrong unexpectedly."""

    def __init__(self, app: ASGIApp, metrics: Requests, quiet: bool = False) -> None:
        """`quiet`: log only what was refused, failed or took long, for a server of many small requests."""
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
                raise  # half of an answer is on its way: the server must cut the connection
            await _answer_failure(counting, request_id)
        seconds = time.monotonic() - begun
        route = getattr(scope.get("route"), "path", None)
        self._metrics.requested(scope["method"], route, status, seconds)
        if self._quiet and status < 400 and seconds < SLOW_S:
            return
        told = {
            "method": scope["method"],
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 1),
            "bytes": sent,
            "client": client_of(scope),
            "token": scope.get("state", {}).get("token"),
            "request": request_id,
        }
        logger.info("request", extra={"told": told})


async def _answer_failure(send: Send, request_id: str) -> None:
    body = msgspec.json.encode({"error": f"something went wrong here; the log tells more under {request_id}"})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _request_id(scope: Scope) -> str:
    """The id that the caller gave, if it is one, so that its logs and ours can be read side by side."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _ID.fullmatch(given := value.decode("latin-1")):
            return str(given)
    return f"{_PROCESS}-{next(_NUMBERS):x}"


class JsonLines(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line: when, how severe, who, what, and what was given as `extra={"told": {...}}`."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        told = {
            "at": f"{when}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "told", {}),
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


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
