"""The shapes of requests and answers, as /openapi.json tells them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

Responses = dict[int | str, dict[str, Any]]


class Problem(BaseModel):
    """Every error: one line that says what is wrong and how to mend it."""

    error: str


class GoneProblem(Problem):
    """Retention has removed what was asked for."""

    earliest: int = Field(description="the first position that is left")


class RefusalShape(BaseModel):
    """A record that was not accepted."""

    index: int = Field(description="its place in the body, from 0")
    reason: str


class ReceiptShape(BaseModel):
    """What became of the records of a body."""

    accepted: int
    first: int | None = Field(description="the number of the first accepted record")
    last: int | None
    refused: list[RefusalShape]
    repeated: bool = Field(description="the idempotency key was seen before; nothing was added now")
    error: str | None = Field(None, description="only if every record was refused")


class PageShape(BaseModel):
    """A page that belongs to a result."""

    id: str
    size: int


class ResultShape(BaseModel):
    """One result."""

    position: int
    at_ms: int
    payload: dict[str, Any]
    publication: int | None
    page: PageShape | None


class ResultsShape(BaseModel):
    """A slice of a stream, and where the stream begins and ends."""

    results: list[ResultShape]
    head: int
    earliest: int


class SliceShape(ResultsShape):
    """A slice of the stream of one subscription."""

    subscription: str


class SlicesShape(BaseModel):
    """Slices of many streams, in the order of the question; each may be shorter than what was asked for."""

    streams: list[SliceShape]


class SubscriptionShape(BaseModel):
    """One subscription of a broker."""

    id: str
    channel: str
    values: list[str | int | float | bool]
    frontends: int


class SubscriptionsShape(BaseModel):
    """A slice of a broker's subscriptions; `next` is the `after` of the next one, null at the end."""

    subscriptions: list[SubscriptionShape]
    next: str | None


class IdsShape(BaseModel):
    """The ids of subscriptions, in the order in which they were asked for."""

    ids: list[str]


class BrokerShape(BaseModel):
    """A broker; `secret` only in the answer that made it."""

    name: str
    callback: str
    secret: str | None = None


WORDS = {
    400: "The body is not what it says it is.",
    401: "The token is missing or not known.",
    403: "The token lacks the scope.",
    404: "There is no such thing.",
    408: "The body came too slowly.",
    409: "It contradicts another definition, or what is recorded.",
    412: "It exists already, and the request said `If-None-Match: *`.",
    413: "The body is too large.",
    415: "The Content-Type is not known.",
    416: "The range lies outside of the page.",
    422: "It is malformed.",
    429: "More is coming in than goes out: try again after `Retry-After` seconds.",
    503: "It is not ready.",
    507: "The disk is full; nothing was added.",
}


def problems(*statuses: int) -> Responses:
    """Error answers for /openapi.json."""
    return {status: {"model": Problem, "description": WORDS[status]} for status in statuses}


TOKEN = (401, 403)
BODY = (400, 408, 413, 415, 422, 429)


def raw_body(*, json: dict[str, object], ndjson: str | None = None) -> dict[str, Any]:
    """What a body that is not parsed by FastAPI holds, for /openapi.json."""
    content: dict[str, Any] = {"application/json": {"schema": json}}
    if ndjson:
        content["application/x-ndjson"] = {"schema": {"type": "string", "description": ndjson}}
    return {"requestBody": {"required": True, "content": content}}
