"""Subscribers and changes to them, as brokers and the coordinator exchange them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from newsstand.auth.tokens import ChannelScope
from newsstand.model import Scalar

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
ChannelName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]

VERSIONS_PER_EPOCH = 2**20
"""Versions of a later epoch are all higher, whatever the clocks of brokers say."""


class SessionRecord(msgspec.Struct, frozen=True):
    """A login: the generation of its refresh token, when it ends, and what its tokens are limited to."""

    generation: int
    expires: int
    """Unix milliseconds."""
    allow: list[ChannelScope] | None = None

    def change(self, name: str, sid: str) -> SessionChange:
        """Return the change that creates this session of a subscriber, or refreshes it."""
        return SessionChange(name, sid, self.generation, self.expires, self.allow)


class SubscriptionRecord(msgspec.Struct):
    """A subscription of a subscriber, and up to where it has acknowledged."""

    channel: str
    values: list[Scalar]
    acked: int
    version: int = 0
    """Orders all changes of one subscription, whichever brokers make them: the highest version wins."""

    def addition(self, name: str, id: str) -> AddSubscription:
        """Return the change that creates this subscription of a subscriber."""
        return AddSubscription(name, id, self.channel, self.values, self.acked, self.version)


class SubscriberRecord(msgspec.Struct):
    """A subscriber."""

    name: str
    hash: str
    """Of the password, by Argon2id."""
    sessions: dict[str, SessionRecord] = {}
    subscriptions: dict[str, SubscriptionRecord] = {}
    clock: int = 0
    """The highest version that any change of its subscriptions has had."""
    epoch: int = 0
    """The serial number of its last move, or of its last change by an operator; 0 without a coordinator."""
    born: int = 0
    """The epoch in which it was registered: an account of an earlier one is another account."""
    disabled: bool = False
    """Whether an operator has disabled the account: it gets no answers, and keeps its subscriptions."""
    created: int = 0
    """When it was registered, in Unix seconds; 0 if that is unknown."""

    def next_version(self) -> int:
        """Return a version above all that are known, and above all of earlier epochs."""
        self.clock = max(self.clock + 1, self.epoch * VERSIONS_PER_EPOCH)
        return self.clock


class SubscriberAccount(msgspec.Struct, frozen=True):
    """A subscriber as operators see it."""

    name: str
    broker: Annotated[str, msgspec.Meta(description="its broker")]
    subscriptions: int
    sessions: int
    state: Literal["active", "disabled"]
    created: Annotated[int | None, msgspec.Meta(description="in Unix seconds; null if it is not known")]


class SubscriberAccounts(msgspec.Struct):
    """A page of subscribers."""

    subscribers: list[SubscriberAccount]
    next: Annotated[
        str | None, msgspec.Meta(description="give it as `after` to go on; null if this is the last page")
    ]


class _Change(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="op"):
    name: Name


class SessionChange(_Change, frozen=True, gc=False, tag="session"):
    """A session that was begun, or refreshed."""

    sid: Id
    generation: Count
    expires: Count
    allow: list[ChannelScope] | None = None
    epoch: Count = 0
    """Of the record that was changed: one of before the subscriber was registered is about another account."""


class EndSession(_Change, frozen=True, gc=False, tag="end"):
    """A session that was ended."""

    sid: Id
    epoch: Count = 0


class AddSubscription(_Change, frozen=True, gc=False, tag="subscribe"):
    """A subscription that was made."""

    id: Id
    channel: ChannelName
    values: list[Scalar]
    acked: Count
    version: Count = 0
    """Orders the changes of one subscription: epoch times VERSIONS_PER_EPOCH, and a number."""


class RemoveSubscription(_Change, frozen=True, gc=False, tag="unsubscribe"):
    """A subscription that was dropped."""

    id: Id
    version: Count = 0


class Ack(_Change, frozen=True, gc=False, tag="ack"):
    """Results of a subscription that were acknowledged, up to a position."""

    id: Id
    position: Count
    version: Count = 0
    """Of the subscription: an acknowledgement does not apply to a later subscription of the same id."""


SubscriberChange = SessionChange | EndSession | AddSubscription | RemoveSubscription | Ack
