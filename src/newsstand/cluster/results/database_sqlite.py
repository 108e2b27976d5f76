"""Results in one SQLite file: the default, for one machine.

Connections are pooled. Writing transactions take turns at a lock of this process, because SQLite waits by
sleeping. Many matches are staged in a temporary table of the connection before the transaction begins,
so that no writer waits while Spark computes.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from newsstand.cluster.results.model import (
    MATCH_SCHEMA,
    Matches,
    ResultDatabase,
    StagedRows,
    Transaction,
    load_few,
    migrations,
    unknown_streams,
)
from newsstand.sqlite.database import Pool, Schema, SqliteFile, committed

SCHEMA = Schema(
    "results",
    migrations(
        {
            "text": "text",
            "bytes": "blob",
            "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
            "rowid": "INTEGER PRIMARY KEY",
            "keyed": " WITHOUT ROWID",
        }
    ),
)
_COLUMNS = ", ".join(MATCH_SCHEMA.names)
_ORDER = [(name, "ascending") for name in ("stream", "publication", "ordinal", "payload")]
_TEMPORARY = """
CREATE TEMPORARY TABLE requested (id text, channel text, vals text, digest blob, number bigint);
CREATE TEMPORARY TABLE staged (stream bigint, publication bigint, page_id text, page_size bigint, ordinal bigint,
    payload text)
"""


@dataclass(frozen=True)
class SqliteResultLimits:
    """Limits of waiting for locks."""

    lock_wait_s: float = 2.0
    """How long writers wait for one of them that waits for another process."""
    check_wait_s: float = 1.0
    """How long a check waits for its turn to write."""


class _SqliteTransaction(Transaction):
    def load(self, rows: Iterable[tuple[object, ...]]) -> None:
        self._connection.execute("DELETE FROM requested")
        self._connection.executemany("INSERT INTO requested VALUES (?, ?, ?, ?, ?)", rows)


class SqliteResultDatabase(ResultDatabase):
    """The database in the file at `path`, which is created if it does not exist."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        limits: SqliteResultLimits = SqliteResultLimits(),  # noqa: B008  it is frozen
    ) -> None:
        super().__init__(Pool(str(path), self._connect))
        self._limits = limits
        pragmas: dict[str, str | int] = {"foreign_keys": "ON", "cache_size": -65536, "temp.cache_size": -65536}
        self._file = SqliteFile(Path(path), SCHEMA, pragmas=pragmas)
        self._writer = threading.Lock()
        self._locked_since: float | None = None
        """Since when the writer has waited for another process, by the monotonic clock."""
        self._local = threading.local()
        self._file.open().close()

    # Connections

    def _connect(self) -> sqlite3.Connection:
        connection = self._file.connect()
        connection.executescript(_TEMPORARY)
        return connection

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Return the connection that this thread holds already, or one of the pool."""
        if (held := getattr(self._local, "connection", None)) is not None:
            yield held
            return
        with self._file.faults(), self._pool.connection() as connection:
            self._local.connection = connection
            try:
                yield connection
            finally:
                self._local.connection = None

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        with self.connection() as connection:
            yield _SqliteTransaction(connection)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        with self.connection() as connection, self._turn():
            self._locked_since = time.monotonic()
            try:
                connection.execute("BEGIN IMMEDIATE")
            finally:
                self._locked_since = None
            with committed(connection):
                yield _SqliteTransaction(connection)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for the lock of writers; raise Unavailable if its holder waits too long for another process."""
        while not self._writer.acquire(timeout=0.1):
            since = self._locked_since
            if since is not None and time.monotonic() - since > self._limits.lock_wait_s:
                raise self._file.locked_error()
        try:
            yield
        finally:
            self._writer.release()

    def check(self) -> None:
        wait_s = self._limits.check_wait_s
        with self.reading() as transaction:
            transaction.rows("SELECT count(*) FROM brokers")
        if not self._writer.acquire(timeout=wait_s):
            if (since := self._locked_since) is not None and time.monotonic() - since > wait_s / 2:
                raise self._file.locked_error()
            return  # another thread is writing
        try:
            with self.connection() as connection:
                connection.execute(f"PRAGMA busy_timeout = {int(wait_s * 1000)}")
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("ROLLBACK")
                finally:
                    connection.execute("PRAGMA busy_timeout = 5000")
        finally:
            self._writer.release()

    # Loading

    @contextmanager
    def staging(self, matches: Matches, few: int, expect_few: bool) -> Iterator[StagedRows]:
        with self.connection() as connection:
            table, batches = load_few(matches, few, expect_few)
            if table is not None:
                yield StagedRows(table.num_rows, "temp.staged", {}, partial(_number, table))
                return
            try:
                yield StagedRows(_stage(connection, batches), "temp.staged", {})
            finally:
                connection.execute("DELETE FROM temp.staged")


def _stage(connection: sqlite3.Connection, batches: Iterable[pa.RecordBatch]) -> int:
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        columns = [column.to_pylist() for column in batch.columns]
        connection.execute("BEGIN")
        connection.executemany(
            f"INSERT INTO temp.staged ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", zip(*columns, strict=True)
        )
        connection.execute("COMMIT")
    return rows


def _number(table: pa.Table, transaction: Transaction, channel: str, before: int, at_ms: int) -> int:
    """Insert rows that are numbered in memory, in half the time that SQLite's window functions take."""
    table = table.take(pc.sort_indices(table, _ORDER))
    stream = table["stream"].to_numpy()
    begins = np.flatnonzero(np.r_[True, stream[1:] != stream[:-1]])
    counts = np.diff(np.r_[begins, len(stream)])
    streams = stream[begins]
    transaction.load((None, None, None, None, one) for one in streams.tolist())
    heads = transaction.rows(
        "SELECT s.head FROM requested a CROSS JOIN streams s ON s.id = a.number WHERE s.channel = :channel "
        "ORDER BY a.rowid",
        channel=channel,
    )
    if len(heads) != len(streams):
        raise unknown_streams(len(streams) - len(heads), channel)
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
        "UPDATE streams SET head = ? WHERE id = ?", zip((head + counts).tolist(), streams.tolist(), strict=True)
    )
    return len(streams)
