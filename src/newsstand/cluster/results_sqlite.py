"""Results in one SQLite file: the default, for one machine.

Write-ahead log, every commit synced. Connections are pooled; transactions that write take turns behind a lock of
our own, because SQLite's own waiting is a sleep. Rows from Spark are staged in a temporary table of the connection
before the transaction begins, so that nobody waits while Spark computes.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from newsstand.cluster.arriving import FEW, chunks, in_one_piece
from newsstand.cluster.results_pool import Pool
from newsstand.cluster.results_sql import SqlResults, strangers
from newsstand.cluster.results_tables import ARRIVED, Staged, Transaction, create
from newsstand.errors import BadInput, NoRoom, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WORDS = {
    "text": "text",
    "bytes": "blob",
    "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "rowid": "INTEGER PRIMARY KEY",
    "keyed": " WITHOUT ROWID",
}
_ORDER = [(name, "ascending") for name in ("stream", "publication", "ordinal", "payload")]
_SETTINGS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA foreign_keys = ON;
PRAGMA busy_timeout = 5000;
PRAGMA cache_size = -65536;
PRAGMA temp.cache_size = -65536;
CREATE TEMPORARY TABLE asked (id text, channel text, vals text, digest blob, number bigint);
CREATE TEMPORARY TABLE arrived (stream bigint, publication bigint, page_id text, page_size bigint, ordinal bigint,
    payload text)
"""


WAITS_S = 2.0
"""How long those who write wait for one of them that waits for another process."""

CHECKED_S = 1.0
"""How long a check waits for its turn to write."""


