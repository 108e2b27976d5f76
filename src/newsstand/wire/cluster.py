"""Messages of the data cluster: to publishers, and to brokers about subscriptions, results and push-caches."""

from __future__ import annotations

from typing import Annotated, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from newsstand.model import Scalar


class Rejection(msgspec.Struct, frozen=True):
    """A rejected record: its zero-based index in the request and the reason."""

    index: Annotated[int, Meta(description="its place in the body, from 0")]
    reason: str


class Receipt(msgspec.Struct, frozen=True):
    """The outcome of a publication; accepted records are numbered `first` to `last` in their dataset."""

    accepted: int
    first: Annotated[int | None, Meta(description="the number of the first accepted record")]
    last: int | None
    rejected: list[Rejection]
    repeated: Annotated[bool, Meta(description="the idempotency key was seen before; nothing was added now")] = (
        False
    )


MAX_ANNOUNCED_PAGES = 10_000


class ClusterBroker(msgspec.Struct, omit_defaults=True):
    """A registered broker; `secret` only in the response that creates it."""

    name: str
    callback: str
    secret: str | None = None


class ClusterBrokerList(msgspec.Struct):
    """Brokers; `next` is the `after` of the next page, null at the end."""

    brokers: list[ClusterBroker]
    next: str | None


class SubscribeRequest(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A backend subscription that a broker requests, with the number of its frontend subscriptions."""

    channel: str
    values: dict[str, Scalar] | list[Scalar] = []
    frontends: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 1


class SubscribeResponse(msgspec.Struct):
    """The ids of subscriptions, in the order of the request."""

    ids: list[str]


class BackendSubscriptionInfo(msgspec.Struct):
    """One subscription of a broker."""

    id: str
    channel: str
    values: tuple[Scalar, ...]
    frontends: int


class BackendSubscriptionList(msgspec.Struct):
    """One page of a broker's subscriptions; `next` is the `after` of the next page, null at the end."""

    subscriptions: list[BackendSubscriptionInfo]
    next: str | None


class PushCacheAnnouncement(msgspec.Struct, forbid_unknown_fields=True):
    """A push-cache: the URLs of its copies and of pushes, its location, and the paths of its copies."""

    url: str
    push: str
    pages: Annotated[list[str], Meta(max_length=MAX_ANNOUNCED_PAGES)]
    lat: Annotated[float, Meta(ge=-90, le=90)] | None = None
    lon: Annotated[float, Meta(ge=-180, le=180)] | None = None
    node: Annotated[str, Meta(min_length=1, max_length=128)] | None = None


class AnnounceResponse(msgspec.Struct):
    """The lease of a push-cache."""

    enabled: Annotated[bool, Meta(description="whether the cluster pushes pages")]
    lease_s: Annotated[
        float, Meta(description="how long the announcement is valid; repeat it three times in that time")
    ]


MOST_RESULTS = 10_000
Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
R = TypeVar("R")


class StreamSuspension(msgspec.Struct, frozen=True):
    """Why and since when executions leave a stream out: the query of its channel fails on the values."""

    error: str
    since_ms: int


class StreamStatus(NamedTuple):
    """The last and the first position of a stream at the cluster, and whether it is suspended."""

    head: int
    earliest: int
    suspended: StreamSuspension | None = None


class AttachedPage(msgspec.Struct, frozen=True):
    """The page of a publication."""

    id: str
    size: int


class StreamResult(msgspec.Struct, frozen=True):
    """A result: its number in its stream, when it was produced, and the row of the channel's query as JSON."""

    position: int
    at_ms: int
    payload: Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
    publication: int | None
    """The publication of the channel's new dataset that it comes from; None if it is made from several."""
    page: AttachedPage | None


class StreamRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Results of a subscription with after < position <= until; with a limit of 0 only its extent."""

    subscription: str
    after: Position = 0
    until: Position | None = None
    limit: Annotated[int, msgspec.Meta(ge=0, le=MOST_RESULTS)] = 1000


class StreamPage(msgspec.Struct, Generic[R], omit_defaults=True):
    """Results of a range, fewer than there are if the answer has no room for more, and the stream's extent."""

    subscription: str
    results: list[R]
    head: int
    earliest: int
    suspended: StreamSuspension | None = None


class StreamPages(msgspec.Struct, Generic[R]):
    """The pages of several ranges, in their order, without those of unknown subscriptions."""

    streams: list[StreamPage[R]]


class FetchedResult(NamedTuple):
    """A result of the cluster as a broker keeps it: its JSON lacks the closing brace, for fields to be added."""

    position: int
    at_ms: int
    json_prefix: bytes


class _Head(msgspec.Struct):
    position: int
    at_ms: int


_head = msgspec.json.Decoder(_Head).decode


def fetched(raw: msgspec.Raw) -> FetchedResult:
    """Return a result out of its JSON; raise msgspec.DecodeError."""
    head = _head(raw)
    return FetchedResult(head.position, head.at_ms, bytes(raw).rstrip()[:-1])
