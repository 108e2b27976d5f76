"""The ingest log in files, the default, and its source for Spark; `segments` defines the format of the files.

The driver and the executors only share a folder with the writing process.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from newsstand.cluster.ingest.schema import (
    dataset_table,
    is_name,
    line_table,
    parse_dataset,
    require_name,
    spark_schema,
)
from newsstand.cluster.log.contract import AppendResult, Log, LogEntry, LostRange, require_appendable
from newsstand.cluster.log.files.reader import find_slices, read_chunks, read_entries
from newsstand.cluster.log.files.segments import (
    EMPTY,
    REPAIR,
    Head,
    lost_within,
    parts,
    read_gap,
    read_head,
    repair_command,
)
from newsstand.cluster.log.files.verification import sizes
from newsstand.cluster.log.files.writer import FileLogWriter
from newsstand.errors import BadInput, LogDamage
from newsstand.model import Dataset

MIN_TASK_RECORDS = 10_000
"""Minimum records of a task, except for the only task of a batch."""


class LogSource(DataSource):
    """The records of a dataset as rows of `spark_schema`; `FileLog` sets the options."""

    @classmethod
    def name(cls) -> str:
        return "newsstand_log"

    def schema(self) -> StructType:
        return spark_schema(self._dataset())

    def reader(self, schema: StructType) -> DataSourceReader:
        return LogReader(*self._arguments())

    def _arguments(self) -> tuple[Path, Dataset, int, int, int]:
        after, until, tasks = (int(self.options[name]) for name in ("after", "until", "tasks"))
        return Path(self.options["folder"]), self._dataset(), after, until, tasks

    def _dataset(self) -> Dataset:
        return parse_dataset(self.options["name"], json.loads(self.options["dataset"]))


@dataclass
class RecordRange(InputPartition):
    """The records of one task: after < seq <= until."""

    after: int
    until: int


@dataclass
class LogReader(DataSourceReader):
    """A reader of the records after < seq <= until."""

    folder: Path
    dataset: Dataset
    after: int
    until: int
    tasks: int

    def partitions(self) -> Sequence[RecordRange]:
        """Divide the records among at most `tasks` tasks."""
        count = self.until - self.after
        tasks = max(1, min(self.tasks, count // MIN_TASK_RECORDS))
        bounds = [self.after + count * task // tasks for task in range(tasks + 1)]
        return [RecordRange(*one) for one in pairwise(bounds)] if count > 0 else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RecordRange)
        after, until, rows = partition.after, partition.until, 0
        for chunk in read_chunks(find_slices(self.folder, after, until, read_head(self.folder) or EMPTY)):
            table = line_table(chunk, self.dataset)
            rows += table.num_rows
            yield from table.to_batches()
        if rows + lost_within(self.folder, after, until) != until - after:
            # On a network file system an executor may see less than the driver; to continue would lose records.
            wanted = f"the records {after + 1} to {until}"
            raise BadInput(f"{self.folder}: only {rows} of {wanted} can be read here; is the folder shared?")


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FileLogLimits:
    """Limits of a log in files."""

    segment_bytes: int = 64 * 2**20
    """A segment of this size is followed by a new one."""
    remembered_keys: int = 100_000
    """Idempotency keys that are remembered for each dataset."""
    driver_bytes: int = 4 * 2**20
    """Size up to which a range is read on the driver, which is faster than starting tasks."""
    large_bytes: int = 2**30
    """Size from which the verification of a dataset is logged."""
    slow_s: float = 5.0
    """Duration from which the verification of a dataset is logged."""


LIMITS = FileLogLimits()


class FileLog(Log):
    """The log of all datasets under one folder, with a folder for each dataset.

    One process at a time writes; others may read with `read_only`.
    """

    def __init__(self, folder: Path, limits: FileLogLimits = LIMITS, *, read_only: bool = False) -> None:
        self.folder = folder.absolute()
        self._limits = limits
        self._read_only = read_only
        self._writers: dict[str, FileLogWriter] = {}
        self._opening = threading.Lock()
        self._appended: dict[str, threading.Condition] = {}
        self._lock: int | None = None
        if not read_only:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock_folder(self.folder)
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
    ) -> AppendResult:
        require_appendable(lines, key)
        result = self._writer(dataset).append(lines, at_ms, key, publisher)
        appended = self._appended.setdefault(dataset, threading.Condition())
        with appended:
            appended.notify_all()
        return result

    def head(self, dataset: str) -> int:
        return self._head(dataset).seq

    def read(self, dataset: str, after: int, until: int | None = None) -> Iterator[LogEntry]:
        head = self._head(dataset)
        return read_entries(find_slices(self._folder(dataset), after, head.seq if until is None else until, head))

    def frame(self, spark: SparkSession, dataset: Dataset, after: int, until: int) -> DataFrame:
        table = self.table(dataset, after, until)
        if table is not None:
            return spark.createDataFrame(table, spark_schema(dataset))
        spark.dataSource.register(LogSource)
        options = {
            "folder": str(self._folder(dataset.name)),
            "name": dataset.name,
            "dataset": json.dumps(dataset_table(dataset)),
            "after": str(after),
            "until": str(min(until, self.head(dataset.name))),
            "tasks": str(spark.sparkContext.defaultParallelism),
        }
        return spark.read.format(LogSource.name()).options(**options).load()

    def table(self, dataset: Dataset, after: int, until: int) -> pa.Table | None:
        slices = find_slices(self._folder(dataset.name), after, until, self._head(dataset.name))
        if sum(one.end - one.begin for one in slices) > self._limits.driver_bytes:
            return None
        return line_table(b"".join(read_chunks(slices)), dataset)

    def wait(self, dataset: str, after: int, timeout_s: float) -> int:
        if self._read_only:
            return super().wait(dataset, after, timeout_s)
        appended = self._appended.setdefault(dataset, threading.Condition())
        with appended:
            appended.wait_for(lambda: self._lock is None or self.head(dataset) > after, timeout_s)
        return self.head(dataset)

    def verify(self) -> None:
        for dataset in dataset_folders(self.folder):
            size, began = sizes(self.folder / dataset), time.monotonic()
            if size >= self._limits.large_bytes:
                logger.info("log of %s: verifying %d bytes", dataset, size)
            self._writer(dataset)
            seconds = time.monotonic() - began
            if size >= self._limits.large_bytes or seconds > self._limits.slow_s:
                logger.info("log of %s: verified %d bytes in %.1f s", dataset, size, seconds)

    def lost_range(self, dataset: str, seq: int) -> LostRange | None:
        for part in parts(self._folder(dataset)):
            if part.last is not None and part.first <= seq <= part.last:
                return read_gap(part)
        return None

    def close(self) -> None:
        with self._opening:
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None
        for appended in list(self._appended.values()):
            with appended:
                appended.notify_all()

    def _folder(self, dataset: str) -> Path:
        require_name(f"dataset {dataset[:80]!r}", dataset, BadInput)
        return self.folder / dataset

    def _head(self, dataset: str) -> Head:
        folder = self._folder(dataset)
        if self._read_only:
            return read_head(folder) or EMPTY
        return self._writer(dataset).durable if folder.is_dir() else EMPTY

    def _writer(self, dataset: str) -> FileLogWriter:
        folder = self._folder(dataset)
        with self._opening:
            if self._lock is None:
                raise BadInput(f"{self.folder}: the log is {'read-only' if self._read_only else 'closed'}")
            writer = self._writers.get(dataset)
            if writer is not None and not writer.exists():
                writer.close()
                writer = None
            if writer is None:
                limits = self._limits
                writer = FileLogWriter(folder, limits.segment_bytes, limits.remembered_keys)
                self._writers[dataset] = writer
            return writer


def dataset_folders(folder: Path) -> list[str]:
    """Return the datasets of a log, by their folders."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and is_name(path.name))


def lock_folder(folder: Path) -> int:
    """Keep other processes from writing a log until the returned descriptor is closed."""
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BadInput(f"{folder}: another process writes this log; stop it or use another folder") from None
    return descriptor
