"""Subscribers in SQLite: reading their homes, records and handovers. Each function works within a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from newsstand.coordinator.records import Account, Record


def read_owners(connection: sqlite3.Connection, names: Collection[str]) -> dict[str, tuple[str, int]]:
    """Return the home of each of some subscribers, and since which epoch."""
    rows = _rows(connection, "t.name, t.home, t.epoch", "subscribers", names)
    return {name: (home, epoch) for name, home, epoch in rows}


def read_records(connection: sqlite3.Connection, names: Collection[str]) -> dict[str, Record]:
    """Subscribers with all that is theirs."""
    sessions: dict[str, dict[str, object]] = {}
    subscriptions: dict[str, dict[str, object]] = {}
    for name, sid, generation, expires, allow in _rows(
        connection, "t.name, t.sid, t.generation, t.expires, t.allow", "sessions", names
    ):
        one = {"generation": generation, "expires": expires, "allow": msgspec.json.decode(allow)}
        sessions.setdefault(name, {})[sid] = one
    clocks: dict[str, int] = {}
    for name, id_, channel, values, acked, version in _rows(
        connection, "t.name, t.id, t.channel, t.vals, t.acked, t.version", "subscriptions", names
    ):
        one = {"channel": channel, "values": msgspec.json.decode(values), "acked": acked, "version": version}
        subscriptions.setdefault(name, {})[id_] = one
        clocks[name] = max(clocks.get(name, 0), version)
    for name, version in _rows(connection, "t.name, t.version", "tombstones", names):
        clocks[name] = max(clocks.get(name, 0), version)
    return {
        name: {
            "name": name,
            "hash": hash_,
            "sessions": sessions.get(name, {}),
            "subscriptions": subscriptions.get(name, {}),
            "clock": clocks.get(name, 0),
            "epoch": epoch,
            "born": born,
            "disabled": bool(disabled),
        }
        for name, hash_, epoch, born, disabled in _rows(
            connection, "t.name, t.hash, t.epoch, t.born, t.disabled", "subscribers", names
        )
    }


_ACCOUNTS = """
SELECT t.name, t.home, t.disabled, t.created,
    (SELECT count(*) FROM subscriptions s WHERE s.name = t.name),
    (SELECT count(*) FROM sessions s WHERE s.name = t.name AND s.expires > unixepoch() * 1000)
FROM subscribers t
"""


def read_accounts(connection: sqlite3.Connection, after: str, limit: int) -> list[Account]:
    """Return accounts in the order of their names, after a name."""
    rows = connection.execute(f"{_ACCOUNTS} WHERE t.name > ? ORDER BY t.name LIMIT ?", (after, limit))
    return [_account(*row) for row in rows]


def read_account(connection: sqlite3.Connection, name: str) -> Account | None:
    """Return one account."""
    row = connection.execute(f"{_ACCOUNTS} WHERE t.name = ?", (name,)).fetchone()
    return None if row is None else _account(*row)


def _account(
    name: str, home: str, disabled: int, created: int | None, subscriptions: int, sessions: int
) -> Account:
    return Account(name, home, subscriptions, sessions, "disabled" if disabled else "active", created)


def read_handovers(
    connection: sqlite3.Connection, broker: str, names: Collection[str]
) -> dict[str, tuple[int, bool]]:
    """Those of some subscribers that a broker is to adopt: serial numbers, and whether it never read them."""
    columns = "t.name, t.serial, t.unread_since IS NOT NULL"
    rows = _rows(connection, columns, "handovers", names, "AND t.broker = ? AND t.kind = 'adopt'", broker)
    return {name: (serial, bool(is_unread)) for name, serial, is_unread in rows}


def _rows(
    connection: sqlite3.Connection, columns: str, table: str, names: Collection[str], and_: str = "", *more: str
) -> Iterable[tuple[Any, ...]]:
    """The rows of a table that belong to some names: the table is looked into by name, never read as a whole."""
    return connection.execute(
        f"SELECT {columns} FROM (SELECT DISTINCT value FROM json_each(?)) asked "
        f"CROSS JOIN {table} t ON t.name = asked.value {and_}",
        (as_json(list(names)), *more),
    ).fetchall()


def as_json(value: object) -> str:
    """A value as it is kept in a column."""
    return msgspec.json.encode(value).decode()
