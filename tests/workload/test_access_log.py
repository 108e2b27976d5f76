"""Access logs: pages, the proxy of each request, and ignored rows."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from newsstand.errors import BadOption, BadTrace
from newsstand.workload.access_log import network, read_access_log
from newsstand.workload.trace.files import TABLES
from newsstand.workload.trace.folder import Trace, check

MIXED = r"""
192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a.html HTTP/1.0" 200 2326
192.0.2.200 - frank [10/Oct/2000:20:55:40 +0000] "GET /b.gif HTTP/1.1" 200 100 "/\"x\"" "Say \"hi\" [en]"
198.51.100.1 - - [10/Oct/2000:20:55:38 +0000] "GET /a.html HTTP/1.0" 304 -

2001:db8:1:2::5 - - [10/Oct/2000:20:55:30 +0000] "GET /a.html HTTP/1.0" 206 9999
proxy7.cache.example.net - - [10/Oct/2000:20:55:39 +0000] "GET /b.gif" 200 -
192.0.2.7 - - [10/Oct/2000:20:55:42 +0000] "POST /a.html HTTP/1.1" 200 5
192.0.2.7 - - [10/Oct/2000:20:55:42 +0000] "GET /missing HTTP/1.1" 404 512
192.0.2.7 - - [10/Oct/2000:20:55:42 +0000] "-" 408 -
203.0.113.9 - - [10/Oct/2000:20:55:43 +0000] "GET /never-sized HTTP/1.1" 304 -
not a line
192.0.2.7 - - [31/Feb/2000:20:55:42 +0000] "GET /a.html HTTP/1.1" 200 5
192.0.2.7 - - [10/Oct/2000:20:55:41 +0000] "GET /empty HTTP/1.1" 204 0
"""

AT = 971211300.0  # 10 October 2000, 20:55:00 UTC


def written(folder: Path, text: str, name: str = "access.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@contextmanager
def blocks(spark: SparkSession, path: Path, count: int) -> Iterator[None]:
    """Let Spark read the file in that many blocks."""
    sizes = {
        "spark.sql.files.maxPartitionBytes": str(-(-path.stat().st_size // count)),
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.files.minPartitionNum": "1",
    }
    for key, value in sizes.items():
        spark.conf.set(key, value)
    yield
    for key in sizes:
        spark.conf.unset(key)


def rows_of(log: Trace) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Publications (url, time, size) and, in the log's order, requests (time, network, url)."""
    published = log.publications.join(log.meanings["urls"], "page").select("url", "time", "size").orderBy("url")
    asked = log.requests.join(log.meanings["urls"], "page").join(log.meanings["networks"], "proxy").orderBy("row")
    return (
        [tuple(row) for row in published.collect()],
        [tuple(row) for row in asked.select("time", "network", "url").collect()],
    )


@pytest.mark.parametrize("count", [*(pytest.param(one, marks=pytest.mark.slow) for one in (1, 2)), 7])
def test_log_is_read_in_any_number_of_blocks(spark: SparkSession, tmp_path: Path, count: int) -> None:
    path = written(tmp_path, MIXED)
    with blocks(spark, path, count):
        log = read_access_log(spark, path)
        assert (log.requests.select("row.block").distinct().count() > 1) == (count > 1)
        published, asked = rows_of(log)
        check(log)
        proxies = [tuple(row) for row in log.meanings["networks"].orderBy("proxy").collect()]
    assert published == [("/a.html", AT + 30, 9999), ("/b.gif", AT + 39, 100), ("/empty", AT + 41, 1)]
    assert asked == [
        (AT + 36, "192.0.2.0/24", "/a.html"),
        (AT + 40, "192.0.2.0/24", "/b.gif"),
        (AT + 38, "198.51.100.0/24", "/a.html"),
        (AT + 30, "2001:db8:1::/48", "/a.html"),
        (AT + 39, "cache.example.net", "/b.gif"),
        (AT + 41, "192.0.2.0/24", "/empty"),
    ]
    assert proxies == [
        (0, "192.0.2.0/24"),
        (1, "198.51.100.0/24"),
        (2, "2001:db8:1::/48"),
        (3, "cache.example.net"),
    ]
    assert log.subscriptions.count() == 0
    bad = '192.0.2.7 - - [31/Feb/2000:20:55:42 +0000] "GET /a.html HTTP/1.1" 200 5'
    assert log.notes == (
        f"2 lines cannot be parsed: {path}: 'not a line', {path}: {bad!r}",
        "3 lines are not page requests (a GET answered with 2xx or 304)",
        "1 pages are dropped, with 1 requests: no answer tells their size",
    )


