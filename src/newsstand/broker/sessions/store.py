"""The subscribers of a broker in one SQLite file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from newsstand.auth.tokens import ChannelScope
from newsstand.broker.sessions.state import HERE_ONLY, Adopt, Change, Forget, Merge
from newsstand.model import Scalar
from newsstand.sqlite.database import Schema, SqliteFile
from newsstand.wire.subscribers import (
    Ack,
    AddSubscription,
    EndSession,
    RemoveSubscription,
    SessionChange,
    SessionRecord,
    SubscriberRecord,
    SubscriptionRecord,
)

_TABLES = """
CREATE TABLE IF NOT EXISTS subscribers (name TEXT PRIMARY KEY, hash TEXT NOT NULL,
    clock INTEGER NOT NULL DEFAULT 0, epoch INTEGER NOT NULL DEFAULT 0, born INTEGER NOT NULL DEFAULT 0,
    disabled INTEGER NOT NULL DEFAULT 0, created INTEGER NOT NULL DEFAULT 0)
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (name TEXT, sid TEXT, generation INTEGER NOT NULL, expires INTEGER NOT NULL,
    allow BLOB, PRIMARY KEY (name, sid)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS subscriptions (name TEXT, id TEXT, channel TEXT NOT NULL, given BLOB NOT NULL,
    acked INTEGER NOT NULL, version INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (name, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unsent (seq INTEGER PRIMARY KEY AUTOINCREMENT, subject TEXT UNIQUE,
    change BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
SCHEMA = Schema("subscribers", [_TABLES])
_SUBSCRIBER = "name, hash, clock, epoch, born, disabled, created"
_IF_LOCAL = "WHERE EXISTS (SELECT 1 FROM subscribers WHERE name = ?)"
"""Changes of subscribers of other brokers are ignored, as in memory."""
_ENCODE = msgspec.json.encode
_DECODE = msgspec.json.Decoder(Change).decode
_ALLOW = msgspec.json.Decoder(list[ChannelScope] | None).decode
_VALUES = msgspec.json.Decoder(list[Scalar]).decode


class SubscriberStore:
    """Subscribers of this broker, and changes that the coordinator has not confirmed yet.

    One file and one connection. `write` is one transaction, durable when it returns. Methods may be called from
    any thread.
    """

    def __init__(self, path: Path, *, replicate: bool, pragmas: Mapping[str, str | int] | None = None) -> None:
        """`replicate`: queue changes for the coordinator; `pragmas` are settings of SQLite."""
        self._replicate = replicate
        self._lock = threading.Lock()
        self._file = SqliteFile(path, SCHEMA, exclusive=True, pragmas=pragmas or {})
        self._connection = self._file.open()

    def load(self) -> dict[str, SubscriberRecord]:
        with self._lock:
            rows = self._connection.execute(f"SELECT {_SUBSCRIBER} FROM subscribers")
            records = {
                name: SubscriberRecord(name, hash, {}, {}, clock, epoch, born, bool(disabled), created)
                for name, hash, clock, epoch, born, disabled, created in rows
            }
            for name, sid, generation, expires, allow in self._connection.execute("SELECT * FROM sessions"):
                records[name].sessions[sid] = SessionRecord(generation, expires, _ALLOW(allow))
            rows = self._connection.execute("SELECT name, id, channel, given, acked, version FROM subscriptions")
            for name, key, channel, given, acked, version in rows:
                records[name].subscriptions[key] = SubscriptionRecord(channel, _VALUES(given), acked, version)
        return records

    def write(self, changes: Sequence[Change]) -> None:
        """Apply changes, in order."""
        with self._transaction() as cursor:
            for change in changes:
                _write(cursor, change)
                if self._replicate and not isinstance(change, HERE_ONLY):
                    _queue(cursor, change)

    def unsent(self, limit: int) -> tuple[int, list[Change]]:
        """Return the argument of `mark_sent` and the oldest queued changes; of acks only the last ones."""
        with self._lock:
            query = "SELECT seq, change FROM unsent ORDER BY seq LIMIT ?"
            rows = self._connection.execute(query, (limit,)).fetchall()
        return (rows[-1][0] if rows else 0), [_DECODE(change) for _, change in rows]

    def mark_sent(self, upto: int) -> None:
        """Remove changes that the coordinator has confirmed."""
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM unsent WHERE seq <= ?", (upto,))

    def set_meta(self, key: str, value: str) -> None:
        """Store a metadata value, e.g. the webhook secret."""
        with self._transaction() as cursor:
            cursor.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def get_meta(self, key: str) -> str | None:
        """Return a metadata value, None if it was never set."""
        with self._lock:
            row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with self._lock, self._file.transaction(self._connection) as connection:
            yield connection.cursor()


def _queue(cursor: sqlite3.Cursor, change: Change) -> None:
    """Queue a change for the coordinator; an acknowledgement replaces lower ones of its subscription."""
    subject = None
    if isinstance(change, Ack):
        subject = f"ack {change.name} {change.id} {change.version}"
        row = cursor.execute("SELECT change FROM unsent WHERE subject = ?", (subject,)).fetchone()
        queued = None if row is None else _DECODE(row[0])
        if isinstance(queued, Ack) and queued.position >= change.position:
            return
    # A replaced row gets a new number, so that `mark_sent` for the earlier one does not remove it.
    cursor.execute("INSERT OR REPLACE INTO unsent (subject, change) VALUES (?, ?)", (subject, _ENCODE(change)))


def _write(cursor: sqlite3.Cursor, change: Change) -> None:
    match change:
        case Adopt():
            record = change.record
            name = record.name
            cursor.execute(
                f"INSERT OR IGNORE INTO subscribers ({_SUBSCRIBER}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, record.hash, record.clock, record.epoch, record.born, record.disabled, record.created),
            )
            if not cursor.rowcount:
                return
            for sid, session in record.sessions.items():
                _write(cursor, session.change(name, sid))
            for key, subscription in record.subscriptions.items():
                _write(cursor, subscription.addition(name, key))
        case Merge():
            cursor.execute(
                "UPDATE subscribers SET hash = ?, epoch = max(epoch, ?), disabled = ? WHERE name = ?",
                (change.hash, change.epoch, change.disabled, change.name),
            )
            for one in change.changes:
                _write(cursor, one)
        case Forget():
            for table in ("subscribers", "sessions", "subscriptions"):
                cursor.execute(f"DELETE FROM {table} WHERE name = ?", (change.name,))
        case SessionChange():
            allow = _ENCODE(change.allow)
            begun = (change.name, change.sid, change.generation, change.expires, allow, change.name)
            cursor.execute(f"INSERT OR REPLACE INTO sessions SELECT ?, ?, ?, ?, ? {_IF_LOCAL}", begun)
        case EndSession():
            cursor.execute("DELETE FROM sessions WHERE name = ? AND sid = ?", (change.name, change.sid))
        case AddSubscription():
            given = _ENCODE(change.values)
            row = (change.name, change.id, change.channel, given, change.acked, change.version)
            cursor.execute(
                f"INSERT INTO subscriptions SELECT ?, ?, ?, ?, ?, ? {_IF_LOCAL} ON CONFLICT (name, id) "
                "DO UPDATE SET channel = excluded.channel, given = excluded.given, acked = excluded.acked, "
                "version = excluded.version WHERE excluded.version > version",
                (*row, change.name),
            )
            _tick(cursor, change)
        case RemoveSubscription():
            _tick(cursor, change)
            cursor.execute(
                "DELETE FROM subscriptions WHERE name = ? AND id = ? AND version <= ?",
                (change.name, change.id, change.version),
            )
        case Ack():
            cursor.execute(
                "UPDATE subscriptions SET acked = ? WHERE name = ? AND id = ? AND version = ? AND acked < ?",
                (change.position, change.name, change.id, change.version, change.position),
            )


def _tick(cursor: sqlite3.Cursor, change: AddSubscription | RemoveSubscription) -> None:
    """Raise the subscriber's clock: a removed subscription leaves no version behind."""
    cursor.execute("UPDATE subscribers SET clock = max(clock, ?) WHERE name = ?", (change.version, change.name))
