"""Brokers' changes to subscribers, in SQLite: what is applied of them, and who has to catch up afterwards.

Homes' own changes are applied as they are. Those of a broker that was the home before come late, after the present
home has read the record: they were answered to somebody, so they count, as far as nothing goes back by them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from enum import Enum

from newsstand.coordinator.records import (
    EPOCH,
    Acknowledged,
    Applied,
    Change,
    SessionChanged,
    SessionEnded,
    Subscribed,
    Unsubscribed,
)
from newsstand.coordinator.subscribers_sql import as_json
from newsstand.serving.limits import MOST_SESSIONS

MOST_TOMBSTONES = 1_000
"""Removed subscriptions that are kept of one subscriber: the last ones."""

_SESSION = """
INSERT INTO sessions SELECT :name, :sid, :generation, :expires, :allow
    WHERE NOT EXISTS (SELECT 1 FROM ended e WHERE e.name = :name AND e.sid = :sid)
ON CONFLICT (name, sid) DO UPDATE
    SET generation = excluded.generation, expires = excluded.expires, allow = excluded.allow
    WHERE excluded.generation >= generation + :late
"""
_ENDED = "INSERT OR REPLACE INTO ended SELECT name, sid, expires FROM sessions WHERE name = :name AND sid = :sid"
_END = "DELETE FROM sessions WHERE name = :name AND sid = :sid"
_FEWER = """
DELETE FROM {0} WHERE name = :name AND sid IN
    (SELECT sid FROM {0} WHERE name = :name ORDER BY expires DESC, sid LIMIT -1 OFFSET :most)
"""
_SUBSCRIBE = """
INSERT INTO subscriptions (name, id, channel, vals, acked, version)
    SELECT :name, :id, :channel, :vals, :acked, :version
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
_FEWER_TOMBSTONES = """
DELETE FROM tombstones WHERE name = :name AND id IN
    (SELECT id FROM tombstones WHERE name = :name ORDER BY version DESC LIMIT -1 OFFSET :most)
"""
_UNSUBSCRIBE = "DELETE FROM subscriptions WHERE name = :name AND id = :id AND version <= :version"
_ACK = """
UPDATE subscriptions SET acked = :position
    WHERE name = :name AND id = :id AND version = :version AND acked < :position
"""
_WHOSE = """
SELECT t.name,
    t.home = :broker OR coalesce(a.unread_since = :broker, false),
    a.name IS NOT NULL AND coalesce(m.serial > :released, false),
    t.born, t.sessions_from
FROM (SELECT DISTINCT value FROM json_each(:names)) asked CROSS JOIN subscribers t ON t.name = asked.value
LEFT JOIN handovers a ON a.broker = t.home AND a.name = t.name AND a.kind = 'adopt'
LEFT JOIN handovers m ON m.broker = :broker AND m.name = t.name AND m.kind = 'moved'
"""
ADOPT_AGAIN = """
INSERT INTO handovers SELECT t.home, t.name, 'adopt', :serial, NULL FROM subscribers t WHERE t.name = :name
ON CONFLICT (broker, name) DO UPDATE SET kind = 'adopt', serial = excluded.serial WHERE unread_since IS NULL
"""


class _Whose(Enum):
    OWN = "the broker's, or not read by anybody else yet"
    HELD = "another broker's, which has not confirmed it"
    LEFT = "another broker's"


def apply_changes(
    connection: sqlite3.Connection, broker: str, changes: Sequence[Change], released: int, serial: int
) -> Applied:
    """Apply a broker's changes in order; `serial` is the number of the handovers that come of it."""
    names = dict.fromkeys(one.name for one in changes)
    whose = _whose(connection, broker, names, released)
    behind: set[str] = set()
    applied = 0
    for change in changes:
        if change.name not in whose:
            continue
        of, born, sessions_from = whose[change.name]
        if 0 < _epoch(change) < born:
            continue  # the account of that name was deleted, and this is another one
        if isinstance(change, SessionChanged) and change.epoch < sessions_from:
            behind.add(change.name)  # an operator has ended it
            continue
        is_late = of is not _Whose.OWN
        has_effect = _apply(connection, change, is_late)
        applied += has_effect or not is_late
        if _puts_behind(change, is_late, has_effect):
            behind.add(change.name)
    _prune(connection, changes)
    connection.executemany(ADOPT_AGAIN, ({"name": name, "serial": serial} for name in behind))
    nobodys = (_Whose.LEFT, 0, 0)
    left = [name for name in names if whose.get(name, nobodys)[0] is _Whose.LEFT]
    late = [name for name in names if whose.get(name, nobodys)[0] is not _Whose.OWN]
    return Applied(applied, left, late, serial)


def _epoch(change: Change) -> int:
    if isinstance(change, SessionChanged | SessionEnded):
        return change.epoch
    return change.version // EPOCH


def _puts_behind(change: Change, is_late: bool, has_effect: bool) -> bool:
    """Whether the present home does not know what became of a change.

    A home that tells of a session or a subscription that was ended elsewhere has to learn that.
    """
    if is_late:
        return has_effect
    return isinstance(change, SessionChanged | Subscribed) and not has_effect


def _whose(
    connection: sqlite3.Connection, broker: str, names: Iterable[str], released: int
) -> dict[str, tuple[_Whose, int, int]]:
    """Return whose each of some subscribers is, its first epoch, and the first of its sessions."""
    asked = {"names": as_json(list(names)), "broker": broker, "released": released}
    return {
        name: (_Whose.OWN if is_own else _Whose.HELD if is_held else _Whose.LEFT, born, sessions_from)
        for name, is_own, is_held, born, sessions_from in connection.execute(_WHOSE, asked)
    }


def _apply(connection: sqlite3.Connection, change: Change, is_late: bool) -> bool:
    """Apply one change; whether it had an effect."""
    statement, given = _statement(change)
    if isinstance(change, SessionEnded):
        connection.execute(_ENDED, given)
    if isinstance(change, Unsubscribed):
        connection.execute(_REMOVED, {**given, "name": change.name})
    return connection.execute(statement, {**given, "name": change.name, "late": is_late}).rowcount > 0


def _statement(change: Change) -> tuple[str, dict[str, object]]:
    match change:
        case SessionChanged(_, sid, generation, expires, allow):
            told = {"sid": sid, "generation": generation, "expires": expires, "allow": as_json(allow)}
            return _SESSION, told
        case SessionEnded(name, sid):
            return _END, {"name": name, "sid": sid}
        case Subscribed(name, id_, channel, values, acked, version):
            made = {"id": id_, "channel": channel, "vals": as_json(values), "acked": acked, "version": version}
            return _SUBSCRIBE, made
        case Unsubscribed(name, id_, version):
            return _UNSUBSCRIBE, {"id": id_, "version": version}
        case Acknowledged(name, id_, position, version):
            return _ACK, {"id": id_, "position": position, "version": version}


def _prune(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    """Keep MOST_SESSIONS sessions of one subscriber, and ends of sessions: those that expire last."""
    for kind, table in ((SessionChanged, "sessions"), (SessionEnded, "ended")):
        grown = {one.name for one in changes if isinstance(one, kind)}
        connection.executemany(_FEWER.format(table), ({"name": name, "most": MOST_SESSIONS} for name in grown))
    removed = {one.name for one in changes if isinstance(one, Unsubscribed)}
    connection.executemany(_FEWER_TOMBSTONES, ({"name": name, "most": MOST_TOMBSTONES} for name in removed))
