"""Stores that were written before subscriptions had versions and subscribers epochs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from newsstand.broker.records import Held, Subscribe, Unsubscribe
from newsstand.broker.store_sqlite import SqliteStore as BrokerStore
from newsstand.coordinator.records import Unsubscribed
from newsstand.coordinator.store_sqlite import SqliteStore as CoordinatorStore

BROKER = """
CREATE TABLE subscribers (name TEXT PRIMARY KEY, hash TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sessions (name TEXT, sid TEXT, generation INTEGER NOT NULL, expires INTEGER NOT NULL,
    allow BLOB, PRIMARY KEY (name, sid)) WITHOUT ROWID;
CREATE TABLE subscriptions (name TEXT, id TEXT, channel TEXT NOT NULL, given BLOB NOT NULL,
    acked INTEGER NOT NULL, PRIMARY KEY (name, id)) WITHOUT ROWID;
CREATE TABLE unsent (seq INTEGER PRIMARY KEY AUTOINCREMENT, subject TEXT UNIQUE, change BLOB NOT NULL);
CREATE TABLE words (what TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO subscribers VALUES ('ann', 'hash');
INSERT INTO subscriptions VALUES ('ann', 'x', 'near', '[1]', 5);
INSERT INTO unsent (change) VALUES
    ('{"op":"subscribe","name":"ann","id":"x","channel":"near","values":[1],"acked":5}');
"""
COORDINATOR = """
CREATE TABLE brokers (name TEXT PRIMARY KEY, url TEXT NOT NULL, lat REAL, lon REAL, node TEXT,
    capacity REAL NOT NULL, draining INTEGER NOT NULL, dead INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE subscribers (name TEXT PRIMARY KEY, hash TEXT NOT NULL, home TEXT NOT NULL,
    lat REAL, lon REAL, node TEXT) WITHOUT ROWID;
CREATE TABLE subscriptions (name TEXT, id TEXT, channel TEXT NOT NULL, vals TEXT NOT NULL,
    acked INTEGER NOT NULL, PRIMARY KEY (name, id)) WITHOUT ROWID;
INSERT INTO brokers VALUES ('a', 'http://a:1', NULL, NULL, NULL, 100, 0, 0);
INSERT INTO subscribers VALUES ('ann', 'hash', 'a', NULL, NULL, NULL);
INSERT INTO subscriptions VALUES ('ann', 'x', 'near', '[1]', 5);
PRAGMA user_version = 1;
"""


def test_a_broker_opens_a_store_without_versions(tmp_path: Path) -> None:
    path = tmp_path / "broker.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.executescript(BROKER)
    store = BrokerStore(path, tell=True)
    record = store.load()["ann"]
    assert (record.epoch, record.subscriptions) == (0, {"x": Held("near", [1], 5)})
    assert store.unsent(9)[1] == [Subscribe("ann", "x", "near", [1], 5)]
    store.write([Unsubscribe("ann", "x", record.next_version())])
    assert store.load()["ann"].subscriptions == {}
    store.close()


def test_a_coordinator_opens_a_store_without_versions(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.executescript(COORDINATOR)
    store = CoordinatorStore(path)
    assert [(one.name, one.instance) for one in store.brokers()] == [("a", "")]
    assert store.owners(["ann"]) == {"ann": ("a", 0)}
    assert store.apply("a", [Unsubscribed("ann", "x", 1)], 0).applied == 1
    assert store.records(["ann"])["ann"]["subscriptions"] == {}
    store.close()
