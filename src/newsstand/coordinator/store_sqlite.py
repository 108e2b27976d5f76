"""The coordinator's store in one SQLite file: write-ahead log, every commit synced, one process at a time."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from newsstand.coordinator.changes_sql import ADOPT_AGAIN, apply_changes
from newsstand.coordinator.overlay_sql import read_storages, read_tree, write_storages, write_tree
from newsstand.coordinator.records import Account, Applied, BrokerRecord, Change, Move, Record, Storages, Tree
from newsstand.coordinator.store import Kind, Taken
from newsstand.coordinator.subscribers_sql import (
    read_account,
    read_accounts,
    read_handovers,
    read_owners,
    read_records,
)
from newsstand.coordinator.tables_sql import ADDED, SETTINGS, TABLES, VERSION
from newsstand.errors import BadInput, BadOption, NoRoom
from newsstand.planning.places import Place

_ADOPT = """
INSERT INTO handovers
    SELECT m.new, m.name, 'adopt', :serial, CASE WHEN :takes THEN NULL ELSE coalesce(h.unread_since, m.old) END
    FROM moving m LEFT JOIN handovers h ON h.broker = m.old AND h.name = m.name AND h.kind = 'adopt' WHERE true
ON CONFLICT (broker, name) DO UPDATE
    SET kind = excluded.kind, serial = excluded.serial, unread_since = excluded.unread_since
"""
_MOVED = """
INSERT INTO handovers SELECT m.old, m.name, 'moved', :serial, NULL FROM moving m WHERE m.told
ON CONFLICT (broker, name) DO UPDATE SET kind = 'moved', serial = excluded.serial, unread_since = NULL
"""
_NOT_TOLD = "DELETE FROM handovers WHERE (broker, name) IN (SELECT old, name FROM moving WHERE NOT told)"
_GO = """
UPDATE subscribers SET home = (SELECT m.new FROM moving m WHERE m.name = subscribers.name), epoch = :serial
    WHERE name IN (SELECT name FROM moving)
"""
_TO_TELL = """
SELECT h.name, h.serial FROM handovers h WHERE h.broker = :broker AND h.kind = :kind
    AND (h.kind = 'adopt' OR h.serial <= :released OR NOT EXISTS (SELECT 1 FROM subscribers t
        JOIN handovers a ON a.broker = t.home AND a.name = t.name AND a.kind = 'adopt' WHERE t.name = h.name))
ORDER BY h.serial LIMIT :most
"""
_UNREAD = """
SELECT h.name, h.unread_since FROM handovers h JOIN subscribers t ON t.name = h.name AND t.home = h.broker
WHERE h.broker = :broker AND h.kind = 'adopt' AND h.unread_since <> :broker
"""
_FORGET = """
INSERT INTO handovers VALUES (:home, :name, 'moved', :serial, NULL)
ON CONFLICT (broker, name) DO UPDATE SET kind = 'moved', serial = excluded.serial, unread_since = NULL
"""
_END_SESSIONS = "INSERT OR REPLACE INTO ended SELECT name, sid, expires FROM sessions WHERE name = :name"
_HELD = """
SELECT h.name FROM handovers h JOIN subscribers t ON t.name = h.name
    JOIN handovers a ON a.broker = t.home AND a.name = t.name AND a.kind = 'adopt'
