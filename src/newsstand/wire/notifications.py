"""Notifications and pushes of pages (Gwertzman and Seltzer 1995) to brokers, and the close codes of WebSockets."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Generic, Literal, TypeVar, cast

import msgspec

from newsstand.errors import BadInput
from newsstand.wire.cluster import FetchedResult, Position, fetched

R = TypeVar("R")


class StreamProgress(msgspec.Struct, Generic[R], omit_defaults=True):
    """The position that a stream has reached, and the first of its new results if the notification carries any."""

    subscription: str
    position: int
    results: list[R] = []


class PageOffer(msgspec.Struct):
    """A page that was matched: its size, and how many frontend subscriptions of the broker match it."""

    page: str
    size: int
    subscriptions: int


class SuspendedStream(msgspec.Struct):
    """A subscription whose stream executions leave out."""

    subscription: str
    error: str
    since_ms: int


class Notification(msgspec.Struct, Generic[R]):
    """What happened to streams of one broker. Notifications are idempotent and may arrive in any order."""

    delivery: int = 0
    """Its number, which rises for each broker: the id of the entry in the outbox."""
    execution: int | None = None
    """None for a summary, and when streams were suspended or resumed."""
    channel: str | None = None
    """The channel of the streams; None in a summary, which is about all channels."""
    at_ms: int | None = None
    """When the execution was stored, the broker returned (summary), or suspensions changed."""
    mode: Literal["pull", "push"] = "pull"
    """`push` if it carries results; the broker reads those that it does not carry."""
    streams: list[StreamProgress[R]] = []
    """The streams that advanced, by the broker's subscriptions."""
    pages: list[PageOffer] = []
    """The pages that the execution matched."""
    summary: bool = False
    """Whether it is the one notification after an absence of the broker."""
    suspended: list[SuspendedStream] | msgspec.UnsetType | None = msgspec.UNSET
    """All suspended streams of the channel, or in a summary of the broker; absent if none has changed."""


PING = b'{"ping":true}'
"""The body that asks whether a broker answers, under the delivery number 0."""
_decode = msgspec.json.Decoder(Notification[msgspec.Raw]).decode


def read_notification(body: bytes) -> Notification[FetchedResult]:
    """Return the notification in the body of a request; raise BadInput."""
    try:
        raw = _decode(body)
        notification = cast(Notification[FetchedResult], raw)
        for stream, one in zip(notification.streams, raw.streams, strict=True):
            stream.results = [fetched(each) for each in one.results]
    except msgspec.DecodeError as error:
        raise BadInput(f"body: {error}") from error
    return notification


MOST_DELIVERIES = 1000
"""Positions in one request for deliveries."""
_CALLBACK, _DELIVERIES = "/notifications", "/deliveries"
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


def deliveries_url(callback: str) -> str | None:
    """Return the URL at which a broker reports deliveries; None if its callback has another form."""
    return callback.removesuffix(_CALLBACK) + _DELIVERIES if callback.endswith(_CALLBACK) else None


class StreamPosition(msgspec.Struct, frozen=True):
    """A position of the stream of a subscription."""

    subscription: str
    position: Position


class DeliveryRequest(msgspec.Struct, frozen=True):
    """A question of the data cluster: what became of these positions at the broker."""

    streams: Annotated[list[StreamPosition], msgspec.Meta(max_length=MOST_DELIVERIES)]


class StreamDelivery(msgspec.Struct, frozen=True):
    """What a broker did with a position, in Unix milliseconds; null if it has not happened."""

    subscription: str
    position: Position
    notified_ms: Milliseconds
    """When the notification of the cluster arrived."""
    pulled_ms: Milliseconds | None = None
    """When the broker had the result."""
    signalled_ms: Milliseconds | None = None
    """When the position was written to connections of subscribers."""
    connections: Count = 0
    """The connections to which it was written."""
    read_ms: Milliseconds | None = None
    """When a subscriber first got the result."""
    acknowledged: Count = 0
    """The subscribers that have acknowledged it."""
    first_acknowledged_ms: Milliseconds | None = None
    last_acknowledged_ms: Milliseconds | None = None


class DeliveryReport(msgspec.Struct, frozen=True):
    """The positions that the broker still knows."""

    streams: list[StreamDelivery]


class PushedPage(msgspec.Struct, frozen=True):
    """A page that the origin offers, and the requests that it expects at the broker."""

    path: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    modified_ms: int = 0
    requests: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class PushRequest(msgspec.Struct, frozen=True):
    """A push: pages, the most popular first."""

    pages: list[PushedPage]


class PushResult(msgspec.Struct, frozen=True):
    """The outcome of a push: paths of its pages that are stored, and of other pages that were evicted."""

    stored: list[str]
    evicted: list[str]


class CloseCode(IntEnum):
    """Why a broker closes a WebSocket: 1000 to 1015 as in RFC 6455, the others as this platform defines them."""

    TOO_LARGE = 1009
    INTERNAL_ERROR = 1011
    SERVICE_RESTART = 1012
    MALFORMED = 4000
    UNAUTHORIZED = 4001
    TOO_SLOW = 4002
    MOVED = 4003
    """The subscriber is assigned to another broker."""
    UNKNOWN_PEER = 4004
    """The broker at the other end is not a neighbour."""
    LIMIT_REACHED = 4005
    DISABLED = 4006
    """An operator has disabled the account."""
