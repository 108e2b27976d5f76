"""The state of a broker's subscribers, and changes to it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence

import msgspec

from newsstand.model import Scalar, canonical
from newsstand.wire.subscribers import (
    Ack,
    AddSubscription,
    EndSession,
    RemoveSubscription,
    SessionChange,
    SessionRecord,
    SubscriberChange,
    SubscriberRecord,
    SubscriptionRecord,
)


class Adopt(msgspec.Struct, tag_field="op", tag="adopt", frozen=True):
    """Take over a subscriber with its record of the coordinator."""

    record: SubscriberRecord


class Forget(msgspec.Struct, tag_field="op", tag="forget", frozen=True):
    """Remove a subscriber that has moved to another broker."""

    name: str


class Merge(msgspec.Struct, tag_field="op", tag="merge", frozen=True):
    """Merge the coordinator's record of a subscriber."""

    name: str
    hash: str
    epoch: int
    changes: list[SubscriberChange] = []
    disabled: bool = False


Change = Adopt | Forget | Merge | SubscriberChange
HERE_ONLY = (Adopt, Forget, Merge)
"""Changes that are not sent to the coordinator: they come from there."""


def apply(records: dict[str, SubscriberRecord], change: Change) -> None:
    """Apply a change in memory; changes of subscribers of other brokers are ignored."""
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
    if isinstance(change, AddSubscription | RemoveSubscription):
        record.clock = max(record.clock, change.version)
    match change:
        case SessionChange():
            record.sessions[change.sid] = SessionRecord(change.generation, change.expires, change.allow)
        case EndSession():
            record.sessions.pop(change.sid, None)
        case AddSubscription():
            old = record.subscriptions.get(change.id)
            if old is None or old.version < change.version:
                made = SubscriptionRecord(change.channel, change.values, change.acked, change.version)
                record.subscriptions[change.id] = made
        case RemoveSubscription():
            old = record.subscriptions.get(change.id)
            if old is not None and old.version <= change.version:
                del record.subscriptions[change.id]
        case Ack():
            old = record.subscriptions.get(change.id)
            if old is not None and old.version == change.version:
                old.acked = max(old.acked, change.position)


def diff(
    known: SubscriberRecord, found: SubscriberRecord, unsent: Sequence[Change] = ()
) -> Iterator[SubscriberChange]:
    """Yield the changes that make a record at this broker equal to the coordinator's.

    The coordinator does not know what is `unsent`: only a higher version undoes an unsent change.
    A position never goes back, and a session that has ended does not return.
    """
    begun = {one.sid for one in unsent if isinstance(one, SessionChange) and one.name == found.name}
    ended = {one.sid for one in unsent if isinstance(one, EndSession) and one.name == found.name}
    versions: dict[str, int] = {}
    for one in unsent:
        if isinstance(one, AddSubscription | RemoveSubscription) and one.name == found.name:
            versions[one.id] = max(versions.get(one.id, 0), one.version)
    for sid in known.sessions.keys() - found.sessions.keys() - begun:
        yield EndSession(found.name, sid)
    for key in known.subscriptions.keys() - found.subscriptions.keys() - versions.keys():
        yield RemoveSubscription(found.name, key, known.subscriptions[key].version)
    for sid, session in found.sessions.items():
        here = known.sessions.get(sid)
        if sid not in ended and (here is None or here.generation < session.generation):
            yield session.change(found.name, sid)
    for key, other in found.subscriptions.items():
        own = known.subscriptions.get(key)
        if own is None or own.version < other.version:
            if key not in versions or versions[key] < other.version:
                yield other.addition(found.name, key)
        elif own.version == other.version and own.acked < other.acked:
            yield Ack(found.name, key, other.acked, other.version)


def frontend_id(subscriber: str, channel: str, values: list[Scalar]) -> str:
    """Return the id of a subscription: the same for the same channel and values at every broker."""
    text = json.dumps([subscriber, channel, canonical(values)], ensure_ascii=False)
    digest = hashlib.blake2b(text.encode(), digest_size=15, person=b"frontend").digest()
    return base64.b32encode(digest).decode().lower()
