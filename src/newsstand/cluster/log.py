"""The ingest log: every dataset's publications, numbered 1, 2, 3 … in the order in which they were accepted.

The contract, in three sentences. What `append` has returned for is durable: it survives SIGKILL and power loss.
An append is whole: after a crash all of its records are there or none is. Numbers are never given twice and have
no holes, but for records that a damaged disk took and a repair gave up (`Lost`). `log_files` keeps the log in
files; `log_kafka` in Kafka, a topic of one partition for each dataset.

A record is one line of JSON; besides its fields it may have `_page`, the page that it carries. The log adds `_at`,
when it was accepted (Unix milliseconds). `_seq`, the number, is known to whoever reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from newsstand.model import Dataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Appended:
    """What an append did: the numbers of its records are `first` to `last`."""

    first: int
    last: int
    repeated: bool = False
    """Whether the idempotency key was seen before, so that nothing was added now."""


@dataclass(frozen=True)
class Entry:
    """One record of the log, as it is read on the driver."""

    seq: int
    at_ms: int
    line: bytes
    """The line without its end, with `_at` and, where there is one, `_page`."""


@dataclass(frozen=True)
class Lost:
    """Records that a repair of the log could not save; readers pass over them."""

    first: int
    last: int
    at_ms: int
    """When the repair was made."""
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
    ) -> Appended:
        """Add records, one JSON object each; return when they are durable.

        `key` is an idempotency key: of several appends of a publisher to a dataset with one key only the first
        adds anything, and the others are answered as it was, also after a restart (for the last 100,000 keys).
        Raise `NoRoom` if the disk is full: nothing was added, and what was accepted before is intact.
        """

    @abstractmethod
    def head(self, dataset: str) -> int:
        """The number of the newest durable record, 0 if there is none."""

    @abstractmethod
    def read(self, dataset: str, after: int, until: int | None = None) -> Iterator[Entry]:
        """Records with after < seq <= until, in order; on the driver, for what is small or read once."""

    @abstractmethod
    def frame(self, spark: SparkSession, dataset: Dataset, after: int, until: int) -> DataFrame:
        """The same records as a DataFrame of the dataset's fields with `_seq`, `_at` and `_page`."""

    @abstractmethod
    def stream(self, spark: SparkSession, dataset: Dataset, after: int, limit: int) -> DataFrame:
        """The records after `after` and all that will come, at most `limit` of them in a micro-batch."""

    @abstractmethod
    def until(self, offset: str) -> int:
        """The last record that an offset of `stream`, as Spark keeps it in its checkpoint, includes."""

    @abstractmethod
    def verify(self) -> None:
        """Verify all that is recorded, before anything is executed or added; raise `LogDamage`."""

    def lost(self, dataset: str, seq: int) -> Lost | None:
        """Why a record below the head cannot be read any more; None if it can, or if it never was."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""
