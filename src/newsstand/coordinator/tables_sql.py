"""How a store in SQLite is set up, and its tables. Those that an older store lacks are added to it."""

from __future__ import annotations

VERSION = 1
"""A store of a higher one cannot be read; tables that are only added do not make it higher."""

SETTINGS = """
PRAGMA busy_timeout = 2000;
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA cache_size = -65536;
PRAGMA temp_store = MEMORY;
CREATE TEMPORARY TABLE moving (name TEXT PRIMARY KEY, old TEXT, new TEXT, told INTEGER) WITHOUT ROWID;
"""
TABLES = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS brokers (name TEXT PRIMARY KEY, url TEXT NOT NULL, lat REAL, lon REAL, node TEXT,
    capacity REAL NOT NULL, draining INTEGER NOT NULL, dead INTEGER NOT NULL, instance TEXT NOT NULL DEFAULT '')
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS subscribers (name TEXT PRIMARY KEY, hash TEXT NOT NULL, home TEXT NOT NULL,
    lat REAL, lon REAL, node TEXT, epoch INTEGER NOT NULL DEFAULT 0, born INTEGER NOT NULL DEFAULT 0,
    disabled INTEGER NOT NULL DEFAULT 0, sessions_from INTEGER NOT NULL DEFAULT 0, created INTEGER) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_home ON subscribers (home);
CREATE TABLE IF NOT EXISTS sessions (name TEXT, sid TEXT, generation INTEGER NOT NULL, expires NOT NULL,
    allow TEXT NOT NULL, PRIMARY KEY (name, sid)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS subscriptions (name TEXT, id TEXT, channel TEXT NOT NULL, vals TEXT NOT NULL,
    acked INTEGER NOT NULL, version INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (name, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tombstones (name TEXT, id TEXT, version INTEGER NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (name, id)) WITHOUT ROWID;
DELETE FROM tombstones WHERE at < unixepoch() - 2592000;
CREATE TABLE IF NOT EXISTS ended (name TEXT, sid TEXT, expires NOT NULL, PRIMARY KEY (name, sid)) WITHOUT ROWID;
DELETE FROM ended WHERE expires < unixepoch() * 1000;
CREATE TABLE IF NOT EXISTS handovers (broker TEXT, name TEXT, kind TEXT NOT NULL, serial INTEGER NOT NULL,
    unread_since TEXT, PRIMARY KEY (broker, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_serial ON handovers (broker, kind, serial);
CREATE TABLE IF NOT EXISTS links (one TEXT, other TEXT, PRIMARY KEY (one, other)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS storages (topic TEXT, broker TEXT, wanted INTEGER NOT NULL,
    PRIMARY KEY (topic, broker)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS about (what TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO about VALUES ('identity', lower(hex(randomblob(8))));
INSERT OR IGNORE INTO about SELECT 'serial', coalesce(max(serial), 0) FROM handovers;
PRAGMA user_version = 1;
COMMIT;
"""
ADDED = (
    ("subscriptions", "version", "INTEGER NOT NULL DEFAULT 0"),
    ("subscribers", "epoch", "INTEGER NOT NULL DEFAULT 0"),
    ("subscribers", "born", "INTEGER NOT NULL DEFAULT 0"),
    ("subscribers", "disabled", "INTEGER NOT NULL DEFAULT 0"),
    ("subscribers", "sessions_from", "INTEGER NOT NULL DEFAULT 0"),
    ("subscribers", "created", "INTEGER"),
    ("brokers", "instance", "TEXT NOT NULL DEFAULT ''"),
)
"""Columns that an older store lacks: table, column, type."""
# `epoch` is the serial number of the move that gave a subscriber its home, `born` that of its registration.
# `sessions_from` is the epoch in which an operator ended all sessions: those of earlier ones come too late.
# `created` is in Unix seconds, and not known of accounts of an older store.
# `ended` are sessions that were ended before they expired, in milliseconds: whoever tells of them later is late.
# `unread_since` of an adoption is the broker that kept the record last, until the new home has read it.
# `tombstones` are subscriptions that were removed in the last 30 days: an older change of theirs comes too late.
