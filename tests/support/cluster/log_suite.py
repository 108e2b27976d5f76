"""The contract of logs. A test module defines a fixture `log` and inherits from the classes below.

A log that can be reopened also has a fixture `reopen`, which closes it and opens it again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from newsstand.cluster.ingest.schema import parse_dataset, spark_schema
from newsstand.cluster.ingest.validator import RecordValidator
from newsstand.cluster.log.contract import AppendResult, Log
from newsstand.cluster.log.files.segments import parts
from newsstand.errors import BadInput
from newsstand.model import Dataset

REPORTS = parse_dataset(
    "reports",
    {
        "fields": {
            "id": "integer",
            "kind": "string",
            "lat": "double?",
            "urgent": "boolean?",
            "at": "timestamp?",
            "tags": "array<string>?",
        }
    },
)


def segments(folder: Path) -> list[int]:
    """Return the first numbers of the segments of a dataset, in order."""
    return [part.first for part in parts(folder) if part.last is None]


def lines(first: int, count: int) -> list[bytes]:
    """Return records of `REPORTS` as the validator writes them, with `id` equal to their numbers."""
    records = [
        {
            "id": number,
            "kind": f'fire "{number}" é\n☃',
            "lat": number / 7,
            "urgent": number % 2 == 0,
            "at": f"2024-02-29T12:00:00.{number % 1000:03d}+02:00",
            "tags": ["a"] * (number % 3),
            "_page": {"text": f"page {number}"},
        }
        if number % 3
        else {"id": number, "kind": ""}
        for number in range(first, first + count)
    ]
    records = RecordValidator(REPORTS).validate(json.dumps(records).encode())
    assert not records.rejected
    return records.lines


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: row[6])  # type: ignore[no-any-return]


class LogContract:
    """Appending and reading on the driver."""

    def test_append_continues_numbers(self, log: Log) -> None:
        assert log.append("reports", lines(1, 3), 10) == AppendResult(1, 3)
        assert log.append("reports", lines(4, 1), 11) == AppendResult(4, 4)
        assert log.head("reports") == 4

    def test_read_returns_records_in_order(self, log: Log) -> None:
        given = lines(1, 5)
        log.append("reports", given[:3], 10)
        log.append("reports", given[3:], 11)
        read = list(log.read("reports", 1, 4))
        assert [(entry.seq, entry.at_ms) for entry in read] == [(2, 10), (3, 10), (4, 11)]
        assert [json.loads(entry.line) for entry in read] == [
            {"_at": at, **json.loads(line)} for at, line in zip([10, 10, 11], given[1:4], strict=True)
        ]
        assert [entry.seq for entry in log.read("reports", 3)] == [4, 5]
        assert list(log.read("reports", 5)) == []

    def test_append_accepts_record_without_fields(self, log: Log) -> None:
        assert log.append("empty", [b"{}", b"{}"], 10) == AppendResult(1, 2)
        assert [json.loads(entry.line) for entry in log.read("empty", 0)] == [{"_at": 10}] * 2

    def test_dataset_empty_before_first_append(self, log: Log) -> None:
        assert log.head("nothing") == 0
        assert list(log.read("nothing", 0)) == []

    def test_datasets_have_separate_numbers(self, log: Log) -> None:
        log.append("reports", lines(1, 3), 10)
        assert log.append("shelters", [b'{"id":"a"}'], 11) == AppendResult(1, 1)

    def test_append_adds_nothing_when_key_is_repeated(self, log: Log) -> None:
        log.append("reports", lines(1, 1), 10)
        assert log.append("reports", lines(2, 2), 11, "k") == AppendResult(2, 3)
        log.append("reports", lines(4, 1), 12)
        assert log.append("reports", lines(9, 7), 13, "k") == AppendResult(2, 3, repeated=True)
        assert log.append("shelters", [b"{}"], 13, "k") == AppendResult(1, 1)
        assert log.head("reports") == 4

    @pytest.mark.parametrize("name", ["", "..", "../x", "/etc", "A", "a-b", "a" * 64, "_a", "a\n"])
    def test_dataset_name_rejected_when_invalid(self, log: Log, name: str) -> None:
        for attempt in (
            lambda: log.head(name),
            lambda: log.append(name, [b"{}"], 1),
            lambda: list(log.read(name, 0)),
        ):
            with pytest.raises(BadInput, match="dataset"):
                attempt()

    def test_concurrent_appends_are_contiguous(self, log: Log) -> None:
        answers: list[tuple[int, AppendResult]] = []

        def work(worker: int) -> None:
            for turn in range(10):
                mine = [b'{"id":%d,"kind":"x"}' % (worker * 100 + turn)] * (1 + worker % 3)
                answers.append((worker * 100 + turn, log.append("reports", mine, turn, f"{worker}/{turn}")))

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ids = {entry.seq: json.loads(entry.line)["id"] for entry in log.read("reports", 0)}
        assert list(ids) == list(range(1, log.head("reports") + 1))
        assert len(answers) == 80
        for id, answer in answers:
            assert {ids[number] for number in range(answer.first, answer.last + 1)} == {id}


class DurableLogContract:
    """Records and keys of a log that was closed and opened again."""

    def test_reopened_log_has_records_and_keys(self, log: Log, reopen: Callable[[], Log]) -> None:
        log.append("reports", lines(1, 3), 10, "k")
        log.append("reports", lines(4, 2), 11)
        before = list(log.read("reports", 0))
        log = reopen()
        assert log.head("reports") == 5
        assert list(log.read("reports", 0)) == before
        assert log.append("reports", lines(6, 1), 12, "k") == AppendResult(1, 3, repeated=True)
        assert log.append("reports", lines(6, 1), 12) == AppendResult(6, 6)

    def test_keys_of_publishers_are_separate(self, log: Log, reopen: Callable[[], Log]) -> None:
        assert log.append("reports", lines(1, 2), 1, "k", "gate") == AppendResult(1, 2)
        assert log.append("reports", lines(3, 1), 1, "k", "port") == AppendResult(3, 3)
        assert log.append("reports", lines(9, 1), 1, "k", "gate") == AppendResult(1, 2, repeated=True)
        again = reopen()
        assert again.append("reports", lines(9, 1), 1, "k", "gate") == AppendResult(1, 2, repeated=True)
        assert again.append("reports", lines(9, 1), 1, "k", "port") == AppendResult(3, 3, repeated=True)
        assert again.append("reports", lines(4, 1), 1, "k", "dock") == AppendResult(4, 4)


class SparkLogContract:
    """The same records as DataFrames."""

    def test_frame_equals_read(self, log: Log, spark: SparkSession) -> None:
        log.append("reports", lines(1, 7), 1_700_000_000_123)
        frame = log.frame(spark, REPORTS, 2, 6)
        assert frame.schema == spark_schema(REPORTS)
        assert rows(frame) == expected(log, spark, 2, 6)
        assert log.frame(spark, REPORTS, 7, 9).count() == 0
        assert log.frame(spark, Dataset("nothing", REPORTS.fields), 0, 9).count() == 0

    def test_table_equals_frame(self, log: Log, spark: SparkSession) -> None:
        log.append("reports", lines(1, 7), 1_700_000_000_123)
        table = log.table(REPORTS, 2, 6)
        if table is not None:
            assert rows(spark.createDataFrame(table, spark_schema(REPORTS))) == expected(log, spark, 2, 6)

    def test_wait_returns_at_an_append_or_in_time(self, log: Log) -> None:
        log.append("reports", lines(1, 2), 1)
        assert log.wait("reports", 1, 60) == 2
        assert log.wait("reports", 2, 0.01) == 2
        heads: list[int] = []
        waiting = threading.Thread(target=lambda: heads.append(log.wait("reports", 2, 60)))
        waiting.start()
        log.append("others", lines(1, 1), 1)
        log.append("reports", lines(3, 1), 1)
        waiting.join(60)
        assert heads == [3]


def expected(log: Log, spark: SparkSession, after: int, until: int) -> list[tuple[object, ...]]:
    """Return the rows that a frame must have, from the records that the driver reads."""
    from datetime import UTC, datetime

    from pyspark.sql import Row

    def local(time: datetime) -> datetime:
        return time.astimezone().replace(tzinfo=None)  # as PySpark's collect gives timestamps

    made = []
    for entry in log.read("reports", after, until):
        record = json.loads(entry.line)
        page = record.get("_page")
        made.append(
            (
                record["id"],
                record["kind"],
                record.get("lat"),
                record.get("urgent"),
                local(datetime.fromisoformat(record["at"])) if "at" in record else None,
                record.get("tags"),
                entry.seq,
                local(datetime.fromtimestamp(entry.at_ms / 1000, UTC)),
                Row(id=page["id"], size=page["size"], type=page["type"], url=None) if page else None,
            )
        )
    return made