class _Statements:
    """A transaction of one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: str, **given: object) -> int:
        return self._connection.execute(statement, given).rowcount

    def rows(self, statement: str, **given: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, given).fetchall()

    def many(self, statement: str, given: Iterable[Mapping[str, object] | tuple[object, ...]]) -> None:
        self._connection.executemany(statement, given)

    def ask(self, rows: Iterable[tuple[object, ...]]) -> None:
        self._connection.execute("DELETE FROM asked")
        self._connection.executemany("INSERT INTO asked VALUES (?, ?, ?, ?, ?)", rows)


class SqliteResults(SqlResults):
    """The store in the file at `path`, which is made if there is none."""

    def __init__(self, path: str | os.PathLike[str], few: int = FEW) -> None:
        super().__init__(few)
        self._path = Path(path)
        self._one_writes = threading.Lock()
        self._locked_since: float | None = None
        """Since when the one whose turn it is has waited for another process, by the monotonic clock."""
        self._pool = Pool(str(self._path), self._open)
        self._held = threading.local()
        try:
            if self._path.parent.is_dir():
                # Brokers' secrets are in it. SQLite gives its own files beside it the same rights.
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            with self._writing() as transaction:
                create(transaction, _WORDS, str(self._path))
        except BaseException:
            self.close()
            raise

    # Connections

    def _open(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise BadInput(
                f"{self._path}: cannot open the store of results ({error}); its folder must exist"
            ) from error
        try:
            connection.executescript(_SETTINGS)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.DatabaseError) and error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                raise BadInput(f"{self._path}: this is no store of results; name another file") from error
            raise
        return connection

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """The connection that this thread holds already, or one of the pool."""
        if (held := getattr(self._held, "connection", None)) is not None:
            yield held
            return
        with self._no_room(), self._pool.connection() as connection:
            self._held.connection = connection
            try:
                yield connection
            finally:
                self._held.connection = None

    @contextmanager
    def _no_room(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            if self._is_full(error):
                raise NoRoom(
                    f"{self._path}: no room left on the disk; nothing was stored. Make room, then try again"
                ) from error
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise self._locked_out() from error
            raise

    def _locked_out(self) -> Unavailable:
        return Unavailable(
            f"{self._path}: another process has locked it; nothing was changed. Find and end that process",
            "the database of results is locked by another process",
        )

    def _is_full(self, error: sqlite3.OperationalError | OSError) -> bool:
        if isinstance(error, OSError):
            return error.errno == errno.ENOSPC
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF == sqlite3.SQLITE_IOERR:
            # The shared memory of the log, for one, has no error of its own for this.
            disk = os.statvfs(self._path.parent)
            return disk.f_bavail * disk.f_frsize < 1 << 20
        return bool(code & 0xFF == sqlite3.SQLITE_FULL)

    @contextmanager
    def _reading(self) -> Iterator[Transaction]:
        with self._connection() as connection:
            yield _Statements(connection)

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        with self._connection() as connection, self._turn():
            self._begin(connection)
            try:
                yield _Statements(connection)
                connection.execute("COMMIT")
            except BaseException:
                # A disk that is full may have rolled back by itself.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _turn(self, patience_s: float = WAITS_S) -> Iterator[None]:
        """Be the one who writes. While that one waits for another process, nobody waits long behind it."""
        while not self._one_writes.acquire(timeout=0.1):
            since = self._locked_since
            if since is not None and time.monotonic() - since > patience_s:
                raise self._locked_out()
        try:
            yield
        finally:
            self._one_writes.release()

    def _begin(self, connection: sqlite3.Connection) -> None:
        self._locked_since = time.monotonic()
        try:
            connection.execute("BEGIN IMMEDIATE")
        finally:
            self._locked_since = None

    def check(self) -> None:
        super().check()
        if not self._one_writes.acquire(timeout=CHECKED_S):
            if (since := self._locked_since) is not None and time.monotonic() - since > CHECKED_S / 2:
                raise self._locked_out()
            return  # somebody writes
        try:
            with self._connection() as connection:
                connection.execute(f"PRAGMA busy_timeout = {int(CHECKED_S * 1000)}")
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("ROLLBACK")
                finally:
                    connection.execute("PRAGMA busy_timeout = 5000")
        finally:
            self._one_writes.release()

    def _lock(self, table: str) -> str:
        return ""

    _kept = _going = _lock

    # Rows from Spark

    @contextmanager
    def _staging(self, matched: DataFrame | None, few: bool) -> Iterator[Staged]:
        with self._connection() as connection:
            table = in_one_piece(matched) if matched is not None and few else None
            if matched is None or table is not None:
                yield Staged(0 if table is None else table.num_rows, "temp.arrived", {}, table)
                return
            try:
                yield Staged(self._stage(connection, matched), "temp.arrived", {})
            finally:
                connection.execute("DELETE FROM temp.arrived")

    def _stage(self, connection: sqlite3.Connection, matched: DataFrame) -> int:
        rows = 0
        for chunk in chunks(matched):
            rows += chunk.num_rows
            columns = [column.to_pylist() for column in chunk.columns]
            connection.execute("BEGIN")
            connection.executemany(
                f"INSERT INTO temp.arrived ({ARRIVED}) VALUES (?, ?, ?, ?, ?, ?)", zip(*columns, strict=True)
            )
            connection.execute("COMMIT")
        return rows

    def _number(self, transaction: Transaction, channel: str, staged: Staged, before: int, at_ms: int) -> int:
        """As its parent does; what is at hand is numbered here, in half the time that SQLite's windows take."""
        if staged.table is None:
            return super()._number(transaction, channel, staged, before, at_ms)
        table = staged.table.take(pc.sort_indices(staged.table, _ORDER))
        stream = table["stream"].to_numpy()
        begins = np.flatnonzero(np.r_[True, stream[1:] != stream[:-1]])
        counts = np.diff(np.r_[begins, len(stream)])
        moved = stream[begins]
        transaction.ask((None, None, None, None, one) for one in moved.tolist())
        heads = transaction.rows(
            "SELECT s.head FROM asked a CROSS JOIN streams s ON s.id = a.number WHERE s.channel = :channel "
            "ORDER BY a.rowid",
            channel=channel,
        )
        if len(heads) != len(moved):
            raise strangers(len(moved) - len(heads), channel)
        head = np.fromiter((one for (one,) in heads), np.int64, len(heads))
        position = np.arange(1, len(stream) + 1) - np.repeat(begins, counts) + np.repeat(head, counts)
        transaction.many(
            "INSERT INTO results (id, stream, position, at_ms, publication, page_id, page_size, payload) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            zip(
                range(before + 1, before + 1 + len(stream)),
                stream.tolist(),
                position.tolist(),
                repeat(at_ms),
                *(table[name].to_pylist() for name in ("publication", "page_id", "page_size", "payload")),
                strict=False,
            ),
        )
        transaction.many(
            "UPDATE streams SET head = ? WHERE id = ?", zip((head + counts).tolist(), moved.tolist(), strict=True)
        )
        return len(moved)

    def _ids(self, transaction: Transaction, count: int) -> int:
        ((last,),) = transaction.rows(
            "UPDATE counters SET value = value + :count WHERE name = 'results' RETURNING value", count=count
        )
        return int(last) - count

    # Its life

    def close(self) -> None:
        self._pool.close()
