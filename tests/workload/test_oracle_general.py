"""libCacheSim's binary traces are read as written, in any number of tasks."""

from __future__ import annotations

import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from newsstand.errors import BadTrace
from newsstand.workload.oracle_columns import read_oracle_columns
from newsstand.workload.oracle_file import write_oracle_general
from newsstand.workload.oracle_general import read_oracle_general
from newsstand.workload.trace.files import TABLES
from newsstand.workload.trace.folder import Trace, check

RECORD = st.tuples(
    st.integers(0, 4), st.sampled_from([0, 7, 2**63, 2**64 - 1]), st.sampled_from([0, 1, 9, 2**32 - 1])
)
LARGE = 2**64 - 2  # an object id that no int64 holds
RECORDS = [(5, 7, 10, 3), (3, 8, 0, 5), (5, 7, 40, -1), (9, LARGE, 2**32 - 1, -1), (9, 8, 0, -1)]
BYTES = b"".join(struct.pack("<IQIq", *record) for record in RECORDS)


def rows_of(trace: Trace) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    requests = trace.requests.orderBy("row").select("time", "proxy", "page", "row.block", "row.place")
    publications = trace.publications.orderBy("page").select("page", "time", "size")
    return [tuple(row) for row in publications.collect()], [tuple(row) for row in requests.collect()]


PUBLICATIONS = [(-2, 9.0, 2**32 - 1), (7, 5.0, 40), (8, 3.0, 1)]
REQUESTS = [(5.0, 0, 7, 0, 0), (3.0, 0, 8, 0, 1), (5.0, 0, 7, 0, 2), (9.0, 0, -2, 0, 3), (9.0, 0, 8, 0, 4)]


