"""The format of a source follows from its name and its first lines."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from newsstand.errors import BadOption, BadTrace
from newsstand.workload.oracle_file import write_oracle_general
from newsstand.workload.trace.sources import FORMATS, read_source, recognize

LINE = b'192.0.2.7 - - [10/Oct/2000:20:55:41 +0000] "GET / HTTP/1.1" 200 7\n'


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """One source of each kind."""
    trace = tmp_path / "trace"
    trace.mkdir()
    (trace / "publications.csv").write_text("page,time,size\n1,0,5\n")
    (trace / "requests.csv").write_text("time,proxy,page\n1,0,1\n")
    (trace / "subscriptions.csv").write_text("proxy,page,count\n")
    (tmp_path / "access.log").write_bytes(b"# a comment\n" + LINE)
    (tmp_path / "access.gz").write_bytes(gzip.compress(LINE))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "monday").write_bytes(LINE)
    for name in ("a.oracleGeneral", "a.bin", "a.oracleGeneral.bin", "a.oracleGeneral.zst", "a.bin.zst"):
        write_oracle_general(tmp_path / name, np.array([1]), np.array([1]), np.array([5]))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("trace", "trace"),
        ("access.log", "access-log"),
        ("access.gz", "access-log"),
        ("logs", "access-log"),
        ("a.oracleGeneral", "oracle-general"),
        ("a.bin", "oracle-general"),
        ("a.oracleGeneral.bin", "oracle-general"),
        ("a.oracleGeneral.zst", "oracle-general"),
        ("a.bin.zst", "oracle-general"),
    ],
)
def test_formats_are_recognized(sources: Path, name: str, format: str) -> None:
    assert recognize(sources / name) == format


@pytest.mark.parametrize("name", ["trace", "access.log", "a.bin"])
@pytest.mark.parametrize("chosen", [False, True])
def test_formats_are_read(spark: SparkSession, sources: Path, name: str, chosen: bool) -> None:
    format = recognize(sources / name) if chosen else "auto"
    trace = read_source(spark, sources / name, format)
    assert (trace.publications.count(), trace.requests.count()) == (1, 1)


def test_strict_is_passed_to_reader(spark: SparkSession, sources: Path) -> None:
    with pytest.raises(BadTrace, match="a comment"):
        read_source(spark, sources / "access.log", strict=True)


def test_trace_is_recognized_without_one_table(spark: SparkSession, sources: Path) -> None:
    (sources / "trace" / "subscriptions.csv").unlink()
    with pytest.raises(BadTrace, match="table 'subscriptions' is missing"):
        read_source(spark, sources / "trace")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("notes.txt", b"dear diary\n", "format not recognized; expected a folder with the tables"),
        ("picture.png", bytes(range(256)), "format not recognized"),
        ("empty.log", b"", "the file is empty"),
        ("broken.gz", b"no archive", "not readable"),
        ("cut.gz", gzip.compress(LINE, mtime=0)[:20], "not readable"),
    ],
)
def test_file_rejected_when_unknown(
    spark: SparkSession, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadTrace) as refused:
        read_source(spark, tmp_path / name)
    assert str(refused.value).startswith(f"{tmp_path / name}: {reason}")
    assert "\n" not in str(refused.value)


def test_source_rejected_when_path_is_missing_or_format_unknown(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="none: no such file or folder"):
        read_source(spark, tmp_path / "none")
    with pytest.raises(BadOption, match=f"format xml: must be one of auto, {', '.join(FORMATS)}"):
        read_source(spark, tmp_path, "xml")