WHERE h.broker = :broker AND h.kind = 'moved' AND h.serial > :released
"""
_ALL = 2**62


class SqliteStore:
    """The store in the file at `path`, which is made if there is none. Methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._serial = 0
        self._lock = threading.RLock()
        try:
            # Hashes of passwords are in it. SQLite gives its own files beside it the same rights.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.OperationalError) as error:
            raise BadOption(f"{path}: cannot open the coordinator's store ({error})") from error
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        try:
            self._connection.executescript(SETTINGS)
            ((version,),) = self._connection.execute("PRAGMA user_version")
            if version > VERSION:
                raise BadInput(f"{self._path}: was written by a newer version of newsstand")
            self._connection.executescript(TABLES)
            for table, column, kind in ADDED:
                if column not in [row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")]:
                    self._connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
        except sqlite3.DatabaseError as error:
            code = error.sqlite_errorcode & 0xFF
            if code == sqlite3.SQLITE_BUSY:
                raise BadInput(f"{self._path}: is used by another coordinator") from error
            if code == sqlite3.SQLITE_NOTADB:
                raise BadInput(f"{self._path}: this is no store of a coordinator; name another folder") from error
            raise
        ((self.identity,),) = self._connection.execute("SELECT text FROM about WHERE what = 'identity'")
        ((serial,),) = self._connection.execute("SELECT text FROM about WHERE what = 'serial'")
        self._serial = int(serial)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            yield self._connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                # A disk that is full may have rolled back by itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if self._is_full(error):
                    raise NoRoom(f"{self._path}: no room left on the disk; nothing was changed") from error
                raise

    def _next_serial(self, connection: sqlite3.Connection) -> int:
        """Return a number above all earlier ones, also after a restart; call it within a transaction."""
        self._serial += 1
        connection.execute("UPDATE about SET text = ? WHERE what = 'serial'", (str(self._serial),))
        return self._serial

    def _is_full(self, error: BaseException) -> bool:
        if isinstance(error, OSError):
            return error.errno == errno.ENOSPC
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL

    # Brokers

    def brokers(self) -> list[BrokerRecord]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT name, url, lat, lon, node, capacity, draining, dead, instance FROM brokers ORDER BY name"
            ).fetchall()
        return [
            BrokerRecord(name, url, Place(lat, lon, node), capacity, bool(draining), bool(dead), instance)
            for name, url, lat, lon, node, capacity, draining, dead, instance in rows
        ]

    def keep_broker(self, broker: BrokerRecord) -> None:
        place = broker.place
        with self._writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO brokers (name, url, lat, lon, node, capacity, draining, dead, instance) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(broker.name, broker.url, place.lat, place.lon, place.node),
                    *(broker.capacity, broker.draining, broker.dead, broker.instance),
                ),
            )

    def drop_broker(self, name: str) -> None:
        with self._writing() as connection:
            connection.execute("DELETE FROM brokers WHERE name = ?", (name,))
            # What it has to adopt is still unread, and must go on to the next home so.
            connection.execute("DELETE FROM handovers WHERE broker = ? AND kind = 'moved'", (name,))

    # The overlay

    def tree(self) -> Tree:
        with self._reading() as connection:
            return read_tree(connection)

    def keep_tree(self, tree: Tree) -> None:
        with self._writing() as connection:
            write_tree(connection, tree)

    def storages(self) -> tuple[int, dict[str, Storages]]:
        with self._reading() as connection:
            return read_storages(connection)

    def keep_storages(self, version: int, changes: Mapping[str, Storages]) -> None:
        with self._writing() as connection:
            write_storages(connection, version, changes)

    # Homes

    def count_homes(self) -> dict[str, int]:
        with self._reading() as connection:
            return dict(connection.execute("SELECT home, count(*) FROM subscribers GROUP BY home").fetchall())

    def homes(self, broker: str) -> list[str]:
        with self._reading() as connection:
            rows = connection.execute("SELECT name FROM subscribers WHERE home = ? ORDER BY name", (broker,))
            return [name for (name,) in rows]

    def places(self, broker: str) -> list[tuple[str, Place]]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT name, lat, lon, node FROM subscribers WHERE home = ? ORDER BY name", (broker,)
            )
            return [(name, Place(lat, lon, node)) for name, lat, lon, node in rows]

    def home(self, subscriber: str) -> tuple[str, Place] | None:
        with self._reading() as connection:
            row = connection.execute(
                "SELECT home, lat, lon, node FROM subscribers WHERE name = ?", (subscriber,)
            ).fetchone()
        return None if row is None else (row[0], Place(*row[1:]))

    def keep_place(self, subscriber: str, place: Place) -> None:
        with self._writing() as connection:
            connection.execute(
                "UPDATE subscribers SET lat = ?, lon = ?, node = ? WHERE name = ?",
                (place.lat, place.lon, place.node, subscriber),
            )

    def move(self, moves: Sequence[Move], told: Collection[str], takes: bool) -> int:
        with self._writing() as connection:
            serial = self._next_serial(connection)
            connection.execute("DELETE FROM moving")
            connection.executemany(
                "INSERT INTO moving VALUES (?, ?, ?, ?)",
                ((one.name, one.old, one.new, one.old in told) for one in moves),
            )
            connection.execute(_ADOPT, {"serial": serial, "takes": takes})
            connection.execute(_MOVED, {"serial": serial})
            connection.execute(_NOT_TOLD)
            connection.execute(_GO, {"serial": serial})
            return serial

    # Handovers

    def newest(self) -> int:
        return self._serial

    def handovers(self, broker: str, kind: Kind, most: int, released: int | None = None) -> dict[str, int]:
        asked = {"broker": broker, "kind": kind, "most": most, "released": _ALL if released is None else released}
        with self._reading() as connection:
            return dict(connection.execute(_TO_TELL, asked).fetchall())

    def held(self, broker: str, released: int) -> list[str]:
        with self._reading() as connection:
            return [name for (name,) in connection.execute(_HELD, {"broker": broker, "released": released})]

    def reads(self, broker: str, names: Collection[str]) -> dict[str, int]:
        with self._reading() as connection:
            found = read_handovers(connection, broker, names)
            if any(is_unread for _, is_unread in found.values()):
                with self._writing():
                    connection.executemany(
                        "UPDATE handovers SET unread_since = NULL WHERE broker = ? AND name = ?",
                        ((broker, name) for name in found),
                    )
        return {name: serial for name, (serial, _) in found.items()}

    def unread(self, broker: str) -> dict[str, str]:
        with self._reading() as connection:
            return dict(connection.execute(_UNREAD, {"broker": broker}).fetchall())

    def confirm(self, broker: str, kind: Kind, serials: Mapping[str, int]) -> None:
        with self._writing() as connection:
            connection.executemany(
                "DELETE FROM handovers WHERE broker = ? AND kind = ? AND name = ? AND serial = ?",
                ((broker, kind, name, serial) for name, serial in serials.items()),
            )

    # Subscribers

    def add_subscriber(self, name: str, hash_: str, home: str) -> bool:
        with self._writing() as connection:
            known = connection.execute("SELECT hash FROM subscribers WHERE name = ?", (name,)).fetchone()
            if known is None:
                serial = self._next_serial(connection)
                connection.execute(
                    "INSERT INTO subscribers (name, hash, home, epoch, born, created) "
                    "VALUES (?, ?, ?, ?, ?, unixepoch())",
                    (name, hash_, home, serial, serial),
                )
            elif known[0] != hash_:
                raise Taken(f"the name '{name}' is taken")
        return known is None

    def records(self, names: Collection[str]) -> dict[str, Record]:
        with self._reading() as connection:
            return read_records(connection, names)

    def accounts(self, after: str, limit: int) -> list[Account]:
        with self._reading() as connection:
            return read_accounts(connection, after, limit)

    def account(self, name: str) -> Account | None:
        with self._reading() as connection:
            return read_account(connection, name)

    def is_disabled(self, name: str) -> bool:
        with self._reading() as connection:
            asked = "SELECT 1 FROM subscribers WHERE name = ? AND disabled"
            return connection.execute(asked, (name,)).fetchone() is not None

    def change_account(self, name: str, *, disabled: bool | None = None, hash_: str | None = None) -> None:
        with self._writing() as connection:
            serial = self._next_serial(connection)
            given = {"name": name, "serial": serial, "disabled": disabled, "hash": hash_}
            connection.execute(
                "UPDATE subscribers SET epoch = :serial, disabled = coalesce(:disabled, disabled), "
                "hash = coalesce(:hash, hash), "
                "sessions_from = CASE WHEN :hash IS NULL THEN sessions_from ELSE :serial END WHERE name = :name",
                given,
            )
            if hash_ is not None:
                connection.execute(_END_SESSIONS, given)
                connection.execute("DELETE FROM sessions WHERE name = :name", given)
            connection.execute(ADOPT_AGAIN, given)

    def set_hash(self, name: str, hash_: str, epoch: int) -> bool:
        with self._writing() as connection:
            changed = "UPDATE subscribers SET hash = ? WHERE name = ? AND epoch = ?"
            return connection.execute(changed, (hash_, name, epoch)).rowcount > 0

    def delete_subscriber(self, name: str) -> str | None:
        with self._writing() as connection:
            row = connection.execute("SELECT home FROM subscribers WHERE name = ?", (name,)).fetchone()
            connection.execute(_END_SESSIONS, {"name": name})
            if row is not None:  # every broker that may have its record has to forget it
                serial = self._next_serial(connection)
                connection.execute(_FORGET, {"name": name, "home": row[0], "serial": serial})
                connection.execute("UPDATE handovers SET kind = 'moved' WHERE name = ?", (name,))
            for table in ("subscribers", "sessions", "subscriptions", "tombstones"):
                connection.execute(f"DELETE FROM {table} WHERE name = ?", (name,))
        return None if row is None else row[0]

    def has_ended(self, subscriber: str, session: str) -> bool:
        with self._reading() as connection:
            asked = "SELECT 1 FROM ended WHERE name = ? AND sid = ?"
            return connection.execute(asked, (subscriber, session)).fetchone() is not None

    def homes_of(self, names: Collection[str]) -> dict[str, str]:
        return {name: home for name, (home, _) in self.owners(names).items()}

    def owners(self, names: Collection[str]) -> dict[str, tuple[str, int]]:
        with self._reading() as connection:
            return read_owners(connection, names)

    def apply(self, broker: str, changes: Sequence[Change], released: int) -> Applied:
        with self._writing() as connection:
            return apply_changes(connection, broker, changes, released, self._next_serial(connection))

    # Its life

    def check(self) -> None:
        with self._reading() as connection:
            connection.execute("SELECT count(*) FROM brokers").fetchone()

    def close(self) -> None:
        with self._lock:
            self._connection.close()
