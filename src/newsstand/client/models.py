"""What a client returns and raises: channels, subscriptions, results, messages, pages, tokens, receipts; errors.

The message of each error is one line.

NewsstandError
└── ClientError
    ├── Unreachable             no server answered within the deadline, or all were busy
    ├── WrongPassword           no subscriber has this name and password
    ├── SessionEnded            the tokens are not valid any more, and no password is known
    ├── RequestRejected         a server rejected the request; `status` is the HTTP status
    │   ├── ResourceNotFound    404: no such channel, subscription, page or dataset
    │   └── ResultsRemoved      410: retention has removed results; `earliest` is the first remaining position
    └── UsageError              the client was called in a way that cannot work
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from newsstand.errors import NewsstandError
from newsstand.model import Scalar
from newsstand.wire.cluster import AttachedPage, StreamSuspension

PageLink = AttachedPage
Suspension = StreamSuspension


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of a session. A later client continues the session with them; only one client at a time may."""

    access: str
    refresh: str
    expires_in: int
    subscriber: str
    expires_at: float = 0.0
    """Unix seconds, by this machine's clock."""


class Channel(msgspec.Struct, frozen=True):
    """A channel; `parameters` has the type of each parameter."""

    name: str
    parameters: dict[str, str]
    period_s: float | None = None


class Subscription(msgspec.Struct, frozen=True):
    """A channel with values; `position` is the last acknowledged, `head` the newest when the broker answered."""

    id: str
    channel: str
    values: dict[str, Scalar]
    stream: str
    """The name of its stream in notifications of `broker`."""
    position: int
    head: int
    broker: str = ""
    suspended: Suspension | None = None
    """Why executions leave the subscription out: the query of its channel fails on its values."""


class Result(msgspec.Struct, frozen=True):
    """One result of a subscription: numbered 1, 2, 3 … in its stream; `client.page(page.id)` fetches its page."""

    position: int
    at_ms: int
    payload: Mapping[str, Any]
    publication: int | None
    page: PageLink | None
    origin: str
    """`cache` or `cluster`: where the broker read it."""
    latency_ms: float = 0.0
    """The time that the broker waited for the data cluster."""
    subscription: str = ""
    missed: int = 0
    """The number of unread results before this one that retention has removed."""
    read_ms: float = 0.0
    """The time of the request that read it."""


class Page(msgspec.Struct, frozen=True):
    """The content of a page."""

    id: str
    content: bytes
    type: str
    etag: str


class NamedPage(msgspec.Struct, frozen=True):
    """A named page of the origin: the id of its content and the time of its last change."""

    name: str
    id: str
    size: int
    type: str
    modified_ms: int
    changed: bool
    """Whether the call changed it."""


class Message(msgspec.Struct, frozen=True):
    """A message of a topic; `id` is the same at every receiver."""

    id: tuple[str, int]
    topic: str
    attributes: dict[str, Scalar]
    at_ms: int
    body: Any = None
    author: str = ""
    """The subscriber who published it, as authenticated by the broker."""


class PublishReceipt(msgspec.Struct, frozen=True):
    """The id of a published message, and whether storages keep it; otherwise it is sent once."""

    id: tuple[str, int]
    stored: bool


class ClientError(NewsstandError):
    """The root of the errors of a client."""


class Unreachable(ClientError):
    """No server answered within the deadline, or all were busy."""


class WrongPassword(ClientError):
    """No subscriber has this name and password."""


class SessionEnded(ClientError):
    """The tokens are not valid any more, and no password is known to log in again."""


class RequestRejected(ClientError):
    """A server rejected the request."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ResourceNotFound(RequestRejected):
    """There is no such channel, subscription, page or dataset."""


class ResultsRemoved(RequestRejected):
    """Retention has removed the next results; `earliest` is the first remaining position."""

    def __init__(self, message: str, earliest: int) -> None:
        super().__init__(message, 410)
        self.earliest = earliest


class UsageError(ClientError):
    """The client was called in a way that cannot work."""
