"""Routes of topics, for clients without a WebSocket."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from newsstand.broker.api.context import BrokerContext
from newsstand.broker.sessions.rules import TopicRules
from newsstand.broker.topics.service import message_json
from newsstand.http.app import Routes
from newsstand.http.errors import HttpError, json_response
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.filters.value_sets import Value
from newsstand.overlay.messages import BrokerName, MessagePosition, Moment, Number

FilterText = Annotated[str, msgspec.Meta(description="a filter over the topic and the attributes of messages")]
After = Annotated[str | None, msgspec.Meta(description="`next` of the page before")]
Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class PublishedMessage(msgspec.Struct):
    """The id of a published message, and whether it is stored."""

    publication: Annotated[list[str | int], msgspec.Meta(description="its id everywhere: a broker and a number")]
    stored: Annotated[bool, msgspec.Meta(description="whether storages will have it; otherwise it was sent once")]


class TopicMessage(msgspec.Struct):
    """A message of a topic."""

    id: list[str | int]
    topic: str
    attributes: dict[str, str | bool | int | float]
    at_ms: int
    author: Annotated[str, msgspec.Meta(description="the subscriber that published it; empty if not known")]
    body: Any


class TopicHistoryPage(msgspec.Struct):
    """A page of the history of topics."""

    messages: list[TopicMessage]
    next: Annotated[str | None, msgspec.Meta(description="where to go on; null at the end")]
    unavailable: Annotated[list[str], msgspec.Meta(description="topics of the filter whose history is incomplete")]
    from_cache: Annotated[
        list[str],
        msgspec.Meta(description="topics without a storage, read from caches of brokers"),
    ]
    complete: Annotated[
        bool,
        msgspec.Meta(description="false if caches of brokers may hold more: ask again"),
    ]


class PublishMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message to be published."""

    attributes: dict[str, Value] = {}
    body: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


def topic_routes(context: BrokerContext) -> Routes:
    """Return the routes of `/topics`."""
    routes = Routes("topics")
    topics = context.topics
    rules = TopicRules(context.settings.topics)

    @routes.post(
        "/topics/{topic}/messages",
        status=201,
        response=PublishedMessage,
        errors=(403, 503, 507),
        body=PublishMessage,
    )
    async def publish(request: Request, topic: str) -> Response:
        """Publish a message; if the topic has storages, it is on disk before the response."""
        subscriber = await context.unrestricted_subscriber(request)
        rules.require_publish(subscriber.name, topic)
        given = await context.decode(request, PublishMessage)
        published = await topics.publish(topic, given.attributes, bytes(given.body), subscriber.name)
        return json_response({"publication": published.id, "stored": published.stored}, 201)

    @routes.get("/topics", response=TopicHistoryPage, errors=(403, 422, 503))
    async def history(
        request: Request, filter: FilterText = "true", after: After = None, limit: Limit = 100
    ) -> Response:
        """Return the history that matches a filter, oldest first, from storages or from caches."""
        subscriber = await context.unrestricted_subscriber(request)
        wanted = Filter.parse(filter)
        rules.require_read(subscriber.name, wanted)
        page = await topics.history(wanted, parse_position(after), limit, subscriber.name)
        messages = b",".join(
            message_json(one) for one in page.publications if rules.may_read(subscriber.name, one.topic)
        )
        following = None if page.next is None else msgspec.json.encode(page.next).decode()
        unavailable, from_cache = (
            rules.readable(subscriber.name, some) for some in (page.unavailable, page.from_cache)
        )
        rest = msgspec.json.encode(
            {"next": following, "unavailable": unavailable, "from_cache": from_cache, "complete": page.complete}
        )
        return Response(b'{"messages":[%b],%b' % (messages, rest[1:]), 200, None, "application/json")

    return routes


def parse_position(text: str | None) -> MessagePosition | None:
    """Return a position that a client gives, with the bounds that neighbours require."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=tuple[Moment, BrokerName, Number])
    except (msgspec.DecodeError, UnicodeError) as error:
        raise HttpError(422, f"after: must be `next` of the page before ({error})") from None
