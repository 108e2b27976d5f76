"""Subscribers in SQLite: their records, and brokers' changes to them. Each function works within a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from newsstand.coordinator.records import (
    Acknowledged,
    Applied,
    Change,
    Record,
    SessionChanged,
    SessionEnded,
    Subscribed,
)

MOST_SESSIONS = 100
"""Sessions that are kept of one subscriber: those that expire last."""

_SESSION = """
INSERT INTO sessions VALUES (?, ?, ?, ?, ?) ON CONFLICT (name, sid) DO UPDATE
    SET generation = excluded.generation, expires = excluded.expires, allow = excluded.allow
"""
_FEWER_SESSIONS = """
DELETE FROM sessions WHERE name = :name AND sid IN
    (SELECT sid FROM sessions WHERE name = :name ORDER BY expires DESC, sid LIMIT -1 OFFSET :most)
"""
_SUBSCRIBE = """
INSERT INTO subscriptions VALUES (?, ?, ?, ?, ?) ON CONFLICT (name, id) DO UPDATE
    SET channel = excluded.channel, vals = excluded.vals, acked = max(acked, excluded.acked)
"""
_ACK = "UPDATE subscriptions SET acked = :position WHERE name = :name AND id = :id AND acked < :position"
_OWN = """
SELECT t.name FROM json_each(:names) asked CROSS JOIN subscribers t ON t.name = asked.value
WHERE t.home = :broker OR EXISTS (SELECT 1 FROM handovers h WHERE h.broker = t.home AND h.name = t.name
    AND h.kind = 'adopt' AND h.unread_since = :broker)
"""


def read_homes(connection: sqlite3.Connection, names: Collection[str]) -> dict[str, str]:
    """The home of each of some subscribers."""
    return dict(_rows(connection, "t.name, t.home", "subscribers", names))


def read_records(connection: sqlite3.Connection, names: Collection[str]) -> dict[str, Record]:
    """Subscribers with all that is theirs."""
    sessions: dict[str, dict[str, object]] = {}
    subscriptions: dict[str, dict[str, object]] = {}
    for name, sid, generation, expires, allow in _rows(
        connection, "t.name, t.sid, t.generation, t.expires, t.allow", "sessions", names
    ):
        one = {"generation": generation, "expires": expires, "allow": msgspec.json.decode(allow)}
        sessions.setdefault(name, {})[sid] = one
    for name, id_, channel, values, acked in _rows(
        connection, "t.name, t.id, t.channel, t.vals, t.acked", "subscriptions", names
    ):
        one = {"channel": channel, "values": msgspec.json.decode(values), "acked": acked}
        subscriptions.setdefault(name, {})[id_] = one
    return {
        name: {
            "name": name,
            "hash": hash_,
            "sessions": sessions.get(name, {}),
            "subscriptions": subscriptions.get(name, {}),
        }
        for name, hash_ in _rows(connection, "t.name, t.hash", "subscribers", names)
    }


def unread(connection: sqlite3.Connection, names: Collection[str], reader: str) -> list[str]:
    """Those of some subscribers that a broker is to adopt and has not read yet."""
    rows = _rows(connection, "t.name, t.broker, t.unread_since", "handovers", names, "AND t.broker = ?", reader)
    return [name for name, _, since in rows if since is not None]


def mark_read(connection: sqlite3.Connection, names: Iterable[str], reader: str) -> None:
    """A broker has read what it is to adopt: nobody else's changes are applied from now on."""
    connection.executemany(
        "UPDATE handovers SET unread_since = NULL WHERE broker = ? AND name = ?",
        ((reader, name) for name in names),
    )


def apply_changes(connection: sqlite3.Connection, broker: str, changes: Sequence[Change]) -> Applied:
    """Apply a broker's changes in order; acknowledgements always, the rest to those that are its own."""
    names = dict.fromkeys(one.name for one in changes)
    asked = {"names": _json(list(names)), "broker": broker}
    own = {name for (name,) in connection.execute(_OWN, asked)}
    grown: set[str] = set()
    applied = 0
    for change in changes:
        if isinstance(change, Acknowledged):
            given = {"name": change.name, "id": change.id, "position": change.position}
            connection.execute(_ACK, given)
        elif change.name in own:
            _apply(connection, change)
            if isinstance(change, SessionChanged):
                grown.add(change.name)
        applied += change.name in own
    connection.executemany(_FEWER_SESSIONS, ({"name": name, "most": MOST_SESSIONS} for name in grown))
    return Applied(applied, [name for name in names if name not in own])


def _apply(connection: sqlite3.Connection, change: Change) -> None:
    if isinstance(change, SessionChanged):
        allow = _json(change.allow)
        connection.execute(_SESSION, (change.name, change.sid, change.generation, change.expires, allow))
    elif isinstance(change, SessionEnded):
        connection.execute("DELETE FROM sessions WHERE name = ? AND sid = ?", (change.name, change.sid))
    elif isinstance(change, Subscribed):
        values = _json(change.values)
        connection.execute(_SUBSCRIBE, (change.name, change.id, change.channel, values, change.acked))
    else:
        connection.execute("DELETE FROM subscriptions WHERE name = ? AND id = ?", (change.name, change.id))


def _rows(
    connection: sqlite3.Connection, columns: str, table: str, names: Collection[str], and_: str = "", *more: str
) -> Iterable[tuple[Any, ...]]:
    """The rows of a table that belong to some names: the table is looked into by name, never read as a whole."""
    return connection.execute(
        f"SELECT {columns} FROM (SELECT DISTINCT value FROM json_each(?)) asked "
        f"CROSS JOIN {table} t ON t.name = asked.value {and_}",
        (_json(list(names)), *more),
    ).fetchall()


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
