"""The log in files as a source of Spark's, for batches and for streams.

The driver and the executors know nothing of the process that writes but the folder, which they must be able to
read. An offset is the number of the last record that it includes, so a checkpoint does not depend on how the log
lies in its files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypedDict

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from newsstand.cluster.log_reading import chunks, spans
from newsstand.cluster.log_segments import lost_within, read_head
from newsstand.cluster.records import dataset_table, line_table, parse_dataset, spark_schema
from newsstand.errors import BadInput
from newsstand.model import Dataset

FEWEST = 10_000
"""A micro-batch is not cut into tasks of fewer records than this."""


class Offset(TypedDict):
    """The last record that an offset includes."""

    seq: int


def parse_offset(text: str) -> int:
    """The last record that an offset includes, as Spark keeps it in its checkpoint."""
    try:
        return int(json.loads(text)["seq"])
    except (ValueError, TypeError, KeyError):
        raise BadInput(f'{text[:80]!r} is not an offset of a log, such as {{"seq": 7}}') from None


def source_options(folder: Path, dataset: Dataset, after: int, tasks: int, **bound: int) -> dict[str, str]:
    """The options of `LogSource` for one dataset's folder; a batch has the bound `until`, a stream `limit`."""
    return {
        "folder": str(folder.absolute()),
        "name": dataset.name,
        "dataset": json.dumps(dataset_table(dataset)),
        "after": str(after),
        "tasks": str(tasks),
        **{name: str(value) for name, value in bound.items()},
    }


class LogSource(DataSource):
    """Records of one dataset as rows of `spark_schema`; see `source_options`."""

    @classmethod
    def name(cls) -> str:
        return "newsstand_log"

    def schema(self) -> StructType:
        return spark_schema(self._dataset())

    def reader(self, schema: StructType) -> DataSourceReader:
        return LogReader(
            Path(self.options["folder"]),
            self._dataset(),
            int(self.options["after"]),
            int(self.options["until"]),
            int(self.options["tasks"]),
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        return LogStreamReader(
            Path(self.options["folder"]),
            self._dataset(),
            int(self.options["after"]),
            int(self.options["limit"]),
            int(self.options["tasks"]),
        )

    def _dataset(self) -> Dataset:
        return parse_dataset(self.options["name"], json.loads(self.options["dataset"]))


@dataclass
class Numbers(InputPartition):
    """One task: the records with after < seq <= until."""

    after: int
    until: int


class LogReader(DataSourceReader):
    """The records with after < seq <= until, in at most `tasks` tasks."""

    def __init__(self, folder: Path, dataset: Dataset, after: int, until: int, tasks: int) -> None:
        self._folder = folder
        self._dataset = dataset
        self._cuts = _cuts(after, until, tasks)

    def partitions(self) -> Sequence[Numbers]:
        return self._cuts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(self._folder, self._dataset, partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Hands the log out in micro-batches of at most `limit` records, each in at most `tasks` tasks."""

    def __init__(self, folder: Path, dataset: Dataset, after: int, limit: int, tasks: int) -> None:
        self._folder = folder
        self._dataset = dataset
        self._after = after
        self._limit = limit
        self._tasks = tasks
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802
        return {"seq": self._after}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._head()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # type: ignore[override]  # noqa: N802
        newest = self._head() if self._target is None else self._target
        if isinstance(limit, ReadMaxRows):
            newest = min(newest, start["seq"] + limit.max_rows)
        elif not isinstance(limit, ReadAllAvailable):
            newest = min(newest, start["seq"] + self._limit)
        return {"seq": max(newest, start["seq"])}

    def reportLatestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802
        return {"seq": self._head()}

    def partitions(self, start: Offset, end: Offset) -> Sequence[Numbers]:  # type: ignore[override]
        return _cuts(start["seq"], end["seq"], self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(self._folder, self._dataset, partition)

    def _head(self) -> int:
        head = read_head(self._folder)
        return head.seq if head else 0


def _cuts(after: int, until: int, tasks: int) -> list[Numbers]:
    count = until - after
    tasks = max(1, min(tasks, count // FEWEST))
    cuts = [after + count * task // tasks for task in range(tasks + 1)]
    return [Numbers(*cut) for cut in pairwise(cuts)] if count > 0 else []


def _batches(folder: Path, dataset: Dataset, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, Numbers)
    rows = 0
    found = spans(folder, partition.after, partition.until, read_head(folder))
    for chunk in chunks(found):
        table = line_table(chunk, dataset)
        rows += table.num_rows
        yield from table.to_batches()
    if rows + lost_within(folder, partition.after, partition.until) != partition.until - partition.after:
        # A folder on a network may show an executor less than the driver saw: to go on would lose records.
        wanted = f"the records {partition.after + 1} to {partition.until}"
        raise BadInput(f"{folder}: only {rows} of {wanted} can be read here; is the folder shared?")
