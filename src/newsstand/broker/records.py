"""What a broker knows of its subscribers, and the changes to it, for its store and for the coordinator."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence

import msgspec

from newsstand.model import Scalar, canonical


class Allowed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Channels whose name fits a pattern, with values that fit patterns; part of what a token may be used for."""

    channel: str
    values: dict[str, Scalar | list[Scalar]] = {}


class Session(msgspec.Struct, frozen=True):
    """A login: the generation of its refresh token, when it ends, and what its tokens are limited to."""

    generation: int
    expires: int
    """Unix milliseconds."""
    allow: list[Allowed] | None = None


class Held(msgspec.Struct):
    """A subscription of a subscriber's, and up to where it has acknowledged."""

    channel: str
    values: list[Scalar]
    acked: int
    version: int = 0
    """Orders all changes of one subscription, whichever brokers make them: the highest version wins."""


class Record(msgspec.Struct):
    """A subscriber."""

    name: str
    hash: str
    """Of the password, by Argon2id."""
    sessions: dict[str, Session] = {}
    subscriptions: dict[str, Held] = {}
    clock: int = 0
    """The highest version that any change of its subscriptions has had."""
    epoch: int = 0
    """Since when its home is its home: the coordinator counts moves. 0 without a coordinator."""
    born: int = 0
    """The epoch in which it was registered: an account of an earlier one is another account."""
    disabled: bool = False
    """Whether an operator has disabled the account: it gets no answers, and keeps its subscriptions."""
    created: int = 0
    """When it was registered, in Unix seconds; 0 if that is not known here."""

    def next_version(self) -> int:
        """Return a version above all that are known, and above all of earlier epochs."""
        self.clock = max(self.clock + 1, self.epoch * EPOCH)
        return self.clock


EPOCH = 2**20
"""Versions of one epoch: those of a later epoch are all higher, whatever the clocks of brokers say."""


class Adopt(msgspec.Struct, tag_field="op", tag="adopt", frozen=True):
    """A subscriber is at home here now. The coordinator knows of it before the broker does."""

    record: Record


class Forget(msgspec.Struct, tag_field="op", tag="forget", frozen=True):
    """A subscriber has moved to another broker."""

    name: str


class SessionChange(msgspec.Struct, tag_field="op", tag="session", frozen=True):
    """A session was begun or refreshed."""

    name: str
    sid: str
    generation: int
    expires: int
    allow: list[Allowed] | None = None
    epoch: int = 0


class EndSession(msgspec.Struct, tag_field="op", tag="end", frozen=True):
    """A session was ended."""

    name: str
    sid: str
    epoch: int = 0


class Subscribe(msgspec.Struct, tag_field="op", tag="subscribe", frozen=True):
    """A subscription was made."""

    name: str
    id: str
    channel: str
    values: list[Scalar]
    acked: int
    version: int = 0


class Unsubscribe(msgspec.Struct, tag_field="op", tag="unsubscribe", frozen=True):
    """A subscription was dropped."""

    name: str
    id: str
    version: int = 0


class Ack(msgspec.Struct, tag_field="op", tag="ack", frozen=True):
    """Results up to a position were acknowledged."""

    name: str
    id: str
    position: int
    version: int = 0
    """Of the subscription: an acknowledgement does not apply to a later subscription of the same id."""


class Merge(msgspec.Struct, tag_field="op", tag="merge", frozen=True):
    """What the coordinator knows of a subscriber and this broker did not: it is not sent back."""

    name: str
    hash: str
    epoch: int
    changes: list[SessionChange | EndSession | Subscribe | Unsubscribe | Ack] = []
    disabled: bool = False


Change = Adopt | Forget | Merge | SessionChange | EndSession | Subscribe | Unsubscribe | Ack
HERE_ONLY = (Adopt, Forget, Merge)
"""Changes that the coordinator is not told of: it knew them first."""


def apply(records: dict[str, Record], change: Change) -> None:
    """Make a change to what is in memory. A subscriber that is not at home here is passed over."""
    if isinstance(change, Adopt):
        records.setdefault(change.record.name, change.record)
        return
    if isinstance(change, Forget):
        records.pop(change.name, None)
        return
    record = records.get(change.name)
    if record is None:
        return
    if isinstance(change, Merge):
        record.hash, record.epoch = change.hash, max(record.epoch, change.epoch)
        record.disabled = change.disabled
        for one in change.changes:
            apply(records, one)
        return
    if isinstance(change, Subscribe | Unsubscribe):
        record.clock = max(record.clock, change.version)
    match change:
        case SessionChange():
            record.sessions[change.sid] = Session(change.generation, change.expires, change.allow)
        case EndSession():
            record.sessions.pop(change.sid, None)
        case Subscribe():
            held = record.subscriptions.get(change.id)
            if held is None or held.version < change.version:
                made = Held(change.channel, change.values, change.acked, change.version)
                record.subscriptions[change.id] = made
        case Unsubscribe():
            held = record.subscriptions.get(change.id)
            if held is not None and held.version <= change.version:
                del record.subscriptions[change.id]
        case Ack():
            held = record.subscriptions.get(change.id)
            if held is not None and held.version == change.version:
                held.acked = max(held.acked, change.position)


Merged = SessionChange | EndSession | Subscribe | Unsubscribe | Ack


def missing(known: Record, found: Record, unsent: Sequence[Change] = ()) -> Iterator[Merged]:
    """Yield the changes that make a record at this broker equal to the coordinator's.

    The coordinator does not know what is `unsent`: only a higher version undoes an unsent change.
    A position never goes back, and a session that has ended does not return.
    """
    begun = {one.sid for one in unsent if isinstance(one, SessionChange) and one.name == found.name}
    ended = {one.sid for one in unsent if isinstance(one, EndSession) and one.name == found.name}
    versions: dict[str, int] = {}
    for one in unsent:
        if isinstance(one, Subscribe | Unsubscribe) and one.name == found.name:
            versions[one.id] = max(versions.get(one.id, 0), one.version)
    for sid in known.sessions.keys() - found.sessions.keys() - begun:
        yield EndSession(found.name, sid)
    for key in known.subscriptions.keys() - found.subscriptions.keys() - versions.keys():
        yield Unsubscribe(found.name, key, known.subscriptions[key].version)
    for sid, session in found.sessions.items():
        here = known.sessions.get(sid)
        if sid not in ended and (here is None or here.generation < session.generation):
            yield SessionChange(found.name, sid, session.generation, session.expires, session.allow)
    for key, held in found.subscriptions.items():
        own = known.subscriptions.get(key)
        if own is None or own.version < held.version:
            if key not in versions or versions[key] < held.version:
                yield Subscribe(found.name, key, held.channel, held.values, held.acked, held.version)
        elif own.version == held.version and own.acked < held.acked:
            yield Ack(found.name, key, held.acked, held.version)


def frontend_id(subscriber: str, channel: str, values: list[Scalar]) -> str:
    """The id of a subscriber's subscription: the same for the same channel and values, at every broker."""
    text = json.dumps([subscriber, channel, canonical(values)], ensure_ascii=False)
    digest = hashlib.blake2b(text.encode(), digest_size=15, person=b"frontend").digest()
    return base64.b32encode(digest).decode().lower()
