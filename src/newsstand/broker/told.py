"""What the data cluster tells a broker, as it comes in a webhook."""

from __future__ import annotations

import msgspec

from newsstand.broker.fetches import Fetched
from newsstand.errors import BadInput


class Moved(msgspec.Struct):
    """A stream has come to a position; with `push`, here are its results."""

    subscription: str
    position: int
    results: list[Fetched] = []


class Suspension(msgspec.Struct, frozen=True):
    """The cluster leaves a stream out, because the query of its channel fails on the values."""

    error: str
    since_ms: int


class _Suspended(msgspec.Struct):
    subscription: str
    error: str
    since_ms: int


class Offered(msgspec.Struct):
    """A page was matched: its size, and how many frontends of this broker's want it."""

    page: str
    size: int
    subscriptions: int


class Told(msgspec.Struct):
    """One notification."""

    streams: list[Moved] = []
    pages: list[Offered] = []
    at_ms: int | None = None
    channel: str | None = None
    """The channel that it is about; None in a summary, which is about all."""
    suspended: dict[str, Suspension] | None = None
    """All that are suspended now, if it tells of that."""


class _RawMoved(msgspec.Struct):
    subscription: str
    position: int
    results: list[msgspec.Raw] = []


class _RawTold(msgspec.Struct):
    streams: list[_RawMoved] = []
    pages: list[Offered] = []
    at_ms: int | None = None
    channel: str | None = None
    suspended: list[_Suspended] | None = None


class _Head(msgspec.Struct):
    position: int
    at_ms: int


_TOLD = msgspec.json.Decoder(_RawTold)
_HEAD = msgspec.json.Decoder(_Head)


def read_told(body: bytes) -> Told:
    """A notification out of the body of a webhook."""
    try:
        raw = _TOLD.decode(body)
        moved = [
            Moved(one.subscription, one.position, [fetched(each) for each in one.results]) for one in raw.streams
        ]
    except msgspec.DecodeError as error:
        raise BadInput(f"body: {error}") from error
    suspended = None
    if raw.suspended is not None:
        suspended = {one.subscription: Suspension(one.error, one.since_ms) for one in raw.suspended}
    return Told(moved, raw.pages, raw.at_ms, raw.channel, suspended)


def fetched(raw: msgspec.Raw) -> Fetched:
    """A result as the cluster writes it."""
    head = _HEAD.decode(raw)
    return Fetched(head.position, head.at_ms, bytes(raw).rstrip()[:-1])
