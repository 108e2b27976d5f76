"""Errors over HTTP: one line of JSON that says what is wrong, and its description in /openapi.json."""

from __future__ import annotations

import math
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from newsstand.config.types import is_http_url
from newsstand.errors import NewsstandError

T = TypeVar("T")


class ErrorBody(msgspec.Struct):
    """The body of every error: one line that says what is wrong and how to mend it."""

    error: str


class RetentionErrorBody(ErrorBody):
    """The answer to a read of positions that retention has removed."""

    earliest: int
    """The first position that is left."""


STATUS_TEXTS = {
    200: "Success.",
    201: "It is created.",
    204: "Success, without a body.",
    400: "The body is not what it says it is.",
    401: "The token is missing or not known.",
    403: "The token lacks the scope.",
    404: "There is no such thing.",
    408: "The body came too slowly.",
    409: "It contradicts what is there, or a limit is reached.",
    410: "Retention has removed what was asked for.",
    412: "It exists already, or has changed: see `If-None-Match` and `If-Match`.",
    413: "The body is too large.",
    415: "The Content-Type is not supported.",
    416: "The range lies outside of the page.",
    422: "It is malformed.",
    428: "The request lacks `If-Match`.",
    429: "More is coming in than goes out: try again after `Retry-After` seconds.",
    503: "It is not ready.",
    507: "The disk is full; nothing was added.",
}
BODY = (400, 408, 413, 415, 422, 429)
"""Errors of every operation with a body."""


class HttpError(Exception):
    """An error that a request is answered with: one line, and further fields of the body."""

    def __init__(self, status: int, error: str, headers: dict[str, str] | None = None, **more: object) -> None:
        super().__init__(error)
        self.status = status
        self.headers = headers
        self.body = {"error": " ".join(error.split()), **more}

    def response(self) -> Response:
        """Return the response to the request."""
        return json_response(self.body, self.status, self.headers)


def to_http_error(error: NewsstandError) -> HttpError:
    """Return the HTTP error of an error that the platform raises."""
    status, headers = error.http_status, None
    if status == 401:
        headers = {"WWW-Authenticate": "Bearer"}
    elif status in (429, 503):
        headers = {"Retry-After": str(max(1, math.ceil(getattr(error, "after_s", 1))))}
    problem = error.problem()
    return HttpError(status, str(problem.pop("error")), headers, **problem)


def unauthorized(error: str) -> HttpError:
    """Return the answer to a token that is missing or not good."""
    return HttpError(401, error, {"WWW-Authenticate": "Bearer"})


def unknown_token(request: Request) -> HttpError:
    """Return the answer to a request whose token is missing or not known."""
    missing = "the token is missing: send the header 'Authorization: Bearer TOKEN'"
    return unauthorized("the token is not known" if bearer(request) else missing)


def service_unavailable(error: str, after_s: int = 1) -> HttpError:
    """Return the answer when a component that is needed is away."""
    return HttpError(503, error, {"Retry-After": str(after_s)})


def require_server_url(field: str, url: str, example: str, *, query: bool = False) -> None:
    """Raise HttpError unless a field is a URL without user, fragment and, unless allowed, query."""
    if not is_http_url(url):
        raise HttpError(422, f"{field}: must be a URL such as {example}")
    parts = urlsplit(url)
    if parts.username is not None or parts.fragment or (parts.query and not query):
        raise HttpError(422, f"{field}: must have neither a user nor a {'' if query else 'query nor a '}fragment")


def bearer(request: Request) -> str:
    """Return the token that a request presents, or the empty text."""
    for name, value in request.scope["headers"]:
        if name == b"authorization":
            scheme, _, presented = value.decode("latin-1").partition(" ")
            return presented.strip() if scheme.lower() == "bearer" else ""
    return ""


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a response with a body of JSON."""
    return Response(msgspec.json.encode(content), status, headers, "application/json")


def decoded(body: bytes, shape: type[T]) -> T:
    """Return a JSON body as a type; raise HttpError if it is not of the type."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as error:
        raise HttpError(422, f"body: {error}") from error
    except RecursionError:
        raise HttpError(400, "body: JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = str(error)
        malformed = "" if reason.startswith("JSON is malformed") else "JSON is malformed: "
        raise HttpError(400, f"body: {malformed}{reason}") from error


def error_handlers(no_path: str = "there is no such path") -> dict[Any, ExceptionHandler]:
    """Return the exception handlers of an app: every error is one line of JSON; `no_path` is that of a 404."""

    async def handle(request: Request, error: Exception) -> Response:
        if isinstance(error, NewsstandError):
            return to_http_error(error).response()
        if isinstance(error, HttpError):
            return error.response()
        if not isinstance(error, HTTPException):
            raise error
        texts = {404: no_path, 405: f"{request.method} is not for this path"}
        text = texts.get(error.status_code, str(error.detail))
        return json_response({"error": text}, error.status_code, dict(error.headers or {}))

    return {HttpError: handle, NewsstandError: handle, HTTPException: handle}
