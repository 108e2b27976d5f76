"""The ingest log in files: the default. How it lies in its folders is the matter of `log_segments`."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from newsstand.cluster.log import Appended, Entry, Log, Lost
from newsstand.cluster.log_check import sizes
from newsstand.cluster.log_reading import chunks, entries, spans
from newsstand.cluster.log_seals import read_gap
from newsstand.cluster.log_segments import REPAIR, Head, parts, read_head, repair_command
from newsstand.cluster.log_source import LogSource, parse_offset, source_options
from newsstand.cluster.log_writer import Writer
from newsstand.cluster.records import is_name, line_table, spark_schema
from newsstand.errors import BadInput, LogDamage
from newsstand.model import Dataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

SEGMENT_BYTES = 64 * 2**20
"""A segment of this size is followed by a new one."""
REMEMBERED_KEYS = 100_000
"""So many idempotency keys of each dataset are remembered."""
SHIPPED = 4 * 2**20
"""Up to this size a range is read on the driver: quicker than tasks that would have to be told of it."""
LARGE = 2**30
"""From this size on it is told that a dataset is being verified."""
LONG_S = 5.0
"""A verification that takes longer is told, too."""


class FileLog(Log):
    """The log of all datasets under one folder, a folder for each.

    One process at a time writes; any may read with `read_only`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        remembered_keys: int = REMEMBERED_KEYS,
        read_only: bool = False,
    ) -> None:
        self.folder = folder.absolute()
        self._segment_bytes = segment_bytes
        self._remembered_keys = remembered_keys
        self._read_only = read_only
        self._writers: dict[str, Writer] = {}
        self._opening = threading.Lock()
        self._lock: int | None = None
        if not read_only:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = locked(self.folder)
        for journal in self.folder.glob(f"{REPAIR}*"):
            self.close()
            raise LogDamage(f"{journal}: a repair was interrupted; {repair_command(self.folder.parent)}")

    def append(
        self,
        dataset: str,
        lines: Sequence[bytes],
        at_ms: int,
        key: str | None = None,
        publisher: str | None = None,
    ) -> Appended:
        """Add records as the contract says; without records, tell where they would have gone."""
        if key is not None and not (0 < len(key) <= 256 and key.isprintable()):
            raise BadInput(f"idempotency key {key[:80]!r}: give 1 to 256 printable characters")
        for line in lines:
            if line[:1] != b"{" or line[-1:] != b"}" or b"\n" in line:
                raise ValueError(f"not a JSON object on one line: {line[:80]!r}")
        return self._writer(dataset).append(lines, at_ms, key, publisher)

    def head(self, dataset: str) -> int:
        head = self._head(dataset)
        return head.seq if head else 0

    def read(self, dataset: str, after: int, until: int | None = None) -> Iterator[Entry]:
        head = self._head(dataset)
        end = until if until is not None else head.seq if head else 0
        return entries(spans(self._folder(dataset), after, end, head))

    def frame(self, spark: SparkSession, dataset: Dataset, after: int, until: int) -> DataFrame:
        head = self._head(dataset.name)
        found = spans(self._folder(dataset.name), after, until, head)
        if head is None or sum(span.end - span.begin for span in found) <= SHIPPED:
            return spark.createDataFrame(line_table(b"".join(chunks(found)), dataset), spark_schema(dataset))
        options = self._options(spark, dataset, after, until=min(until, head.seq))
        return spark.read.format(LogSource.name()).options(**options).load()

    def stream(self, spark: SparkSession, dataset: Dataset, after: int, limit: int) -> DataFrame:
        options = self._options(spark, dataset, after, limit=limit)
        return spark.readStream.format(LogSource.name()).options(**options).load()

    def _options(self, spark: SparkSession, dataset: Dataset, after: int, **bound: int) -> dict[str, str]:
        spark.dataSource.register(LogSource)
        tasks = spark.sparkContext.defaultParallelism
        return source_options(self._folder(dataset.name), dataset, after, tasks, **bound)

    def until(self, offset: str) -> int:
        return parse_offset(offset)

    def verify(self) -> None:
        for dataset in dataset_folders(self.folder):
            size, began = sizes(self.folder / dataset), time.monotonic()
            if size >= LARGE:
                logger.info("log of %s: verifying %d bytes", dataset, size)
            self._writer(dataset)
            seconds = time.monotonic() - began
            if size >= LARGE or seconds > LONG_S:
                logger.info("log of %s: verified %d bytes in %.1f s", dataset, size, seconds)

    def lost(self, dataset: str, seq: int) -> Lost | None:
        folder = self._folder(dataset)
        for part in parts(folder):
            if part.last is not None and part.first <= seq <= part.last:
                gap = read_gap(folder, part)
                return Lost(gap.first, gap.last, gap.at_ms, gap.why)
        return None

    def close(self) -> None:
        with self._opening:
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _folder(self, dataset: str) -> Path:
        if not is_name(dataset):
            raise BadInput(
                f"dataset {dataset[:80]!r}: a name is a lower-case letter, then a-z, 0-9 and _, at most 63"
            )
        return self.folder / dataset

    def _head(self, dataset: str) -> Head | None:
        folder = self._folder(dataset)
        if self._read_only:
            return read_head(folder)
        return self._writer(dataset).durable if folder.is_dir() else None

    def _writer(self, dataset: str) -> Writer:
        folder = self._folder(dataset)
        with self._opening:
            if self._lock is None:
                raise BadInput(f"{self.folder}: the log is {'read-only' if self._read_only else 'closed'}")
            writer = self._writers.get(dataset)
            if writer is not None and not writer.there():
                writer.close()
                writer = None
            if writer is None:
                writer = self._writers[dataset] = Writer(folder, self._segment_bytes, self._remembered_keys)
            return writer


def dataset_folders(folder: Path) -> list[str]:
    """The datasets that a log has a folder of."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and is_name(path.name))


def locked(folder: Path) -> int:
    """Keep other processes from writing a log, until the descriptor is closed."""
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BadInput(f"{folder}: another process writes this log; stop it or take another folder") from None
    return descriptor
