"""libCacheSim's binary traces: read back as written, in any number of tasks."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from newsstand.errors import BadTrace
from newsstand.workload.check import check
from newsstand.workload.oracle_general import read_oracle_general, write_oracle_general
from newsstand.workload.trace import Trace

LARGE = 2**64 - 2  # an object id that no int64 holds
RECORDS = [(5, 7, 10, 3), (3, 8, 0, 5), (5, 7, 40, -1), (9, LARGE, 2**32 - 1, -1), (9, 8, 0, -1)]
BYTES = b"".join(struct.pack("<IQIq", *record) for record in RECORDS)


def told(trace: Trace) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    requests = trace.requests.orderBy("row").select("time", "proxy", "page", "row.block", "row.place")
    publications = trace.publications.orderBy("page").select("page", "time", "size")
    return [tuple(row) for row in publications.collect()], [tuple(row) for row in requests.collect()]


PUBLICATIONS = [(-2, 9.0, 2**32 - 1), (7, 5.0, 40), (8, 3.0, 1)]
REQUESTS = [(5.0, 0, 7, 0, 0), (3.0, 0, 8, 0, 1), (5.0, 0, 7, 0, 2), (9.0, 0, -2, 0, 3), (9.0, 0, 8, 0, 4)]


@pytest.mark.parametrize("tasks", [*(pytest.param(one, marks=pytest.mark.slow) for one in (1, 2)), 5])
def test_a_trace_in_any_number_of_tasks(spark: SparkSession, tmp_path: Path, tasks: int) -> None:
    path = tmp_path / "small.oracleGeneral"
    path.write_bytes(BYTES)
    trace = read_oracle_general(spark, path, records_per_task=-(-len(RECORDS) // tasks))
    assert trace.requests.rdd.getNumPartitions() == tasks
    assert told(trace) == (PUBLICATIONS, REQUESTS)
    assert trace.subscriptions.count() == 0
    assert trace.notes == ()
    check(trace)


def test_the_tables_have_the_columns_of_a_trace(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "small.bin"
    path.write_bytes(BYTES)
    row = "row:struct<file:string,block:bigint,place:bigint>"
    assert {name: table.schema.simpleString() for name, table in read_oracle_general(spark, path).tables()} == {
        "publications": f"struct<page:bigint,time:double,size:bigint,{row}>",
        "requests": f"struct<time:double,proxy:int,page:bigint,{row}>",
        "subscriptions": f"struct<proxy:int,page:bigint,count:int,{row}>",
    }


def test_a_compressed_trace_has_one_reader(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "small.oracleGeneral.zst"
    path.write_bytes(pa.compress(BYTES, "zstd", asbytes=True) + pa.compress(b"cut", "zstd", asbytes=True))
    trace = read_oracle_general(spark, path, records_per_task=2)
    assert trace.requests.rdd.getNumPartitions() == 1
    assert told(trace) == (PUBLICATIONS, REQUESTS)
    assert trace.notes == ("the last 3 bytes are no whole record and were passed over",)


def test_a_cut_record_is_noted_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "cut.bin"
    path.write_bytes(BYTES[:-7])
    trace = read_oracle_general(spark, path)
    assert told(trace)[1] == REQUESTS[:-1]
    assert trace.notes == ("the last 17 bytes are no whole record and were passed over",)
    with pytest.raises(BadTrace, match=r"cut\.bin: 17 bytes follow record 4, no whole record$"):
        read_oracle_general(spark, path, strict=True)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.bin", b"", "the file holds no record of 24 bytes"),
        ("short.bin", b"x" * 23, "the file holds no record of 24 bytes"),
        ("plain.bin.zst", BYTES, "not readable as zstd"),
        ("cut.bin.zst", pa.compress(BYTES * 9, "zstd", asbytes=True)[:-9], "not readable as zstd"),
    ],
)
def test_an_unusable_file_is_refused(
    spark: SparkSession, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadTrace, match=f"{name}: {reason}"):
        read_oracle_general(spark, tmp_path / name)


def test_a_missing_file_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="no such file"):
        read_oracle_general(spark, tmp_path / "none.bin")


@pytest.mark.parametrize("name", ["written.bin", "written.bin.zst"])
def test_written_is_what_libcachesim_would_write(tmp_path: Path, name: str) -> None:
    times, objects, sizes = np.array([record[:3] for record in RECORDS], np.uint64).T
    write_oracle_general(tmp_path / name, times, objects.view(np.int64), sizes)
    content = (tmp_path / name).read_bytes()
    if name.endswith(".zst"):
        content = pa.decompress(content, len(BYTES), "zstd", asbytes=True)
    assert content == BYTES


def test_more_than_one_batch_per_task(spark: SparkSession, tmp_path: Path) -> None:
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
def test_what_does_not_fit_is_not_written(tmp_path: Path, times: list[int], sizes: list[int], reason: str) -> None:
    with pytest.raises(BadTrace, match=reason):
        write_oracle_general(tmp_path / "x.bin", np.array(times), np.array([1]), np.array(sizes))
