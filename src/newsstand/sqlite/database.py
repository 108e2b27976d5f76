"""SQLite files of the platform: opening, pragmas, pools, numbered versions, faults of the disk and of locks."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from newsstand.errors import BadInput, NoRoom, Unavailable


class Closable(Protocol):
    """A connection of any kind."""

    def close(self) -> object: ...


Connection = TypeVar("Connection", bound=Closable)


class Pool(Generic[Connection]):
    """Connections made by `connect`, one for each thread that asks; one that is not `alive` is not used again.

    At most `idle` connections are kept open for later use.
    """

    def __init__(
        self,
        place: str,
        connect: Callable[[], Connection],
        alive: Callable[[Connection], bool] = lambda one: True,
        idle: int = 8,
    ) -> None:
        self._place = place
        self._connect = connect
        self._alive = alive
        self._most_idle = idle
        self._idle: list[Connection] = []
        self._closed = False
        self._lock = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection for the length of a `with` block."""
        connection = self._take()
        try:
            yield connection
        finally:
            with self._lock:
                keep = not self._closed and len(self._idle) < self._most_idle
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()

    def close(self) -> None:
        """Close idle connections now, and the others when they are returned."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> Connection:
        while True:
            with self._lock:
                if self._closed:
                    raise BadInput(f"{self._place}: the database is closed")
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            if self._alive(connection):
                return connection
            connection.close()


LEAST_FREE_BYTES = 1 << 20
"""An input/output error on a disk with less free space counts as a full disk."""


@dataclass(frozen=True)
class Schema:
    """The layout of a file. The first migration creates version 1, each later one the next version."""

    content: str
    """What the file contains, for messages: "results" for "the database of results"."""
    migrations: Sequence[str]
    """SQL statements that end in semicolons; each is part of the transaction that sets the new version."""

    @property
    def version(self) -> int:
        """The newest version."""
        return len(self.migrations)

    def pending(self, found: int, place: str) -> Iterator[tuple[int, str]]:
        """Return the numbered migrations that version `found` lacks; raise BadInput for a newer version."""
        if found > self.version:
            supported = f"1 to {self.version}" if self.version > 1 else "1"
            raise BadInput(
                f"{place}: the database of {self.content} has schema version {found}; this Newsstand supports "
                f"version {supported}. Start the Newsstand that wrote it, or name another place"
            )
        return iter(list(enumerate(self.migrations, 1))[found:])


@dataclass(frozen=True)
class SqliteFile:
    """A SQLite file in WAL mode that only its owner can read; commits are synced unless `pragmas` differ."""

    path: Path
    schema: Schema
    exclusive: bool = False
    """Whether only one process may open the file."""
    pragmas: Mapping[str, str | int] = field(default_factory=dict)

    def open(self) -> sqlite3.Connection:
        """Return a connection to the file, which is created or migrated first."""
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise BadInput(
                f"{self.path}: cannot open the database of {self.schema.content} ({error.strerror}); its folder "
                "must exist and be writable"
            ) from error
        connection = self.connect()
        try:
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def connect(self) -> sqlite3.Connection:
        """Return one more connection to a file that is open already."""
        with self._opening():
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        settings: dict[str, str | int] = {"busy_timeout": 5000, "synchronous": "FULL", **self.pragmas}
        if self.exclusive:
            settings["locking_mode"] = "EXCLUSIVE"
        settings["journal_mode"] = "WAL"
        try:
            with self._opening():
                for name, value in settings.items():
                    connection.execute(f"PRAGMA {name} = {value}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def transaction(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        """Begin a writing transaction; commit it at the end of the block, or roll it back."""
        with self.faults():
            connection.execute("BEGIN IMMEDIATE")
            with committed(connection):
                yield connection

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Raise NoRoom for a full disk and Unavailable for a lock of another process."""
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            if self._is_full(error):
                raise NoRoom(
                    f"{self.path}: no space left on the disk; nothing was written. Free some space and try again"
                ) from error
            if _is_locked(error):
                raise self.locked_error() from error
            raise

    def locked_error(self) -> Unavailable:
        """Return the error for a file that another process has locked."""
        return Unavailable(
            f"{self.path}: locked by another process; nothing was written. Find that process and stop it",
            f"the database of {self.schema.content} is locked by another process",
        )

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            with self.faults():
                yield
        except Unavailable as error:
            if not self.exclusive:
                raise
            raise BadInput(f"{self.path}: used by another process; stop it or name another data folder") from error
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                raise BadInput(
                    f"{self.path}: not a database of {self.schema.content}; name another file"
                ) from error
            raise BadInput(f"{self.path}: cannot open the database of {self.schema.content} ({error})") from error

    def _migrate(self, connection: sqlite3.Connection) -> None:
        with self._opening():
            if _version(connection) == self.schema.version:
                return
            with self.transaction(connection):
                for number, migration in self.schema.pending(_version(connection), str(self.path)):
                    execute_script(connection, migration)
                    connection.execute(f"PRAGMA user_version = {number}")

    def _is_full(self, error: sqlite3.OperationalError | OSError) -> bool:
        if isinstance(error, OSError):
            return error.errno == errno.ENOSPC
        code = _code(error)
        if code == sqlite3.SQLITE_IOERR:
            # The shared memory of the write-ahead log, for one, has no error code of its own for a full disk.
            disk = os.statvfs(self.path.parent)
            return disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES
        return code == sqlite3.SQLITE_FULL


@contextmanager
def committed(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the open transaction at the end of the block, or roll it back."""
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk may have rolled the transaction back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def execute_script(connection: sqlite3.Connection, script: str) -> None:
    """Execute statements that end in semicolons within the open transaction; `executescript` would commit it."""
    for statement in script.split(";"):
        if statement.strip():
            connection.execute(statement)


def _version(connection: sqlite3.Connection) -> int:
    ((version,),) = connection.execute("PRAGMA user_version")
    return int(version)


def _code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_locked(error: Exception) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
