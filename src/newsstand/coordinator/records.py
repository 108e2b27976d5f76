"""What the coordinator keeps: brokers, how they are linked, what they keep, subscribers and changes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from newsstand.planning.places import NOWHERE, Place

Scalar = str | int | float | bool | None

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Channel = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Position = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Expiry = Annotated[int, msgspec.Meta(ge=0, le=2**53)] | Annotated[float, msgspec.Meta(ge=0)]

EPOCH = 2**20
"""Versions of one epoch: those of a later epoch are all higher."""
DEFAULT_CAPACITY = 10_000
"""Connections that a broker is taken to be good for if it does not say."""


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A broker as it registered, and what became of it."""

    name: str
    url: str
    place: Place = NOWHERE
    capacity: float = DEFAULT_CAPACITY
    draining: bool = False
    dead: bool = False
    instance: str = ""
    """The process that registered: the identity of its data folder, a dot, and a number of its own."""


Link = tuple[str, str]
"""Two brokers that are linked, by name, the smaller first."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The links of the overlay; the version rises whenever brokers are told something else of them."""

    version: int = 0
    links: frozenset[Link] = frozenset()


@dataclass(frozen=True, slots=True)
class Storages:
    """The brokers that have to keep a topic: where it is wanted, and where it is kept until it has moved."""

    wanted: frozenset[str]
    leaving: frozenset[str] = frozenset()

    @property
    def keeping(self) -> frozenset[str]:
        return self.wanted | self.leaving


@dataclass(frozen=True, slots=True)
class Move:
    """A subscriber that gets a new home."""

    name: str
    old: str
    new: str


@dataclass(frozen=True)
class Applied:
    """What became of some changes: how many were applied, and who of the subscribers is at home elsewhere.

    Changes of those in `late` come from a broker that is not their home any more. They are applied as far as
    nothing newer is undone; the broker must not answer its clients as if they were.
    """

    applied: int
    moved: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    serial: int = 0
    """Of this call: who is in a list and has a record of a later epoch has come back since."""


@dataclass(frozen=True)
class Account:
    """A subscriber as operators see it."""

    name: str
    broker: str
    subscriptions: int
    sessions: int
    state: Literal["active", "disabled"]
    created: int | None
    """In Unix seconds, if it is known."""


Record = Mapping[str, object]
"""A subscriber as brokers are told of it: `name`, `hash`, `sessions` by id, `subscriptions` by id, `clock`, the
highest version of its subscriptions, `epoch`, of the last move or change by an operator, `born`, its first epoch,
and `disabled`."""


class _Change(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="op"):
    name: Name


class SessionChanged(_Change, frozen=True, gc=False, tag="session"):
    """A session that is new, or has another refresh token than before."""

    sid: Id
    generation: Position
    expires: Expiry
    allow: list[dict[str, Any]] | None = None
    epoch: Position = 0
    """Of the record that was changed: one of before the subscriber was registered is about another account."""


class SessionEnded(_Change, frozen=True, gc=False, tag="end"):
    """A session is over."""

    sid: Id
    epoch: Position = 0


class Subscribed(_Change, frozen=True, gc=False, tag="subscribe"):
    """A subscription that is new."""

    id: Id
    channel: Channel
    values: list[Scalar]
    acked: Position
    version: Position = 0
    """Orders the changes of one subscription, whichever brokers make them: epoch times EPOCH, and a number."""


class Unsubscribed(_Change, frozen=True, gc=False, tag="unsubscribe"):
    """A subscription is over."""

    id: Id
    version: Position = 0


class Acknowledged(_Change, frozen=True, gc=False, tag="ack"):
    """A subscriber has confirmed the results of a subscription, up to a position."""

    id: Id
    position: Position
    version: Position = 0


Change = SessionChanged | SessionEnded | Subscribed | Unsubscribed | Acknowledged
KINDS: tuple[type[_Change], ...] = (SessionChanged, SessionEnded, Subscribed, Unsubscribed, Acknowledged)
"""Every kind of change."""
