"""Application of brokers' changes to subscribers, in SQLite.

Changes of the present broker are applied as they are. Changes of an earlier broker that arrive after the present
one has read the record are late: clients have answers to them, so they apply as far as they undo nothing newer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from msgspec import structs

from newsstand.coordinator.store.tables import as_json
from newsstand.wire.coordination import ChangesResponse
from newsstand.wire.subscribers import (
    VERSIONS_PER_EPOCH,
    Ack,
    AddSubscription,
    EndSession,
    RemoveSubscription,
    SessionChange,
    SubscriberChange,
)

_SESSION = """
INSERT INTO sessions SELECT :name, :sid, :generation, :expires, :allow
    WHERE NOT EXISTS (SELECT 1 FROM ended e WHERE e.name = :name AND e.sid = :sid)
ON CONFLICT (name, sid) DO UPDATE
    SET generation = excluded.generation, expires = excluded.expires, allow = excluded.allow
    WHERE excluded.generation >= generation + :late
"""
_ENDED = "INSERT OR REPLACE INTO ended SELECT name, sid, expires FROM sessions WHERE name = :name AND sid = :sid"
_END = "DELETE FROM sessions WHERE name = :name AND sid = :sid"
_SUBSCRIBE = """
INSERT INTO subscriptions (name, id, channel, vals, acked, version)
    SELECT :name, :id, :channel, :values, :acked, :version
    WHERE NOT EXISTS (SELECT 1 FROM tombstones t WHERE t.name = :name AND t.id = :id AND t.version > :version)
ON CONFLICT (name, id) DO UPDATE
    SET channel = excluded.channel, vals = excluded.vals, version = excluded.version,
        acked = CASE WHEN excluded.version > version THEN excluded.acked ELSE max(acked, excluded.acked) END
    WHERE excluded.version > version OR (excluded.version = version AND NOT :late)
"""
_REMOVED = """
INSERT INTO tombstones SELECT :name, :id, :version, unixepoch() WHERE :version > 0
ON CONFLICT (name, id) DO UPDATE SET version = excluded.version, at = excluded.at WHERE excluded.version > version
"""
_UNSUBSCRIBE = "DELETE FROM subscriptions WHERE name = :name AND id = :id AND version <= :version"
_ACK = """
UPDATE subscriptions SET acked = :position
    WHERE name = :name AND id = :id AND version = :version AND acked < :position
"""
_OWNERSHIP = """
SELECT t.name,
    t.broker = :broker OR coalesce(a.unread_since = :broker, false),
    a.name IS NOT NULL AND coalesce(m.serial > :released, false),
    t.born, t.sessions_from
