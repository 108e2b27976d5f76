"""What a client gives to its caller: channels, subscriptions, results, messages, pages, tokens, receipts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from newsstand.model import Scalar


class Tokens(msgspec.Struct, frozen=True):
    """A session: keep it, and a later client goes on with it. Only one client at a time may."""

    access: str
    refresh: str
    expires_in: int
    subscriber: str
    expires_at: float = 0.0
    """Unix seconds, by this machine's clock."""


class Channel(msgspec.Struct, frozen=True):
    """A channel that can be subscribed to; `parameters` has the type of each."""

    name: str
    parameters: dict[str, str]
    period_s: float | None = None


class Suspension(msgspec.Struct, frozen=True):
    """Why a subscription gets no results: the query of its channel fails on its values."""

    error: str
    since_ms: int


class Subscription(msgspec.Struct, frozen=True):
    """A channel with values: `position` was acknowledged, `head` the newest, when the broker told of it."""

    id: str
    channel: str
    values: dict[str, Scalar]
    stream: str
    """What `broker` calls it in notifications."""
    position: int
    head: int
    broker: str = ""
    suspended: Suspension | None = None
    """Set while it is left out, when the broker told of it."""


class PageLink(msgspec.Struct, frozen=True):
    """The page that a result comes with; `client.page(link.id)` fetches it."""

    id: str
    size: int


class Result(msgspec.Struct, frozen=True):
    """One result of a subscription: numbered 1, 2, 3 … in its stream."""

    subscription: str
    position: int
    at_ms: int
    payload: Mapping[str, Any]
    publication: int | None
    page: PageLink | None
    origin: str
    """`cache` or `cluster`: where the broker had it from."""
    missed: int = 0
    """How many results before this one were removed by retention, unread."""


class Page(msgspec.Struct, frozen=True):
    """The content of a page."""

    id: str
    content: bytes
    type: str
    etag: str


class NamedPage(msgspec.Struct, frozen=True):
    """A page that the origin has under a name: the id of its content, and since when it is so."""

    name: str
    id: str
    size: int
    type: str
    modified_ms: int
    changed: bool
    """Whether it was new, or other than before."""


class Message(msgspec.Struct, frozen=True):
    """A message of a topic; `id` is the same wherever it is received."""

    id: tuple[str, int]
    topic: str
    attributes: dict[str, Scalar]
    at_ms: int
    body: Any = None
    author: str = ""
    """The subscriber who published it, as its broker knows it."""


class Published(msgspec.Struct, frozen=True):
    """What became of a message: its id, and whether storages will have it; otherwise it was sent once."""

    id: tuple[str, int]
    stored: bool


class Refusal(msgspec.Struct, frozen=True):
    """A record that was refused: its place among those published, from 0, and why."""

    index: int
    reason: str


class Receipt(msgspec.Struct, frozen=True):
    """What became of published records; those accepted are numbered `first` to `last` in their dataset."""

    accepted: int
    first: int | None
    last: int | None
    refused: list[Refusal]
    repeated: bool = False
    """Whether the key was known, so that nothing was added now."""
