"""The file of a broker's topics: what is to be written waits in memory, and goes to disk together, in a thread.

A disk takes milliseconds to have something for good, whether it is one row or a thousand. So everybody who asks
while one transaction is under way shares the next, and the event loop never waits for either.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from newsstand.errors import BadOption, NoRoom

logger = logging.getLogger(__name__)
Row = tuple[object, ...]
AGAIN_S = 1.0
"""After a fault, writing is tried again."""
_TABLES = """
CREATE TABLE IF NOT EXISTS publications (topic TEXT, at_ms INTEGER, origin TEXT, number INTEGER,
    publication BLOB NOT NULL, PRIMARY KEY (topic, at_ms, origin, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kept (topic TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS stored_elsewhere (topic TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (origin TEXT, number INTEGER, late INTEGER NOT NULL,
    publication BLOB NOT NULL, PRIMARY KEY (origin, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS numbers (what TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
"""


class Ledger:
    """One SQLite file in WAL mode; `write` and `then` are for the event loop, `read` for any thread."""

    def __init__(self, path: Path) -> None:
        try:
            self._writer = _connection(path)
            self._writer.executescript(_TABLES)
            self._reader = _connection(path)
            self._scanner = _connection(path)
        except sqlite3.Error as error:
            raise BadOption(f"{path}: cannot be opened as a broker's file of topics ({error})") from error
        self._thread = ThreadPoolExecutor(1, "topics")  # long searches elsewhere must not keep writing back
        self._reading = threading.Lock()
        self._scanning = threading.Lock()
        self._statements: list[tuple[str, Row]] = []
        self._after: list[Callable[[], None]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self.fault: Exception | None = None
        """Why the last attempt to write has failed."""

    def write(self, statement: str, *values: object) -> None:
        """Have something written, soon, and after what was told before."""
        self._statements.append((statement, values))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def write_now(self, statement: str, *values: object) -> None:
        """Have something written before this returns; only as long as nothing else is."""
        self._commit([(statement, values)])

    def then(self, call: Callable[[], None]) -> None:
        """Call when all that was told to be written is on disk; at once if nothing waits."""
        if self._task is None:
            call()
        else:
            self._after.append(call)

    async def written(self) -> None:
        """Wait until all that was told to be written is on disk."""
        if self._task is not None:
            written = asyncio.get_running_loop().create_future()
            self._waiting.append(written)
            await written

    def read(self, query: str, *values: object) -> list[Row]:
        """Rows that are on disk."""
        with self._reading:
            return self._reader.execute(query, values).fetchall()

    def stream(self, query: str, *values: object) -> Iterator[Row]:
        """The same one by one, for long queries: one at a time, and nobody who reads has to wait for it."""
        with self._scanning:
            yield from self._scanner.execute(query, values)

    async def drained(self) -> None:
        """Wait until nothing is being written, and give up if it cannot be."""
        if self._task is not None and self.fault is None:
            await asyncio.wait([self._task], timeout=5)

    def close(self) -> None:
        """Close the file."""
        self._thread.shutdown()
        self._writer.close()
        with self._reading, self._scanning:
            self._reader.close()
            self._scanner.close()

    async def _run(self) -> None:
        try:
            while self._statements or self._after or self._waiting:
                statements, self._statements = self._statements, []
                after, self._after = self._after, []
                waiting, self._waiting = self._waiting, []
                try:
                    await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, statements)
                except Exception as error:
                    self._failed(error, waiting)
                    if not isinstance(error, sqlite3.Error):
                        statements = [one for one in statements if self._can_hold(one[1])]
                    self._statements = statements + self._statements
                    self._after = after + self._after
                    await asyncio.sleep(AGAIN_S)
                    continue
                self.fault = None
                for call in after:
                    _called(call)
                for written in waiting:
                    if not written.done():
                        written.set_result(None)
        finally:
            self._task = None

    def _failed(self, error: Exception, waiting: Sequence[asyncio.Future[None]]) -> None:
        logger.error("topics could not be written: %s", error)
        self.fault = NoRoom(f"topics cannot be written ({error}); try again later")
        for written in waiting:
            if not written.done():
                written.set_exception(self.fault)

    def _can_hold(self, values: Row) -> bool:
        """Whether a row can have these values at all: to try again would otherwise fail for ever."""
        try:
            self.read(f"SELECT {', '.join('?' * len(values)) or 0}", *values)
        except (OverflowError, UnicodeError):
            logger.error("a row that cannot be written is left out: %.200r", values)
            return False
        except sqlite3.Error:
            pass
        return True

    def _commit(self, statements: Sequence[tuple[str, Row]]) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            for statement, some in groupby(statements, itemgetter(0)):
                self._writer.executemany(statement, [values for _, values in some])
            self._writer.execute("COMMIT")
        finally:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")


def _called(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # others wait behind it
        logger.exception("what waited for topics to be written went wrong")


def _connection(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection
