"""Errors over HTTP: one line of JSON that says what is wrong, and its description in /openapi.json."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from newsstand.errors import BadInput, Busy, LimitReached, NewsstandError, NoRoom, NotFound, Unavailable
from newsstand.serving.described import schema_of

T = TypeVar("T")
Responses = dict[int | str, dict[str, Any]]


class Problem(BaseModel):
    """Every error: one line that says what is wrong and how to mend it."""

    error: str


WORDS = {
    400: "The body is not what it says it is.",
    401: "The token is missing or not known.",
    403: "The token lacks the scope.",
    404: "There is no such thing.",
    408: "The body came too slowly.",
    409: "It contradicts what is there, or a limit is reached.",
    410: "Retention has removed what was asked for.",
    412: "It exists already, and the request said `If-None-Match: *`.",
    413: "The body is too large.",
    415: "The Content-Type is not known.",
    416: "The range lies outside of the page.",
    422: "It is malformed.",
    429: "More is coming in than goes out: try again after `Retry-After` seconds.",
    503: "It is not ready.",
    507: "The disk is full; nothing was added.",
}
TOKEN = (401, 403)
BODY = (400, 408, 413, 415, 422, 429)


def problems(*statuses: int) -> Responses:
    """Error answers for /openapi.json."""
    return {status: {"model": Problem, "description": WORDS[status]} for status in statuses}


def json_body(shape: type[BaseModel]) -> dict[str, Any]:
    """What a body that FastAPI does not parse holds, for /openapi.json."""
    schema = schema_of(shape)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


class Refused(Exception):
    """A request that is answered with an error: one line, and what else belongs to it."""

    def __init__(self, status: int, error: str, headers: dict[str, str] | None = None, **more: object) -> None:
        super().__init__(error)
        self.status = status
        self.headers = headers
        self.body = {"error": " ".join(error.split()), **more}


STATUSES: tuple[tuple[type[NewsstandError], int], ...] = ((NotFound, 404), (NoRoom, 507), (BadInput, 422))
"""The status of an error of ours; the first class that fits, 400 if none does."""


def refusal_of(error: NewsstandError) -> Refused:
    """The answer to what the platform refuses."""
    if isinstance(error, Busy):
        return Refused(429, str(error), {"Retry-After": str(max(1, math.ceil(error.after_s)))})
    if isinstance(error, LimitReached):
        return Refused(409, str(error), reason="limit")
    if isinstance(error, Unavailable):
        return not_now(error.reason, max(1, math.ceil(error.after_s)))
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 400)
    return Refused(status, str(error))


def unauthorized(error: str) -> Refused:
    """The answer to somebody whose token is missing or not good."""
    return Refused(401, error, {"WWW-Authenticate": "Bearer"})


def not_now(error: str, after_s: int = 1) -> Refused:
    """The answer when a part that is needed is away."""
    return Refused(503, error, {"Retry-After": str(after_s)})


def bearer(request: Request) -> str:
    """The token that a request presents, or the empty text."""
    scheme, _, presented = request.headers.get("authorization", "").partition(" ")
    return presented.strip() if scheme.lower() == "bearer" else ""


def answer(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Anything that JSON can hold, as a response."""
    return Response(msgspec.json.encode(content), status, headers, "application/json")


def decoded(body: bytes, shape: type[T]) -> T:
    """A JSON body of a given shape."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as error:
        raise Refused(422, f"body: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"body: {error}") from error


def answer_errors(api: FastAPI, of_ours: Callable[[NewsstandError], Refused] = refusal_of) -> None:
    """Give every error of an API the one shape."""

    async def refused(_: Request, error: Exception) -> Response:
        if isinstance(error, NewsstandError):
            error = of_ours(error)
        if not isinstance(error, Refused):
            raise error
        return answer(error.body, error.status, error.headers)

    api.add_exception_handler(Refused, refused)
    api.add_exception_handler(NewsstandError, refused)
    api.add_exception_handler(HTTPException, _no_route)
    api.add_exception_handler(RequestValidationError, _malformed)


async def _no_route(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 404:
        return answer({"error": "there is no such path; /openapi.json lists them all"}, 404)
    if error.status_code == 405:
        return answer({"error": f"{request.method} is not for this path"}, 405, dict(error.headers or {}))
    return answer({"error": str(error.detail)}, error.status_code, dict(error.headers or {}))


async def _malformed(_: Request, error: Exception) -> Response:
    """A path or query parameter that is not of its type or out of its bounds."""
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    place = " ".join(str(part) for part in first["loc"])
    return answer({"error": f"{place}: {first['msg']}"}, 422)