FROM (SELECT DISTINCT value FROM json_each(:names)) asked CROSS JOIN subscribers t ON t.name = asked.value
LEFT JOIN handovers a ON a.broker = t.broker AND a.name = t.name AND a.kind = 'adopt'
LEFT JOIN handovers m ON m.broker = :broker AND m.name = t.name AND m.kind = 'moved'
"""
ADOPT_AGAIN = """
INSERT INTO handovers SELECT t.broker, t.name, 'adopt', :serial, NULL FROM subscribers t WHERE t.name = :name
ON CONFLICT (broker, name) DO UPDATE SET kind = 'adopt', serial = excluded.serial WHERE unread_since IS NULL
"""


_STATEMENTS: dict[type[SubscriberChange], str] = {
    SessionChange: _SESSION,
    EndSession: _END,
    AddSubscription: _SUBSCRIBE,
    RemoveSubscription: _UNSUBSCRIBE,
    Ack: _ACK,
}
_JSON = ("allow", "values")
"""Fields that are stored as JSON."""


class _Ownership(Enum):
    OWN = "the broker's, or not read by another broker yet"
    HELD = "another broker's, unconfirmed"
    LEFT = "another broker's"


def apply_changes(
    connection: sqlite3.Connection,
    broker: str,
    changes: Sequence[SubscriberChange],
    released: int,
    serial: int,
    most: Mapping[str, int],
) -> ChangesResponse:
    """Apply a broker's changes in order; `serial` is the number of the resulting handovers.

    `most` has the number of rows per subscriber that tables may keep.
    """
    names = dict.fromkeys(one.name for one in changes)
    ownership = _ownership(connection, broker, names, released)
    outdated: set[str] = set()
    applied = 0
    for change in changes:
        if change.name not in ownership:
            continue
        of, born, sessions_from = ownership[change.name]
        if 0 < _epoch(change) < born:
            continue  # the account of that name was deleted, and this is another one
        if isinstance(change, SessionChange) and change.epoch < sessions_from:
            outdated.add(change.name)  # an operator has ended it
            continue
        is_late = of is not _Ownership.OWN
        has_effect = _apply(connection, change, is_late)
        applied += has_effect or not is_late
        if _outdates_record(change, is_late, has_effect):
            outdated.add(change.name)
    _prune(connection, changes, most)
    connection.executemany(ADOPT_AGAIN, ({"name": name, "serial": serial} for name in outdated))
    nobodys = (_Ownership.LEFT, 0, 0)
    left = [name for name in names if ownership.get(name, nobodys)[0] is _Ownership.LEFT]
    late = [name for name in names if ownership.get(name, nobodys)[0] is not _Ownership.OWN]
    return ChangesResponse(applied, left, late, serial)


def _epoch(change: SubscriberChange) -> int:
    if isinstance(change, SessionChange | EndSession):
        return change.epoch
    return change.version // VERSIONS_PER_EPOCH


def _outdates_record(change: SubscriberChange, is_late: bool, has_effect: bool) -> bool:
    """Return whether the present broker has to read the record again.

    A broker that reports a session or a subscription that was ended elsewhere has to learn of the end.
    """
    if is_late:
        return has_effect
    return isinstance(change, SessionChange | AddSubscription) and not has_effect


def _ownership(
    connection: sqlite3.Connection, broker: str, names: Iterable[str], released: int
) -> dict[str, tuple[_Ownership, int, int]]:
    """Return the ownership of subscribers, their first epochs, and the first epochs of their sessions."""
    asked = {"names": as_json(list(names)), "broker": broker, "released": released}
    return {
        name: (_Ownership.OWN if is_own else _Ownership.HELD if is_held else _Ownership.LEFT, born, sessions_from)
        for name, is_own, is_held, born, sessions_from in connection.execute(_OWNERSHIP, asked)
    }


def _apply(connection: sqlite3.Connection, change: SubscriberChange, is_late: bool) -> bool:
    """Apply one change; return whether it had an effect."""
    fields = {**structs.asdict(change), "late": is_late}
    given = {name: as_json(value) if name in _JSON else value for name, value in fields.items()}
    if isinstance(change, EndSession):
        connection.execute(_ENDED, given)
    if isinstance(change, RemoveSubscription):
        connection.execute(_REMOVED, given)
    return connection.execute(_STATEMENTS[type(change)], given).rowcount > 0


def _prune(connection: sqlite3.Connection, changes: Sequence[SubscriberChange], most: Mapping[str, int]) -> None:
    """Keep `most` sessions, ends of sessions and tombstones of a subscriber: those that expire last or are new."""
    for kind, table, key, order in (
        (SessionChange, "sessions", "sid", "expires DESC, sid"),
        (EndSession, "ended", "sid", "expires DESC, sid"),
        (RemoveSubscription, "tombstones", "id", "version DESC"),
    ):
        grown = {one.name for one in changes if isinstance(one, kind)}
        connection.executemany(
            f"DELETE FROM {table} WHERE name = :name AND {key} IN "
            f"(SELECT {key} FROM {table} WHERE name = :name ORDER BY {order} LIMIT -1 OFFSET :most)",
            ({"name": name, "most": most[table]} for name in grown),
        )