@pytest.mark.parametrize("tasks", [*(pytest.param(one, marks=pytest.mark.slow) for one in (1, 2)), 5])
def test_trace_is_read_in_any_number_of_tasks(spark: SparkSession, tmp_path: Path, tasks: int) -> None:
    path = tmp_path / "small.oracleGeneral"
    path.write_bytes(BYTES)
    trace = read_oracle_general(spark, path, records_per_task=-(-len(RECORDS) // tasks))
    assert trace.requests.rdd.getNumPartitions() == tasks
    assert rows_of(trace) == (PUBLICATIONS, REQUESTS)
    assert trace.subscriptions.count() == 0
    assert trace.notes == ()
    check(trace)


def test_tables_have_columns_of_trace(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "small.bin"
    path.write_bytes(BYTES)
    row = "row:struct<file:string,block:bigint,place:bigint>"
    trace = read_oracle_general(spark, path)
    assert {name: getattr(trace, name).schema.simpleString() for name in TABLES} == {
        "publications": f"struct<page:bigint,time:double,size:bigint,{row}>",
        "requests": f"struct<time:double,proxy:int,page:bigint,{row}>",
        "subscriptions": f"struct<proxy:int,page:bigint,count:int,{row}>",
    }


def test_compressed_trace_has_one_reader(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "small.oracleGeneral.zst"
    path.write_bytes(pa.compress(BYTES, "zstd", asbytes=True) + pa.compress(b"cut", "zstd", asbytes=True))
    trace = read_oracle_general(spark, path, records_per_task=2)
    assert trace.requests.rdd.getNumPartitions() == 1
    assert rows_of(trace) == (PUBLICATIONS, REQUESTS)
    assert trace.notes == ("the last 3 bytes are no complete record and were skipped",)


def test_truncated_record_is_noted_or_rejected(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "cut.bin"
    path.write_bytes(BYTES[:-7])
    trace = read_oracle_general(spark, path)
    assert rows_of(trace)[1] == REQUESTS[:-1]
    assert trace.notes == ("the last 17 bytes are no complete record and were skipped",)
    assert read_oracle_columns(path).notes == trace.notes
    with pytest.raises(BadTrace, match=r"cut\.bin: 17 bytes follow record 4, no complete record$"):
        read_oracle_general(spark, path, strict=True)
    with pytest.raises(BadTrace, match=r"cut\.bin: 17 bytes follow record 4, no complete record$"):
        read_oracle_columns(path, strict=True)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.bin", b"", "the file holds no record of 24 bytes"),
        ("short.bin", b"x" * 23, "the file holds no record of 24 bytes"),
        ("plain.bin.zst", BYTES, "not readable as zstd"),
        ("cut.bin.zst", pa.compress(BYTES * 9, "zstd", asbytes=True)[:-9], "not readable as zstd"),
    ],
)
def test_file_rejected_when_unusable(
    spark: SparkSession, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    errors = []
    for read in (
        lambda: read_oracle_general(spark, tmp_path / name),
        lambda: read_oracle_columns(tmp_path / name),
    ):
        with pytest.raises(BadTrace, match=f"{name}: {reason}") as refused:
            read()
        errors.append(str(refused.value))
    assert errors[0] == errors[1]


def test_file_rejected_when_missing(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="no such file"):
        read_oracle_general(spark, tmp_path / "none.bin")
    with pytest.raises(BadTrace, match="no such file"):
        read_oracle_columns(tmp_path / "none.bin")


@given(st.lists(RECORD, min_size=1, max_size=30), st.booleans(), st.booleans())
def test_columns_hold_largest_size_and_first_time(
    rows: list[tuple[int, int, int]], is_sorted: bool, is_compressed: bool
) -> None:
    rows = sorted(rows, key=lambda row: row[0]) if is_sorted else rows
    content = b"".join(struct.pack("<IQIq", *row, -1) for row in rows)
    with TemporaryDirectory() as folder:
        path = Path(folder) / ("some.bin.zst" if is_compressed else "some.bin")
        path.write_bytes(pa.compress(content, "zstd", asbytes=True) if is_compressed else content)
        trace = read_oracle_columns(path)
    pages = list(dict.fromkeys(page for _, page, _ in rows))
    assert trace.requests.time.tolist() == [time for time, _, _ in rows]
    assert trace.requests.proxy.tolist() == [0] * len(rows)
    assert trace.requests.page.tolist() == [pages.index(page) for _, page, _ in rows]
    assert trace.publications.page.tolist() == list(range(len(pages)))
    assert trace.publications.time.tolist() == [min(at for at, page, _ in rows if page == one) for one in pages]
    assert trace.publications.size.tolist() == [
        max(max(z, 1) for _, page, z in rows if page == one) for one in pages
    ]
    assert len(trace.subscriptions) == 0
    assert trace.is_in_order == (sorted(row[0] for row in rows) == [row[0] for row in rows])


@pytest.mark.parametrize("name", ["written.bin", "written.bin.zst"])
def test_written_file_equals_that_of_libcachesim(tmp_path: Path, name: str) -> None:
    times, objects, sizes = np.array([record[:3] for record in RECORDS], np.uint64).T
    write_oracle_general(tmp_path / name, times, objects.view(np.int64), sizes)
    content = (tmp_path / name).read_bytes()
    if name.endswith(".zst"):
        content = pa.decompress(content, len(BYTES), "zstd", asbytes=True)
    assert content == BYTES


def test_task_reads_several_batches(spark: SparkSession, tmp_path: Path) -> None:
    count = 150_000
    places = np.arange(count)
    write_oracle_general(tmp_path / "long.bin", places, places % 1000, places % 77)
    trace = read_oracle_general(spark, tmp_path / "long.bin", records_per_task=100_000)
    agreed = trace.requests.where("time = row.place and page = row.place % 1000")
    assert (agreed.count(), trace.publications.count()) == (count, 1000)


@pytest.mark.parametrize(
    ("times", "sizes", "reason"),
    [([1, 2], [1], "2 times, 1 pages and 1 sizes"), ([-1], [1], "a time does not"), ([1], [2**32], "a size")],
)
def test_values_rejected_when_too_large(tmp_path: Path, times: list[int], sizes: list[int], reason: str) -> None:
    with pytest.raises(BadTrace, match=reason):
        write_oracle_general(tmp_path / "x.bin", np.array(times), np.array([1]), np.array(sizes))
