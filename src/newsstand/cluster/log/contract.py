"""The ingest log: the publications of every dataset, numbered 1, 2, 3 … in the order of their acceptance.

The contract: records are durable when `append` returns; they survive SIGKILL and power loss. An append is atomic:
after a crash either all of its records are there or none. A number is never assigned twice, and numbers have no
holes, except for records that were lost with a damaged disk (`LostRange`). `log.files` stores the log in files;
`log.kafka` stores it in Kafka, with a topic of one partition for each dataset.

A record is one line of JSON; besides its fields it may have `_page`, the page that it carries. The log adds `_at`,
the time of acceptance (Unix milliseconds). Readers get the number as `_seq`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from newsstand.errors import BadInput
from newsstand.model import Dataset

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

POLL_S = 0.02
"""Seconds between two looks at the head of a log that does not report new records."""


@dataclass(frozen=True)
class AppendResult:
    """The outcome of an append: its records have the numbers `first` to `last`."""

    first: int
    last: int
    repeated: bool = False
    """Whether the idempotency key was seen before, so that nothing was added now."""


@dataclass(frozen=True)
class LogEntry:
    """One record of the log, as the driver reads it."""

    seq: int
    at_ms: int
    line: bytes
    """The line without its line feed, with `_at` and, if present, `_page`."""


class LostRange(msgspec.Struct, frozen=True):
    """Records that a repair of the log could not recover; readers skip them."""

    first: int
    last: int
    at_ms: int
    """The time of the repair."""
    why: str


class Log(ABC):
    """The log of all datasets. Methods may be called from several threads; one process writes."""

    @abstractmethod
    def append(
        self,
        dataset: str,
        lines: Sequence[bytes],
        at_ms: int,
        key: str | None = None,
        publisher: str | None = None,
    ) -> AppendResult:
        """Add records, one JSON object each; return when they are durable.

        `key` is an idempotency key: of several appends of one publisher to one dataset with one key, the first
        adds records and the others return its result, also after a restart (for the last 100,000 keys). Without
        records, return the numbers that they would get. Raise `NoRoom` if the disk is full; the log is then
        unchanged.
        """

    @abstractmethod
    def head(self, dataset: str) -> int:
        """Return the number of the newest durable record, 0 if there is none."""

    @abstractmethod
    def read(self, dataset: str, after: int, until: int | None = None) -> Iterator[LogEntry]:
        """Return records with after < seq <= until, in order, on the driver: for small ranges."""

    @abstractmethod
    def frame(self, spark: SparkSession, dataset: Dataset, after: int, until: int) -> DataFrame:
        """Return the same records as a DataFrame of the dataset's fields with `_seq`, `_at` and `_page`."""

    def table(self, dataset: Dataset, after: int, until: int) -> pa.Table | None:
        """Return the same records as a table, if they are few enough to be read on the driver."""
        return None

    def wait(self, dataset: str, after: int, timeout_s: float) -> int:
        """Return the head as soon as it is past `after`, or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while (head := self.head(dataset)) <= after and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(POLL_S, left))
        return head

    @abstractmethod
    def verify(self) -> None:
        """Verify all records before the log is used; raise `LogDamage`."""

    def lost_range(self, dataset: str, seq: int) -> LostRange | None:
        """Return the loss that includes a record below the head; None if the record was not lost."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""


def require_appendable(lines: Sequence[bytes], key: str | None) -> None:
    """Raise BadInput for a malformed idempotency key, ValueError for a line that is not one JSON object."""
    if key is not None and not (0 < len(key) <= 256 and key.isprintable()):
        raise BadInput(f"idempotency key {key[:80]!r}: give 1 to 256 printable characters")
    for line in lines:
        if line[:1] != b"{" or line[-1:] != b"}" or b"\n" in line:
            raise ValueError(f"not a JSON object on one line: {line[:80]!r}")
