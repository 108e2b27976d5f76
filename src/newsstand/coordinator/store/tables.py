"""The tables of the coordinator's database, their migrations, and reads from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from newsstand.auth.tokens import ChannelScope
from newsstand.coordinator.model import StorageSet
from newsstand.sqlite.database import Schema
from newsstand.wire.subscribers import SessionRecord, SubscriberRecord, SubscriptionRecord

_TABLES = """
CREATE TABLE brokers (name TEXT PRIMARY KEY, url TEXT NOT NULL, lat REAL, lon REAL, node TEXT,
    capacity REAL NOT NULL, draining INTEGER NOT NULL, dead INTEGER NOT NULL, instance TEXT NOT NULL DEFAULT '')
    WITHOUT ROWID;
CREATE TABLE subscribers (name TEXT PRIMARY KEY, hash TEXT NOT NULL, broker TEXT NOT NULL,
    lat REAL, lon REAL, node TEXT, epoch INTEGER NOT NULL DEFAULT 0, born INTEGER NOT NULL DEFAULT 0,
    disabled INTEGER NOT NULL DEFAULT 0, sessions_from INTEGER NOT NULL DEFAULT 0, created INTEGER) WITHOUT ROWID;
CREATE INDEX by_broker ON subscribers (broker);
CREATE TABLE sessions (name TEXT, sid TEXT, generation INTEGER NOT NULL, expires NOT NULL,
    allow TEXT NOT NULL, PRIMARY KEY (name, sid)) WITHOUT ROWID;
CREATE TABLE subscriptions (name TEXT, id TEXT, channel TEXT NOT NULL, vals TEXT NOT NULL,
    acked INTEGER NOT NULL, version INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (name, id)) WITHOUT ROWID;
CREATE TABLE tombstones (name TEXT, id TEXT, version INTEGER NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (name, id)) WITHOUT ROWID;
CREATE TABLE ended (name TEXT, sid TEXT, expires NOT NULL, PRIMARY KEY (name, sid)) WITHOUT ROWID;
CREATE TABLE handovers (broker TEXT, name TEXT, kind TEXT NOT NULL, serial INTEGER NOT NULL,
    unread_since TEXT, PRIMARY KEY (broker, name)) WITHOUT ROWID;
CREATE INDEX by_serial ON handovers (broker, kind, serial);
CREATE TABLE links (one TEXT, other TEXT, PRIMARY KEY (one, other)) WITHOUT ROWID;
CREATE TABLE storages (topic TEXT, broker TEXT, wanted INTEGER NOT NULL,
    PRIMARY KEY (topic, broker)) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('identity', lower(hex(randomblob(8))));
INSERT INTO meta SELECT 'serial', coalesce(max(serial), 0) FROM handovers;
"""
# `epoch` is the serial number of the move that gave a subscriber its broker, `born` that of its registration.
# `sessions_from` is the epoch in which an operator ended all sessions: those of earlier epochs are rejected.
# `created` is in Unix seconds.
# `ended` has sessions that ended before they expired, in milliseconds: a later change of theirs is late.
# `unread_since` of an adoption is the broker that had the record last, until the new broker has read it.
# `tombstones` are subscriptions removed in the last 30 days: an older change of theirs is late.


SCHEMA = Schema("the coordinator", [_TABLES])
PURGE = """
DELETE FROM tombstones WHERE at < unixepoch() - 2592000;
DELETE FROM ended WHERE expires < unixepoch() * 1000;
"""
"""Removes what is too old to matter; executed when the file is opened."""


def get_meta(connection: sqlite3.Connection, key: str) -> str | None:
    """Return a metadata value, None if it was never set."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def set_meta(connection: sqlite3.Connection, key: str, value: object) -> None:
    """Store a metadata value."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, str(value)))


def storages_of(rows: Iterable[tuple[str, str, int]]) -> dict[str, StorageSet]:
    """Return the storages of each topic in rows of topic, broker, and whether the topic is wanted there."""
    brokers: dict[str, tuple[set[str], set[str]]] = {}
    for topic, broker, wanted in rows:
        brokers.setdefault(topic, (set(), set()))[0 if wanted else 1].add(broker)
    return {topic: StorageSet(frozenset(some), frozenset(others)) for topic, (some, others) in brokers.items()}


_scopes = msgspec.json.Decoder(list[ChannelScope] | None).decode


def read_records(connection: sqlite3.Connection, names: Collection[str]) -> dict[str, SubscriberRecord]:
    """Return subscribers with their sessions and subscriptions."""
    sessions: dict[str, dict[str, SessionRecord]] = {}
    subscriptions: dict[str, dict[str, SubscriptionRecord]] = {}
    for name, sid, generation, expires, allow in rows_of(
        connection, "t.name, t.sid, t.generation, t.expires, t.allow", "sessions", names
    ):
        sessions.setdefault(name, {})[sid] = SessionRecord(generation, int(expires), _scopes(allow))
    clocks: dict[str, int] = {}
    for name, id_, channel, values, acked, version in rows_of(
        connection, "t.name, t.id, t.channel, t.vals, t.acked, t.version", "subscriptions", names
    ):
        subscription = SubscriptionRecord(channel, msgspec.json.decode(values), acked, version)
        subscriptions.setdefault(name, {})[id_] = subscription
        clocks[name] = max(clocks.get(name, 0), version)
    for name, version in rows_of(connection, "t.name, t.version", "tombstones", names):
        clocks[name] = max(clocks.get(name, 0), version)
    return {
        name: SubscriberRecord(
            name,
            hash_,
            sessions.get(name, {}),
            subscriptions.get(name, {}),
            clocks.get(name, 0),
            epoch,
            born,
            bool(disabled),
        )
        for name, hash_, epoch, born, disabled in rows_of(
            connection, "t.name, t.hash, t.epoch, t.born, t.disabled", "subscribers", names
        )
    }


ACCOUNTS = """
SELECT t.name, t.broker,
    (SELECT count(*) FROM subscriptions s WHERE s.name = t.name),
    (SELECT count(*) FROM sessions s WHERE s.name = t.name AND s.expires > unixepoch() * 1000),
    CASE WHEN t.disabled THEN 'disabled' ELSE 'active' END, t.created
FROM subscribers t WHERE t.name
"""
"""The fields of SubscriberAccount; a condition on the name follows."""


def rows_of(
    connection: sqlite3.Connection, columns: str, table: str, names: Collection[str], and_: str = "", *more: str
) -> list[tuple[Any, ...]]:
    """Return the rows of a table that belong to some names, by its index on names."""
    return connection.execute(
        f"SELECT {columns} FROM (SELECT DISTINCT value FROM json_each(?)) asked "
        f"CROSS JOIN {table} t ON t.name = asked.value {and_}",
        (as_json(list(names)), *more),
    ).fetchall()


def as_json(value: object) -> str:
    """Return a value as JSON text for a column."""
    return msgspec.json.encode(value).decode()
