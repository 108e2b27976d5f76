"""Routes of topics, for clients without a WebSocket."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from newsstand.broker.desk import SMALL_BODY, Desk
from newsstand.broker.topic_messages import written
from newsstand.broker.topic_rules import TopicRules
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import BrokerName, Moment, Number, Position
from newsstand.overlay.value_sets import Value
from newsstand.serving.refusals import BODY, Refused, answer, decoded, json_body, problems

Wanted = Annotated[str, Query(description="a filter over the topic and the attributes of messages")]
After = Annotated[str | None, Query(description="`next` of the page before")]
Limit = Annotated[int, Query(ge=1, le=1000)]


class MessageBody(BaseModel):
    """What is published."""

    attributes: dict[str, str | bool | int | float] = {}
    body: Any = None


class PublishedShape(BaseModel):
    """What became of it."""

    publication: list[str | int] = Field(description="by which it is known everywhere: a broker and a number")
    stored: bool = Field(description="whether storages will have it; otherwise it was sent once")


class MessageShape(BaseModel):
    """A message of a topic."""

    id: list[str | int]
    topic: str
    attributes: dict[str, str | bool | int | float]
    at_ms: int
    author: str = Field(description="the subscriber who published it; empty if it is older than this field")
    body: Any


class PastShape(BaseModel):
    """A page of the past."""

    messages: list[MessageShape]
    next: str | None = Field(description="where to go on; null at the end")
    missing: list[str] = Field(description="topics that the filter names and of which not everything has come")
    cached: list[str] = Field(
        description="topics without a storage: what brokers happen to have cached of them has come"
    )
    whole: bool = Field(
        description="false if brokers may have cached more than has come, so that asking again may help"
    )


class _Given(msgspec.Struct, forbid_unknown_fields=True):
    attributes: dict[str, Value] = {}
    body: msgspec.Raw = msgspec.Raw(b"")


def topic_routes(desk: Desk) -> APIRouter:
    """`/topics`."""
    routes = APIRouter(tags=["topics"])
    topics = desk.topics
    rules = TopicRules(desk.settings.topics)

    @routes.post(
        "/topics/{topic}/messages",
        status_code=201,
        response_model=PublishedShape,
        responses=problems(401, 403, 503, 507, *BODY),
        openapi_extra=json_body(MessageBody),
    )
    async def publish(request: Request, topic: str) -> Response:
        """Publish a message; where the topic has storages it is on disk before this is answered."""
        member = await desk.free_member(request)
        rules.require_publish(member.name, topic)
        async with desk.bodies.read(request, SMALL_BODY) as body:
            given = decoded(body, _Given)
            published = await topics.publish(topic, given.attributes, bytes(given.body), member.name)
        return answer({"publication": published.id, "stored": published.stored}, 201)

    @routes.get("/topics", response_model=PastShape, responses=problems(401, 403, 422, 503))
    async def past(request: Request, filter: Wanted = "true", after: After = None, limit: Limit = 100) -> Response:
        """What storages have that matches a filter, oldest first; of topics without, what brokers have cached."""
        member = await desk.free_member(request)
        wanted = Filter.parse(filter)
        rules.require_read(member.name, wanted)
        page = await topics.past(wanted, _position(after), limit, member.name)
        messages = b",".join(written(one) for one in page.publications if rules.may_read(member.name, one.topic))
        following = None if page.next is None else msgspec.json.encode(page.next).decode()
        rest = msgspec.json.encode(
            {"next": following, "missing": page.missing, "cached": page.cached, "whole": page.whole}
        )
        return Response(b'{"messages":[%b],%b' % (messages, rest[1:]), 200, None, "application/json")

    return routes


def _position(text: str | None) -> Position | None:
    """A place that a client has named, as narrow as neighbours take it: they end a link over one that is not."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=tuple[Moment, BrokerName, Number])
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Refused(422, f"after: must be `next` of the page before ({error})") from None
