"""Keyed datasets: the latest record for each key, made from the log and kept beside it.

What is kept here can always be made again from the log. It is brought up to date from where it stopped, so a crash
at any point costs only the reading of what came since.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from newsstand.cluster.log import Entry, Log
from newsstand.model import Dataset

_TABLES = """
CREATE TABLE IF NOT EXISTS latest (dataset TEXT, key TEXT, seq INTEGER, at_ms INTEGER, line BLOB,
                                   PRIMARY KEY (dataset, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS applied (dataset TEXT PRIMARY KEY, seq INTEGER);
"""

_UPSERT = """
INSERT INTO latest VALUES (?, ?, ?, ?, ?)
ON CONFLICT (dataset, key) DO UPDATE SET seq = excluded.seq, at_ms = excluded.at_ms, line = excluded.line
WHERE excluded.seq > latest.seq
"""

Key = str | int

Latest = tuple[int, int, bytes]
"""The number, the time and the line of a record."""

SLICE = 20_000
"""So many records are applied in one transaction."""


class KeyedRecords:
    """The latest record per key of every keyed dataset. Methods may be called from several threads."""

    def __init__(self, file: Path, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._base = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._base.execute("PRAGMA journal_mode = WAL")
        self._base.execute("PRAGMA synchronous = NORMAL")  # what a power loss takes is read from the log again
        self._base.executescript(_TABLES)

    def catch_up(self, dataset: Dataset, tell: Callable[[dict[Key, Latest]], None] | None = None) -> int:
        """Apply what the log has and this has not; `tell` is told the newest of it by key. Return how many."""
        key_of = _key_reader(dataset)
        applied = 0
        with self._lock:
            known = self._base.execute("SELECT seq FROM applied WHERE dataset = ?", (dataset.name,)).fetchone()
            since, head = (known[0] if known else 0), self._log.head(dataset.name)
            if since >= head:
                return 0
            for entries in _slices(self._log.read(dataset.name, since, head)):
                newest = {key_of(entry[2]): entry for entry in entries}
                rows = [(dataset.name, str(key), *entry) for key, entry in newest.items()]
                self._base.execute("BEGIN IMMEDIATE")
                try:
                    self._base.executemany(_UPSERT, rows)
                    last = (dataset.name, entries[-1][0])
                    self._base.execute("INSERT OR REPLACE INTO applied VALUES (?, ?)", last)
                    self._base.execute("COMMIT")
                except BaseException:
                    self._base.execute("ROLLBACK")
                    raise
                applied += len(entries)
                if tell is not None:
                    tell(newest)
        return applied

    def all(self, dataset: Dataset) -> dict[Key, Latest]:
        """The latest record of each key."""
        key_of = _key_reader(dataset)
        with self._lock:
            query = "SELECT seq, at_ms, line FROM latest WHERE dataset = ?"
            return {key_of(row[2]): row for row in self._base.execute(query, (dataset.name,))}

    def forget(self, dataset: str) -> None:
        """Drop what is kept of a dataset."""
        with self._lock:
            self._base.execute("DELETE FROM latest WHERE dataset = ?", (dataset,))
            self._base.execute("DELETE FROM applied WHERE dataset = ?", (dataset,))

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._base.close()


def _key_reader(dataset: Dataset) -> Callable[[bytes], Key]:
    if dataset.key is None:
        raise ValueError(f"dataset {dataset.name} has no key")
    kept = msgspec.defstruct("Keyed", [("key", str | int)], rename={"key": dataset.key})
    decoder = msgspec.json.Decoder(kept)

    def key_of(line: bytes) -> Key:
        key: Key = getattr(decoder.decode(line), "key")  # noqa: B009  the class is made at run time
        return key

    return key_of


def _slices(entries: Iterable[Entry]) -> Iterator[list[Latest]]:
    waiting: list[Latest] = []
    for entry in entries:
        waiting.append((entry.seq, entry.at_ms, entry.line))
        if len(waiting) == SLICE:
            yield waiting
            waiting = []
    if waiting:
        yield waiting
