"""The latest record for each key of keyed datasets, derived from the log.

The file can always be rebuilt from the log. It continues from the last applied record, so a crash only
costs reading the records after it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import msgspec

from newsstand.cluster.log.contract import Log
from newsstand.model import Dataset
from newsstand.sqlite.database import Schema, SqliteFile

SCHEMA = Schema(
    "latest records",
    [
        "CREATE TABLE IF NOT EXISTS latest (dataset TEXT, key TEXT, seq INTEGER, at_ms INTEGER, line BLOB, "
        "PRIMARY KEY (dataset, key)) WITHOUT ROWID; "
        "CREATE TABLE IF NOT EXISTS applied (dataset TEXT PRIMARY KEY, seq INTEGER);"
    ],
)

_UPSERT = """
INSERT INTO latest VALUES (?, ?, ?, ?, ?)
ON CONFLICT (dataset, key) DO UPDATE SET seq = excluded.seq, at_ms = excluded.at_ms, line = excluded.line
WHERE excluded.seq > latest.seq
"""

Key = str | int

StoredRecord = tuple[int, int, bytes]
"""The number, the time and the line of a record."""

TRANSACTION_RECORDS = 20_000
"""Records that one transaction applies."""


class LatestRecords:
    """The latest record per key of every keyed dataset. Methods may be called from several threads."""

    def __init__(self, path: Path, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        # Commits are not synced: records that a power loss removes are read from the log again.
        self._file = SqliteFile(path, SCHEMA, pragmas={"synchronous": "NORMAL"})
        self._connection = self._file.open()

    def catch_up(
        self, dataset: Dataset, on_change: Callable[[dict[Key, StoredRecord]], None] | None = None
    ) -> int:
        """Apply new records of the log and return their number; `on_change` gets the newest of them by key."""
        key_of = _key_reader(dataset)
        applied = 0
        with self._lock:
            query = "SELECT seq FROM applied WHERE dataset = ?"
            row = self._connection.execute(query, (dataset.name,)).fetchone()
            since, head = (row[0] if row else 0), self._log.head(dataset.name)
            if since >= head:
                return 0
            records = ((one.seq, one.at_ms, one.line) for one in self._log.read(dataset.name, since, head))
            while entries := list(islice(records, TRANSACTION_RECORDS)):
                newest = {key_of(entry[2]): entry for entry in entries}
                with self._file.transaction(self._connection) as connection:
                    connection.executemany(
                        _UPSERT, [(dataset.name, str(key), *entry) for key, entry in newest.items()]
                    )
                    last = (dataset.name, entries[-1][0])
                    connection.execute("INSERT OR REPLACE INTO applied VALUES (?, ?)", last)
                applied += len(entries)
                if on_change is not None:
                    on_change(newest)
        return applied

    def all(self, dataset: Dataset) -> dict[Key, StoredRecord]:
        """Return the latest record of each key."""
        key_of = _key_reader(dataset)
        with self._lock:
            query = "SELECT seq, at_ms, line FROM latest WHERE dataset = ?"
            return {key_of(row[2]): row for row in self._connection.execute(query, (dataset.name,))}

    def drop(self, dataset: str) -> None:
        """Remove all records of a dataset."""
        with self._lock, self._file.transaction(self._connection) as connection:
            connection.execute("DELETE FROM latest WHERE dataset = ?", (dataset,))
            connection.execute("DELETE FROM applied WHERE dataset = ?", (dataset,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


def _key_reader(dataset: Dataset) -> Callable[[bytes], Key]:
    if dataset.key is None:
        raise ValueError(f"dataset {dataset.name} has no key")
    record = msgspec.defstruct("Keyed", [("key", str | int)], rename={"key": dataset.key})
    decoder = msgspec.json.Decoder(record)

    def key_of(line: bytes) -> Key:
        key: Key = getattr(decoder.decode(line), "key")  # noqa: B009  the class is defined at run time
        return key

    return key_of