def test_tables_have_columns_of_trace(spark: SparkSession, tmp_path: Path) -> None:
    log = read_access_log(spark, written(tmp_path, MIXED))
    row = "row:struct<file:string,block:bigint,place:bigint>"
    assert {name: getattr(log, name).schema.simpleString() for name in TABLES} == {
        "publications": f"struct<page:bigint,time:double,size:bigint,{row}>",
        "requests": f"struct<time:double,proxy:int,page:bigint,{row}>",
        "subscriptions": f"struct<proxy:int,page:bigint,count:int,{row}>",
    }


def test_strict_rejects_malformed_line(spark: SparkSession, tmp_path: Path) -> None:
    path = written(tmp_path, MIXED)
    with pytest.raises(BadTrace) as refused:
        read_access_log(spark, path, strict=True)
    assert str(refused.value) == f"{path}: 'not a line': not a line of the Common or Combined Log Format"


def test_malformed_lines_are_shown_in_part(spark: SparkSession, tmp_path: Path) -> None:
    good = '192.0.2.7 - - [10/Oct/2000:20:55:41 +0000] "GET / HTTP/1.1" 200 7\n'
    path = written(tmp_path, good + "".join(f"{place} {'x' * 200}\n" for place in range(5)))
    (note,) = read_access_log(spark, path).notes
    shown = [f"{path}: '{place} {'x' * 78}...'" for place in range(3)]
    assert note == f"5 lines cannot be parsed: {', '.join(shown)}, ..."


