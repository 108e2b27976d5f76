"""The SQLite file of a broker's topics, and the storage of publications in it."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from pathlib import Path

import msgspec

from newsstand.errors import NoRoom
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import MessagePosition, Publication, PublicationId
from newsstand.sqlite.database import Schema, SqliteFile
from newsstand.sqlite.group_commit import GroupCommit

logger = logging.getLogger(__name__)
Row = tuple[object, ...]
Statement = tuple[str, Row]
"""SQL and its parameters."""

SCHEMA = Schema(
    "topics",
    [
        """
        CREATE TABLE IF NOT EXISTS publications (topic TEXT, at_ms INTEGER, origin TEXT, number INTEGER,
            publication BLOB NOT NULL, PRIMARY KEY (topic, at_ms, origin, number)) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS stored_topics (topic TEXT PRIMARY KEY) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS stored_elsewhere (topic TEXT PRIMARY KEY) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS outbox (origin TEXT, number INTEGER, late INTEGER NOT NULL,
            publication BLOB NOT NULL, PRIMARY KEY (origin, number)) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;""",
    ],
)
_INSERT = "INSERT OR IGNORE INTO publications VALUES (?, ?, ?, ?, ?)"
_ALL = "SELECT publication FROM publications WHERE topic = ? ORDER BY at_ms, origin, number"
_AFTER = """SELECT publication FROM publications WHERE topic = ? AND (at_ms, origin, number) > (?, ?, ?)
    ORDER BY at_ms, origin, number"""
_TRIM = """DELETE FROM publications WHERE topic = ?1 AND (at_ms, origin, number) < (
    SELECT at_ms, origin, number FROM publications WHERE topic = ?1
    ORDER BY at_ms DESC, origin DESC, number DESC LIMIT 1 OFFSET ?2)"""
encode_publication = msgspec.msgpack.Encoder().encode
decode_publication = msgspec.msgpack.Decoder(Publication).decode
_position = attrgetter("position")


class TopicDatabase:
    """One SQLite file. `write` and `commits` are for the event loop, `read` and `stream` for any thread."""

    def __init__(self, path: Path, retry_s: float = 1.0) -> None:
        self._file = SqliteFile(path, SCHEMA)
        self._writer = self._file.open()
        self._reader = self._file.connect()
        self._scanner = self._file.connect()
        self._thread = ThreadPoolExecutor(1, "topics")  # long searches in the shared pool must not delay writes
        self._reading = threading.Lock()
        self._scanning = threading.Lock()
        self.commits: GroupCommit[Statement] = GroupCommit(
            self._commit, executor=self._thread, recover=self._recover, retry_s=retry_s
        )

    def write(self, statement: str, *values: object) -> None:
        """Queue a write; writes are committed in order."""
        self.commits.add((statement, values))

    def write_now(self, statement: str, *values: object) -> None:
        """Write before returning; only before the first `write`."""
        self._commit([(statement, values)])

    def read(self, query: str, *values: object) -> list[Row]:
        """Return durable rows."""
        with self._reading:
            return self._reader.execute(query, values).fetchall()

    def stream(self, query: str, *values: object) -> Iterator[Row]:
        """Return durable rows one by one: one long query at a time, without blocking `read`."""
        with self._scanning:
            yield from self._scanner.execute(query, values)

    def close(self) -> None:
        self._thread.shutdown()
        self._writer.close()
        with self._reading, self._scanning:
            self._reader.close()
            self._scanner.close()

    def _commit(self, statements: Sequence[Statement]) -> None:
        with self._file.transaction(self._writer) as connection:
            for statement, group in groupby(statements, itemgetter(0)):
                connection.executemany(statement, [values for _, values in group])

    def _recover(self, error: Exception, statements: Sequence[Statement]) -> tuple[Exception, list[Statement]]:
        logger.error("topics cannot be written: %s", error)
        retained = list(statements)
        if isinstance(error, (OverflowError, UnicodeError)):
            retained = [one for one in statements if self._is_writable(one[1])]
        return NoRoom(f"topics cannot be written ({error}); try again later"), retained

    def _is_writable(self, values: Row) -> bool:
        """Return whether SQLite can hold these values at all: a row that it cannot would fail at every attempt."""
        try:
            self.read(f"SELECT {', '.join('?' * len(values)) or 0}", *values)
        except (OverflowError, UnicodeError):
            logger.error("a row that cannot be written is dropped: %.200r", values)
            return False
        except sqlite3.Error:
            pass
        return True


@dataclass(eq=False, repr=False)
class SqliteStorage:
    """Publications on disk and those being written; `matching` may be called from several threads."""

    database: TopicDatabase
    most: int
    """About how many publications of a topic are stored."""
    trim_every: int = 1000
    """How many more are stored before the oldest are removed."""

    def __post_init__(self) -> None:
        self._pending: dict[PublicationId, Publication] = {}
        self._forgetting: Counter[str] = Counter()
        self._stored: Counter[str] = Counter()

    @property
    def is_writable(self) -> bool:
        """False while writes fail, so that pending publications do not pile up in memory."""
        return self.database.commits.fault is None

    def keep(self, publication: Publication) -> bool:
        """Store a publication; return False if it is pending already.

        A publication on disk is stored once, and yet returns True: the event loop does not wait for a look there.
        """
        if publication.id in self._pending:
            return False
        self._pending[publication.id] = publication
        self.database.write(_INSERT, publication.topic, *publication.position, encode_publication(publication))
        self._stored[publication.topic] += 1
        if self._stored[publication.topic] % self.trim_every == 0:
            self.database.write(_TRIM, publication.topic, self.most - 1)
        self.database.commits.after_commit(lambda: self._committed(publication))
        return True

    def matching(
        self, wanted: Filter, topics: Collection[str], after: MessagePosition | None = None, limit: int = 0
    ) -> Sequence[Publication]:
        found = [one for topic in set(topics) for one in self._matching_of(wanted, topic, after, limit)]
        found.sort(key=_position)
        return found[:limit] if limit else found

    def forget(self, topic: str) -> None:
        for key in [key for key, one in self._pending.items() if one.topic == topic]:
            del self._pending[key]
        self._forgetting[topic] += 1
        self.database.write("DELETE FROM publications WHERE topic = ?", topic)
        self.database.commits.after_commit(lambda: self._forgetting.subtract([topic]))

    def _matching_of(
        self, wanted: Filter, topic: str, after: MessagePosition | None, limit: int
    ) -> Iterator[Publication]:
        # Pending publications first: one that leaves them meanwhile is on disk.
        pending = [one for one in list(self._pending.values()) if one.topic == topic]
        pending = sorted((one for one in pending if after is None or one.position > after), key=_position)
        seen: set[PublicationId] = set()
        both = merge(pending, self._on_disk(topic, after), key=_position)
        once = (one for one in both if one.id not in seen and not seen.add(one.id))  # type: ignore[func-returns-value]
        return islice((one for one in once if wanted.matches(one)), limit or None)

    def _on_disk(self, topic: str, after: MessagePosition | None) -> Iterator[Publication]:
        if self._forgetting[topic]:
            return
        query, values = (_ALL, ()) if after is None else (_AFTER, after)
        for (encoded,) in self.database.stream(query, topic, *values):
            yield decode_publication(encoded)  # type: ignore[arg-type]

    def _committed(self, publication: Publication) -> None:
        if self._pending.get(publication.id) is publication:
            del self._pending[publication.id]
