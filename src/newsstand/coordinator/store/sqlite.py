"""The coordinator's durable store in one SQLite file: every commit synced, one process at a time.

When a writing method returns, its change is durable; when it raises an error, nothing has changed. Brokers learn
of moves by *handovers*: for each broker the names that it has to `adopt` and those that have `moved` away, until
the broker confirms them. Each has a serial number, so the confirmation of an earlier handover of the same name
confirms nothing. A moved subscriber is *held* by its old broker until the new one has confirmed the adoption:
otherwise no broker would follow its streams in between.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from newsstand.config.settings import MOST_SESSIONS
from newsstand.coordinator.model import (
    BrokerRecord,
    OverlayTree,
    StorageSet,
    SubscriberExists,
    SubscriberMove,
)
from newsstand.coordinator.store.changes import ADOPT_AGAIN, apply_changes
from newsstand.coordinator.store.tables import (
    ACCOUNTS,
    PURGE,
    SCHEMA,
    get_meta,
    read_records,
    rows_of,
    set_meta,
    storages_of,
)
from newsstand.geo.location import Location
from newsstand.sqlite.database import SqliteFile, execute_script
from newsstand.wire.coordination import ChangesResponse
from newsstand.wire.subscribers import SubscriberAccount, SubscriberChange, SubscriberRecord

Kind = Literal["adopt", "moved"]

_ADOPT = """
INSERT INTO handovers
    SELECT m.new, m.name, 'adopt', :serial, CASE WHEN :takes THEN NULL ELSE coalesce(h.unread_since, m.old) END
    FROM moving m LEFT JOIN handovers h ON h.broker = m.old AND h.name = m.name AND h.kind = 'adopt' WHERE true
ON CONFLICT (broker, name) DO UPDATE
    SET kind = excluded.kind, serial = excluded.serial, unread_since = excluded.unread_since
"""
_MOVED = """
INSERT INTO handovers SELECT m.old, m.name, 'moved', :serial, NULL FROM moving m WHERE m.notified
ON CONFLICT (broker, name) DO UPDATE SET kind = 'moved', serial = excluded.serial, unread_since = NULL
"""
_NOT_NOTIFIED = "DELETE FROM handovers WHERE (broker, name) IN (SELECT old, name FROM moving WHERE NOT notified)"
_GO = """
UPDATE subscribers SET broker = (SELECT m.new FROM moving m WHERE m.name = subscribers.name), epoch = :serial
    WHERE name IN (SELECT name FROM moving)
"""
_TO_ANNOUNCE = """
SELECT h.name, h.serial FROM handovers h WHERE h.broker = :broker AND h.kind = :kind
    AND (h.kind = 'adopt' OR h.serial <= :released OR NOT EXISTS (SELECT 1 FROM subscribers t
        JOIN handovers a ON a.broker = t.broker AND a.name = t.name AND a.kind = 'adopt' WHERE t.name = h.name))
ORDER BY h.serial LIMIT :most
"""
_UNREAD = """
SELECT h.name, h.unread_since FROM handovers h JOIN subscribers t ON t.name = h.name AND t.broker = h.broker
WHERE h.broker = :broker AND h.kind = 'adopt' AND h.unread_since <> :broker
"""
_FORGET = """
INSERT INTO handovers VALUES (:broker, :name, 'moved', :serial, NULL)
ON CONFLICT (broker, name) DO UPDATE SET kind = 'moved', serial = excluded.serial, unread_since = NULL
"""
_CHANGE_ACCOUNT = """
UPDATE subscribers SET epoch = :serial, disabled = coalesce(:disabled, disabled), hash = coalesce(:hash, hash),
    sessions_from = CASE WHEN :hash IS NULL THEN sessions_from ELSE :serial END WHERE name = :name
"""
_END_SESSIONS = "INSERT OR REPLACE INTO ended SELECT name, sid, expires FROM sessions WHERE name = :name"
_HELD = """
SELECT h.name FROM handovers h JOIN subscribers t ON t.name = h.name
    JOIN handovers a ON a.broker = t.broker AND a.name = t.name AND a.kind = 'adopt'
WHERE h.broker = :broker AND h.kind = 'moved' AND h.serial > :released
"""
_ALL = 2**62
_PRAGMAS: dict[str, str | int] = {"busy_timeout": 2000, "cache_size": -65536, "temp_store": "MEMORY"}
_TEMPORARY = """
CREATE TEMPORARY TABLE moving (name TEXT PRIMARY KEY, old TEXT, new TEXT, notified INTEGER) WITHOUT ROWID
"""


class CoordinatorStore:
    """Brokers and their overlay, subscribers and handovers. Methods may be called from any thread."""

    def __init__(
        self,
        path: Path,
        *,
        most_sessions: int = MOST_SESSIONS,
        most_tombstones: int = 1_000,
        pragmas: Mapping[str, str | int] | None = None,
    ) -> None:
        """Open the file, which is created if it does not exist; `pragmas` are settings of SQLite.

        `most_sessions` sessions, and `most_tombstones` of removed subscriptions, are kept of a subscriber.
        """
        self._most = {"sessions": most_sessions, "ended": most_sessions, "tombstones": most_tombstones}
        self._lock = threading.RLock()
        self._file = SqliteFile(path, SCHEMA, exclusive=True, pragmas={**_PRAGMAS, **(pragmas or {})})
        self._connection = self._file.open()
        self._connection.executescript(_TEMPORARY)
        with self._writing() as connection:
            execute_script(connection, PURGE)
            self.identity = get_meta(connection, "identity") or ""
            """Random, created with the store: brokers recognize a replaced store by it."""
            self._serial = int(get_meta(connection, "serial") or 0)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._file.transaction(self._connection) as connection:
            yield connection

    def _rows(self, statement: str, *given: object, **named: object) -> list[Any]:
        with self._lock:
            return self._connection.execute(statement, named or given).fetchall()

    def _write(self, statement: str, *given: object) -> int:
        """Execute one statement in a transaction; return the number of rows that it changed."""
        with self._writing() as connection:
            return connection.execute(statement, given).rowcount

    def _next_serial(self, connection: sqlite3.Connection) -> int:
        """Return a number above all earlier ones, also after a restart; call it within a transaction."""
        self._serial += 1
        set_meta(connection, "serial", self._serial)
        return self._serial

    # Brokers

    def brokers(self) -> list[BrokerRecord]:
        """Return all known brokers."""
        columns = "name, url, lat, lon, node, capacity, draining, dead, instance"
        return [
            BrokerRecord(name, url, Location(lat, lon, node), capacity, bool(draining), bool(dead), instance)
            for name, url, lat, lon, node, capacity, draining, dead, instance in self._rows(
                f"SELECT {columns} FROM brokers ORDER BY name"
            )
        ]

    def put_broker(self, broker: BrokerRecord) -> None:
        """Add or replace a broker."""
        place = (broker.place.lat, broker.place.lon, broker.place.node)
        state = (broker.capacity, broker.draining, broker.dead, broker.instance)
        columns = "name, url, lat, lon, node, capacity, draining, dead, instance"
        statement = f"INSERT OR REPLACE INTO brokers ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        self._write(statement, broker.name, broker.url, *place, *state)

    def remove_broker(self, name: str) -> None:
        """Remove a broker; it stays the broker of its subscribers until they move."""
        with self._writing() as connection:
            connection.execute("DELETE FROM brokers WHERE name = ?", (name,))
            # What it has to adopt is still unread, and must go on to the next broker so.
            connection.execute("DELETE FROM handovers WHERE broker = ? AND kind = 'moved'", (name,))

    # The overlay

    def tree(self) -> OverlayTree:
        """Return the stored tree, or one of version 0 without links."""
        with self._lock:
            version = int(get_meta(self._connection, "tree") or 0)
            return OverlayTree(version, frozenset(self._rows("SELECT one, other FROM links")))

    def put_tree(self, tree: OverlayTree) -> None:
        """Replace the stored tree."""
        with self._writing() as connection:
            connection.execute("DELETE FROM links")
            connection.executemany("INSERT INTO links VALUES (?, ?)", sorted(tree.links))
            set_meta(connection, "tree", tree.version)

    def storages(self) -> tuple[int, dict[str, StorageSet]]:
        """Return the version of the placement (0 without one) and the storages of every topic."""
        with self._lock:
            version = int(get_meta(self._connection, "storages") or 0)
            return version, storages_of(self._rows("SELECT topic, broker, wanted FROM storages"))

    def put_storages(self, version: int, changes: Mapping[str, StorageSet]) -> None:
        """Replace the storages of some topics; a topic without storages is removed."""
        rows = [
            (topic, broker, broker in storages.wanted)
            for topic, storages in changes.items()
            for broker in sorted(storages.keeping)
        ]
        with self._writing() as connection:
            connection.executemany("DELETE FROM storages WHERE topic = ?", ((topic,) for topic in changes))
            connection.executemany("INSERT INTO storages VALUES (?, ?, ?)", rows)
            set_meta(connection, "storages", version)

    # Assignments

    def count_subscribers(self) -> dict[str, int]:
        """Return the number of subscribers of each broker."""
        return dict(self._rows("SELECT broker, count(*) FROM subscribers GROUP BY broker"))

    def subscribers_of(self, broker: str) -> list[str]:
        """Return the names of a broker's subscribers, in order."""
        return [name for name, _ in self.locations(broker)]

    def locations(self, broker: str) -> list[tuple[str, Location]]:
        """Return a broker's subscribers with their last known locations, in order."""
        rows = self._rows("SELECT name, lat, lon, node FROM subscribers WHERE broker = ? ORDER BY name", broker)
        return [(name, Location(lat, lon, node)) for name, lat, lon, node in rows]

    def assignment(self, subscriber: str) -> tuple[str, Location] | None:
        """Return the broker and the last known location of a subscriber; None if it does not exist."""
        rows = self._rows("SELECT broker, lat, lon, node FROM subscribers WHERE name = ?", subscriber)
        return next(((broker, Location(*place)) for broker, *place in rows), None)

    def set_location(self, subscriber: str, place: Location) -> None:
        """Store the location of a subscriber."""
        changed = "UPDATE subscribers SET lat = ?, lon = ?, node = ? WHERE name = ?"
        self._write(changed, place.lat, place.lon, place.node, subscriber)

    def move(self, moves: Sequence[SubscriberMove], notified: Collection[str], takes: bool) -> int:
        """Assign subscribers to new brokers; return the serial number of the handovers.

        Old brokers in `notified` get one. New brokers have to confirm; one that `takes` reads the records at once.
        """
        with self._writing() as connection:
            serial = self._next_serial(connection)
            connection.execute("DELETE FROM moving")
            connection.executemany(
                "INSERT INTO moving VALUES (?, ?, ?, ?)",
                ((one.name, one.old, one.new, one.old in notified) for one in moves),
            )
            for statement in (_ADOPT, _MOVED, _NOT_NOTIFIED, _GO):
                connection.execute(statement, {"serial": serial, "takes": takes})
            return serial

    # Handovers

    def newest_serial(self) -> int:
        """Return the serial number of the newest handover."""
        return self._serial

    def handovers(self, broker: str, kind: Kind, most: int, released: int = _ALL) -> dict[str, int]:
        """Return a broker's handovers, oldest first: names with serial numbers.

        Moves with a number above `released` are left out while they are held.
        """
        return dict(self._rows(_TO_ANNOUNCE, broker=broker, kind=kind, most=most, released=released))

    def held(self, broker: str, released: int) -> list[str]:
        """Return subscribers that have left a broker without confirmation by another; `released` as above."""
        return [name for (name,) in self._rows(_HELD, broker=broker, released=released)]

    def mark_read(self, broker: str, names: Collection[str]) -> dict[str, int]:
        """Record that a broker reads records of its own; return the serial numbers of its adoptions among them."""
        columns = "t.name, t.serial, t.unread_since IS NOT NULL"
        with self._lock:
            found = rows_of(
                self._connection, columns, "handovers", names, "AND t.broker = ? AND t.kind = 'adopt'", broker
            )
            if any(is_unread for _, _, is_unread in found):
                with self._writing() as connection:
                    connection.executemany(
                        "UPDATE handovers SET unread_since = NULL WHERE broker = ? AND name = ?",
                        ((broker, name) for name, _, _ in found),
                    )
        return {name: serial for name, serial, _ in found}

    def unread(self, broker: str) -> dict[str, str]:
        """Return a broker's subscribers that it has never read, with their last broker."""
        return dict(self._rows(_UNREAD, broker=broker))

    def confirm(self, broker: str, kind: Kind, serials: Mapping[str, int]) -> None:
        """Remove handovers that a broker has carried out, except those with another serial number by now."""
        with self._writing() as connection:
            connection.executemany(
                "DELETE FROM handovers WHERE broker = ? AND kind = ? AND name = ? AND serial = ?",
                ((broker, kind, name, serial) for name, serial in serials.items()),
            )

    # Subscribers

    def add_subscriber(self, name: str, hash_: str, owner: str) -> bool:
        """Add a subscriber; return False if it exists already, with the same hash.

        Raise SubscriberExists if it has another hash.
        """
        with self._writing() as connection:
            known = connection.execute("SELECT hash FROM subscribers WHERE name = ?", (name,)).fetchone()
            if known is None:
                serial = self._next_serial(connection)
                connection.execute(
                    "INSERT INTO subscribers (name, hash, broker, epoch, born, created) "
                    "VALUES (?, ?, ?, ?, ?, unixepoch())",
                    (name, hash_, owner, serial, serial),
                )
            elif known[0] != hash_:
                raise SubscriberExists(f"the name '{name}' is taken")
        return known is None

    def records(self, names: Collection[str]) -> dict[str, SubscriberRecord]:
        """Return the records of existing subscribers, as brokers receive them."""
        with self._lock:
            return read_records(self._connection, names)

    def accounts(self, after: str, limit: int) -> list[SubscriberAccount]:
        """Return accounts in the order of their names, after a name."""
        return [
            SubscriberAccount(*row) for row in self._rows(f"{ACCOUNTS} > ? ORDER BY t.name LIMIT ?", after, limit)
        ]

    def account(self, name: str) -> SubscriberAccount | None:
        """Return one account; None if it does not exist."""
        return next((SubscriberAccount(*row) for row in self._rows(f"{ACCOUNTS} = ?", name)), None)

    def is_disabled(self, name: str) -> bool:
        """Return whether an account is disabled."""
        return bool(self._rows("SELECT 1 FROM subscribers WHERE name = ? AND disabled", name))

    def change_account(self, name: str, *, disabled: bool | None = None, hash_: str | None = None) -> None:
        """Disable or enable an account; with a hash, replace the password and end all sessions.

        The account gets a new epoch: its broker has an outdated record, and has to adopt the subscriber again.
        """
        with self._writing() as connection:
            serial = self._next_serial(connection)
            given = {"name": name, "serial": serial, "disabled": disabled, "hash": hash_}
            connection.execute(_CHANGE_ACCOUNT, given)
            if hash_ is not None:
                connection.execute(_END_SESSIONS, given)
                connection.execute("DELETE FROM sessions WHERE name = :name", given)
            connection.execute(ADOPT_AGAIN, given)

    def set_hash(self, name: str, hash_: str, epoch: int) -> bool:
        """Replace the hash of a password; return False if the record has another epoch."""
        return self._write("UPDATE subscribers SET hash = ? WHERE name = ? AND epoch = ?", hash_, name, epoch) > 0

    def delete_subscriber(self, name: str) -> str | None:
        """Delete a subscriber with its sessions and subscriptions; return its broker, None if it is unknown."""
        with self._writing() as connection:
            row = connection.execute("SELECT broker FROM subscribers WHERE name = ?", (name,)).fetchone()
            connection.execute(_END_SESSIONS, {"name": name})
            if row is not None:  # every broker that may have its record has to forget it
                serial = self._next_serial(connection)
                connection.execute(_FORGET, {"name": name, "broker": row[0], "serial": serial})
                connection.execute("UPDATE handovers SET kind = 'moved' WHERE name = ?", (name,))
            for table in ("subscribers", "sessions", "subscriptions", "tombstones"):
                connection.execute(f"DELETE FROM {table} WHERE name = ?", (name,))
        return None if row is None else row[0]

    def has_ended(self, subscriber: str, session: str) -> bool:
        """Return whether a session was ended before it expired."""
        return bool(self._rows("SELECT 1 FROM ended WHERE name = ? AND sid = ?", subscriber, session))

    def brokers_of(self, names: Collection[str]) -> dict[str, str]:
        """Return the brokers of existing subscribers."""
        return {name: owner for name, (owner, _) in self.owners(names).items()}

    def owners(self, names: Collection[str]) -> dict[str, tuple[str, int]]:
        """Return the brokers of existing subscribers, and since which epoch."""
        with self._lock:
            rows = rows_of(self._connection, "t.name, t.broker, t.epoch", "subscribers", names)
        return {name: (owner, epoch) for name, owner, epoch in rows}

    def apply(self, broker: str, changes: Sequence[SubscriberChange], released: int) -> ChangesResponse:
        """Apply a broker's changes, in order; `released` as in `handovers`.

        A subscriber that has left the broker is still its own until the new one has read the record. After that a
        change is *late*: it was made and answered before the broker learned of the move, so the store applies what
        it can, and the present broker has to adopt the subscriber again.
        """
        with self._writing() as connection:
            serial = self._next_serial(connection)
            return apply_changes(connection, broker, changes, released, serial, self._most)

    # The file

    def check(self) -> None:
        """Raise an error if the store cannot be read."""
        self._rows("SELECT count(*) FROM brokers")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()