def test_folder_may_have_plain_and_gzipped_logs(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "logs of a week"
    folder.mkdir()
    written(folder, '192.0.2.7 - - [10/Oct/2000:20:55:41 +0000] "GET /late HTTP/1.1" 200 7\n', "b.log")
    early = b'192.0.2.8 - - [10/Oct/2000:20:55:40 +0000] "GET /early HTTP/1.1" 200 8\n'
    (folder / "a.log.gz").write_bytes(gzip.compress(early))
    assert rows_of(read_access_log(spark, folder))[1] == [
        (AT + 40, "192.0.2.0/24", "/early"),
        (AT + 41, "192.0.2.0/24", "/late"),
    ]


def test_broken_archive_is_named(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "cut.log.gz"
    path.write_bytes(gzip.compress(MIXED.encode())[:-30])
    with pytest.raises(BadTrace, match=r"^\S+cut\.log\.gz: not readable as text \(.+\)$"):
        read_access_log(spark, path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the log is empty"),
        ("\n \n", "the log is empty"),
        ("one\n", "no line of the log can be used: 1 lines cannot be parsed: "),
        ('h - - [10/Oct/2000:20:55:40 +0000] "GET / HTTP/1.1" 304 -', "no line of the log can be used: 1 pages"),
    ],
)
def test_log_rejected_without_usable_line(spark: SparkSession, tmp_path: Path, text: str, reason: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadTrace) as refused:
        read_access_log(spark, path)
    assert str(refused.value).startswith(f"{path}: {reason}")
    assert "\n" not in str(refused.value)


def test_log_rejected_when_missing(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="no such file or folder"):
        read_access_log(spark, tmp_path / "none.log")


def test_requests_are_read_when_odd_but_legal(spark: SparkSession, tmp_path: Path) -> None:
    start = "h.example.org - - [10/Oct/2000:20:55:40 +0000]"
    path = written(
        tmp_path,
        f'{start} "GET /with space HTTP/1.1" 200 7\n'
        f'{start} "GET /say?\\"hi\\"&b=\\\\ HTTP/1.1" 200 7 "-" "\u2028" 0.003\n'
        f'{start} "GET /{"long" * 20_000} HTTP/1.1" 200 7\n'
        f'{start} "GET /huge HTTP/1.1" 200 5000000000\n'
        f'{start} "\\x16\\x03\\x01" 400 226\r\n',
    )
    log = read_access_log(spark, path)
    assert [row[0] for row in rows_of(log)[0]] == [
        "/huge",
        "/" + "long" * 20_000,
        '/say?\\"hi\\"&b=\\\\',
        "/with space",
    ]
    assert log.notes == ("1 lines are not page requests (a GET answered with 2xx or 304)",)


NETWORKS = {
    "192.0.2.255": "192.0.2.0/24",
    "::ffff:192.0.2.255": "192.0.2.0/24",
    "::FFFF:192.0.2.255": "192.0.2.0/24",
    "2001:DB8:0001:2:3:4:5:6": "2001:db8:1::/48",
    "2001:db8::6": "2001:db8:0::/48",
    "fe80::1%eth0": "fe80:0:0::/48",
    "::1": "0:0:0::/48",
    "::": "0:0:0::/48",
    "64:ff9b::192.0.2.1": "64:ff9b:0::/48",
    "1:2:3:4:5:6:7::": "1:2:3::/48",
    "1:2:3:4:5:6:7:8::": "1:2:3:4:5:6:7:8::",
    "300.1.2.3": "1.2.3",
    "01.2.3.4": "01.2.3.0/24",
    "010.1.2.3": "1.2.3",
    "::ffff:01.2.3.4": "01.2.3.0/24",
    "::ffff:192.0.2.255%eth0": "0:0:0::/48",
    "::ffff:c000:2ff": "0:0:0::/48",
    "0:0:0:0:0:ffff:192.0.2.255": "0:0:0::/48",
    "64:ff9b::192.0.2.01": "64:ff9b:0::/48",
    "a.b.Example.org.": "b.example.org",
    "example.org": "example.org",
    "localhost": "localhost",
    "-": "-",
}


def test_networks_of_clients_are_those_expected(spark: SparkSession) -> None:
    hosts = spark.createDataFrame([(host,) for host in NETWORKS], "host string")
    found = hosts.select("host", network(F.col("host")).alias("network")).collect()
    assert {row["host"]: row["network"] for row in found} == NETWORKS


@pytest.mark.parametrize(
    ("host", "prefix_v4", "prefix_v6", "expected"),
    [
        ("192.0.2.255", 20, 48, "192.0.0.0/20"),
        ("192.0.2.255", 32, 48, "192.0.2.255/32"),
        ("192.0.2.255", 0, 48, "0.0.0.0/0"),
        ("2001:db8:1:ffff::5", 24, 52, "2001:db8:1:f000::/52"),
        ("64:ff9b::192.0.2.1", 24, 128, "64:ff9b:0:0:0:0:c000:201/128"),
        ("2001:db8::", 24, 0, "::/0"),
    ],
)
def test_prefixes_may_have_other_lengths(
    spark: SparkSession, host: str, prefix_v4: int, prefix_v6: int, expected: str
) -> None:
    row = spark.range(1).select(network(F.lit(host), prefix_v4, prefix_v6)).first()
    assert row is not None
    assert row[0] == expected


def test_prefix_rejected_when_out_of_range(spark: SparkSession) -> None:
    host = spark.range(1).select(F.lit("192.0.2.1").alias("host"))[0]
    with pytest.raises(BadOption, match="prefix_v4 33: must be within 0 … 32"):
        network(host, prefix_v4=33)
