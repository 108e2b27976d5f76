"""The broker's store in one SQLite file."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from newsstand.broker.records import (
    HERE_ONLY,
    Ack,
    Adopt,
    Allowed,
    Change,
    EndSession,
    Forget,
    Held,
    Merge,
    Record,
    Session,
    SessionChange,
    Subscribe,
    Unsubscribe,
)
from newsstand.errors import BadOption, NoRoom
from newsstand.model import Scalar

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
CREATE TABLE IF NOT EXISTS words (what TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
"""
_ADDED = (
    ("subscriptions", "version"),
    ("subscribers", "clock"),
    ("subscribers", "epoch"),
    ("subscribers", "born"),
    ("subscribers", "disabled"),
    ("subscribers", "created"),
)
"""Columns that an older store lacks."""
_SUBSCRIBER = "name, hash, clock, epoch, born, disabled, created"
_AT_HOME = "WHERE EXISTS (SELECT 1 FROM subscribers WHERE name = ?)"
"""Who is not at home here is passed over, as in memory."""
_ENCODE = msgspec.json.encode
_DECODE = msgspec.json.Decoder(Change).decode
_ALLOW = msgspec.json.Decoder(list[Allowed] | None).decode
_VALUES = msgspec.json.Decoder(list[Scalar]).decode


class SqliteStore:
    """One file in WAL mode, one connection, every `write` synced."""

    def __init__(self, path: Path, *, tell: bool) -> None:
        """`tell`: keep changes for the coordinator."""
        self._tell = tell
        self._lock = threading.Lock()
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # hashes and secrets are nobody else's to read
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # one broker to a folder
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(_TABLES)
            for table, column in _ADDED:
                if column not in [row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")]:
                    self._connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
        except (sqlite3.Error, OSError) as error:
            raise BadOption(f"{path}: cannot be opened as a broker's store ({error})") from error

    def load(self) -> dict[str, Record]:
        with self._lock:
            rows = self._connection.execute(f"SELECT {_SUBSCRIBER} FROM subscribers")
            records = {
                name: Record(name, hash, {}, {}, clock, epoch, born, bool(disabled), created)
                for name, hash, clock, epoch, born, disabled, created in rows
            }
            for name, sid, generation, expires, allow in self._connection.execute("SELECT * FROM sessions"):
                records[name].sessions[sid] = Session(generation, expires, _ALLOW(allow))
            rows = self._connection.execute("SELECT name, id, channel, given, acked, version FROM subscriptions")
            for name, key, channel, given, acked, version in rows:
                records[name].subscriptions[key] = Held(channel, _VALUES(given), acked, version)
        return records

    def write(self, changes: Sequence[Change]) -> None:
        with self._transaction() as cursor:
            for change in changes:
                _write(cursor, change)
                if self._tell and not isinstance(change, HERE_ONLY):
                    _queue(cursor, change)

    def unsent(self, limit: int) -> tuple[int, list[Change]]:
        with self._lock:
            query = "SELECT seq, change FROM unsent ORDER BY seq LIMIT ?"
            rows = self._connection.execute(query, (limit,)).fetchall()
        return (rows[-1][0] if rows else 0), [_DECODE(change) for _, change in rows]

    def sent(self, upto: int) -> None:
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM unsent WHERE seq <= ?", (upto,))

    def remember(self, what: str, text: str) -> None:
        with self._transaction() as cursor:
            cursor.execute("INSERT OR REPLACE INTO words VALUES (?, ?)", (what, text))

    def recall(self, what: str) -> str | None:
        with self._lock:
            row = self._connection.execute("SELECT text FROM words WHERE what = ?", (what,)).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with self._lock:
            try:
                cursor = self._connection.execute("BEGIN IMMEDIATE")
                yield cursor
                cursor.execute("COMMIT")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                    raise NoRoom("the disk is full; nothing was changed") from error
                raise
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")


def _queue(cursor: sqlite3.Cursor, change: Change) -> None:
    """Keep a change for the coordinator; an acknowledgement takes the place of lower ones of its subscription."""
    subject = None
    if isinstance(change, Ack):
        subject = f"ack {change.name} {change.id} {change.version}"
        kept = cursor.execute("SELECT change FROM unsent WHERE subject = ?", (subject,)).fetchone()
        if kept is not None and _position(_DECODE(kept[0])) >= change.position:
            return
    # A row that is replaced gets a new number: the one that is being sent is not the one that is kept.
    cursor.execute("INSERT OR REPLACE INTO unsent (subject, change) VALUES (?, ?)", (subject, _ENCODE(change)))


def _position(change: Change) -> int:
    return change.position if isinstance(change, Ack) else 0


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
                _write(cursor, SessionChange(name, sid, session.generation, session.expires, session.allow))
            for key, held in record.subscriptions.items():
                _write(cursor, Subscribe(name, key, held.channel, held.values, held.acked, held.version))
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
            row = (change.name, change.sid, change.generation, change.expires, allow)
            cursor.execute(f"INSERT OR REPLACE INTO sessions SELECT ?, ?, ?, ?, ? {_AT_HOME}", (*row, change.name))
        case EndSession():
            cursor.execute("DELETE FROM sessions WHERE name = ? AND sid = ?", (change.name, change.sid))
        case Subscribe():
            made = (change.name, change.id, change.channel, _ENCODE(change.values), change.acked, change.version)
            cursor.execute(
                f"INSERT INTO subscriptions SELECT ?, ?, ?, ?, ?, ? {_AT_HOME} ON CONFLICT (name, id) "
                "DO UPDATE SET channel = excluded.channel, given = excluded.given, acked = excluded.acked, "
                "version = excluded.version WHERE excluded.version > version",
                (*made, change.name),
            )
            _tick(cursor, change)
        case Unsubscribe():
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


def _tick(cursor: sqlite3.Cursor, change: Subscribe | Unsubscribe) -> None:
    """Keep the highest version: a removed subscription is not there to remember it by."""
    cursor.execute("UPDATE subscribers SET clock = max(clock, ?) WHERE name = ?", (change.version, change.name))
