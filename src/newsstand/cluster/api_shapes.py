"""The shapes of requests and answers, as /openapi.json tells them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from newsstand.serving.refusals import Problem


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


class SuspendedShape(BaseModel):
    """Why a subscription is suspended, and since when."""

    error: str
    since_ms: int


class SliceShape(ResultsShape):
    """A slice of the stream of one subscription."""

    subscription: str
    suspended: SuspendedShape | None = Field(None, description="set while the query fails on its values")


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


class BrokersShape(BaseModel):
    """Brokers; `next` is the `after` of the next page, null at the end. So for every list."""

    brokers: list[BrokerShape]
    next: str | None


class DatasetsShape(BaseModel):
    """Datasets, as they are declared, each with its name."""

    datasets: list[dict[str, object]]
    next: str | None


class ChannelsShape(BaseModel):
    """Channels, as they are declared, each with its name and its status."""

    channels: list[dict[str, object]]
    next: str | None


class SuspensionsShape(BaseModel):
    """Values that executions of a channel leave out, in the order of their numbers."""

    suspensions: list[dict[str, object]]
    next: int | None


class NamedPageShape(BaseModel):
    """A page that keeps its name when its content is replaced."""

    name: str
    id: str = Field(description="the digest of its content, which is its ETag")
    size: int
    type: str
    modified_ms: int


class PutPageShape(NamedPageShape):
    """A named page that was put."""

    changed: bool = Field(description="false if it had this content and type before")


class NamedPagesShape(BaseModel):
    """A slice of the named pages; `next` is the `after` of the next one, null at the end."""

    pages: list[NamedPageShape]
    next: str | None


class AnnouncedShape(BaseModel):
    """What a push-cache is told that has announced itself."""

    enabled: bool = Field(description="whether pages are pushed at all")
    lease_s: float = Field(description="how long its word holds; to be repeated three times in that time")


class RedirectShape(BaseModel):
    """Where copies of pages are."""

    server: str = Field(description="the broker")
    url: str
    pages: list[str] = Field(description="paths of pages that it has, the one asked for among them")


def raw_body(*, json: dict[str, object], ndjson: str | None = None) -> dict[str, Any]:
    """What a body that is not parsed by FastAPI holds, for /openapi.json."""
    content: dict[str, Any] = {"application/json": {"schema": json}}
    if ndjson:
        content["application/x-ndjson"] = {"schema": {"type": "string", "description": ndjson}}
    return {"requestBody": {"required": True, "content": content}}
