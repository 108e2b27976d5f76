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


class Record(msgspec.Struct):
    """A subscriber."""

    name: str
    hash: str
    """Of the password, by Argon2id."""
    sessions: dict[str, Session] = {}
    subscriptions: dict[str, Held] = {}


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


class EndSession(msgspec.Struct, tag_field="op", tag="end", frozen=True):
    """A session was ended."""

    name: str
    sid: str


class Subscribe(msgspec.Struct, tag_field="op", tag="subscribe", frozen=True):
    """A subscription was made."""

    name: str
    id: str
    channel: str
    values: list[Scalar]
    acked: int


class Unsubscribe(msgspec.Struct, tag_field="op", tag="unsubscribe", frozen=True):
    """A subscription was dropped."""

    name: str
    id: str


class Ack(msgspec.Struct, tag_field="op", tag="ack", frozen=True):
    """Results up to a position were acknowledged."""

    name: str
    id: str
    position: int


Change = Adopt | Forget | SessionChange | EndSession | Subscribe | Unsubscribe | Ack
HERE_ONLY = (Adopt, Forget)
"""Changes that the coordinator is not told of: it told the broker."""


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
    match change:
        case SessionChange():
            record.sessions[change.sid] = Session(change.generation, change.expires, change.allow)
        case EndSession():
            record.sessions.pop(change.sid, None)
        case Subscribe():
            record.subscriptions.setdefault(change.id, Held(change.channel, change.values, change.acked))
        case Unsubscribe():
            record.subscriptions.pop(change.id, None)
        case Ack():
            held = record.subscriptions.get(change.id)
            if held is not None:
                held.acked = max(held.acked, change.position)


def missing(known: Record, found: Record, unsent: Sequence[Change] = ()) -> Iterator[Change]:
    """What has to be done to a record so that it tells what another one does; positions never go back.

    What is `unsent` the other one cannot know of yet.
    """
    untold = {one.sid for one in unsent if isinstance(one, SessionChange)}
    untold |= {one.id for one in unsent if isinstance(one, Subscribe)}
    for sid in known.sessions.keys() - found.sessions.keys() - untold:
        yield EndSession(found.name, sid)
    for key in known.subscriptions.keys() - found.subscriptions.keys() - untold:
        yield Unsubscribe(found.name, key)
    for sid, session in found.sessions.items():
        here = known.sessions.get(sid)
        if here is None or here.generation < session.generation:
            yield SessionChange(found.name, sid, session.generation, session.expires, session.allow)
    for key, held in found.subscriptions.items():
        own = known.subscriptions.get(key)
        if own is None:
            yield Subscribe(found.name, key, held.channel, held.values, held.acked)
        elif own.acked < held.acked:
            yield Ack(found.name, key, held.acked)


def frontend_id(subscriber: str, channel: str, values: list[Scalar]) -> str:
    """The id of a subscriber's subscription: the same for the same channel and values, at every broker."""
    text = json.dumps([subscriber, channel, canonical(values)], ensure_ascii=False)
    digest = hashlib.blake2b(text.encode(), digest_size=15, person=b"frontend").digest()
    return base64.b32encode(digest).decode().lower()
