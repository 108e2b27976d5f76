"""Access logs read into memory, side by side with the reader on Spark."""

from __future__ import annotations

import bz2
import gzip
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from newsstand.errors import BadOption, BadTrace
from newsstand.workload.access_log import network, read_access_log
from newsstand.workload.client_network import networks_of
from newsstand.workload.log_columns import read_log_columns

MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Sept", "Mai"]
HOSTS = [
    "192.0.2.7", "192.0.2.7.", "01.2.3.4", "010.1.2.3", "300.1.2.3", "1.2.3", "1.2.3.4.5", "192.0.2.7\u2028",
    "1.2.3.4\x85", "::ffff:192.0.2.255", "::FFFF:192.0.2.255", "::ffff:01.2.3.4", "::ffff:1.2.3.4%eth0",
    "::ffff:1.2.3.4\u2029", "2001:DB8:0001:2:3:4:5:6", "2001:db8::6", "fe80::1%eth0", "fe80::1%a%b.",
    "fe80::1%", "::", "::1", ":::", "1::2::3", "1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:8::", "::2:3:4:5:6:7:8",
    "1:2:3:4:5:6:7:8\u2028", "64:ff9b::192.0.2.1", "64:ff9b::192.0.2.1\u2028", "64:ff9b::192.0.2.256", "g::1",
    "12345::1", ":1:2", "1:2:", "a:b\u2028::1.2.3.4", "a.b.Example.org.", "a.b.example.org..", "example.org",
    "localhost", "-", ".", "..", "...", "a..b", "%", "%25.x.y", "É.Example.ORG", "İ.x.y", "a\u2028.b.c",
    "a.b\u2028c.d", "a%b\u2028c", "x.ΑΣ.y",
]  # fmt: skip
TIMES = [
    "10/Oct/2000:13:55:36 -0700", "29/Feb/2000:00:00:00 +0000", "29/Feb/1900:00:00:00 +0000",
    "31/Feb/2000:20:55:42 +0000", "00/Jan/2000:00:00:00 +0000", "31/Apr/2000:00:00:00 +0000",
    "31/Dec/1999:23:59:59 -0000", "30/Jun/2015:23:59:60 +0000", "10/Oct/2000:24:00:00 +0000",
    "10/Oct/2000:23:60:00 +0000", "10/Oct/2000:00:00:00 +1800", "10/Oct/2000:00:00:00 -1800",
    "10/Oct/2000:00:00:00 +1801", "10/Oct/2000:00:00:00 +1900", "10/Oct/2000:00:00:00 +0060",
    "10/Oct/2000:00:00:00 +0530", "10/Okt/2000:13:55:36 +0000", "10/Sep/0001:00:00:00 +0000",
    "01/Jan/0000:00:00:00 +0000", "01/Jan/0001:00:00:00 +1200", "31/Dec/9999:23:59:59 -1800",
    "10/oct/2000:13:55:36 +0000", "1/Oct/2000:13:55:36 +0000", "28/Feb/1970:01:02:03 +0100",
    *(f"05/{month}/2020:06:07:08 +0000" for month in MONTHS),
]  # fmt: skip
REQUESTS = [
    "GET /a HTTP/1.0", "GET /a HTTP/1.1", "GET /a", "GET   /a   HTTP/2", "GET /a HTTP/",
    "GET /with space HTTP/1.1", "GET ", "GET /b  ", "GET /b\u2028", "GET /b HTTP/1.1\u2028", "GET /b\x85\x85",
    "GET /b \t", "GET /b\x0b", "GET \x0b", "get /a", "POST /a HTTP/1.1", "-", "", r"GET /\"q\" HTTP/1.1",
    r"GET /\\ HTTP/1.1", r"\x16\x03", "GET /é HTTP/1.1", "GET /a HTTP/1.1 HTTP/1.1", "GET /a\u2028b HTTP/1.0",
    "GET /\\é HTTP/1.1", "GET /only-304",
]  # fmt: skip
STATUS = ["200", "200", "200", "304", "206", "299", "300", "199", "404", "000", "20", "2000"]
BYTES = [
    "-",
    "0",
    "7",
    "007",
    "2326",
    "5000000000",
    str(2**53),
    str(2**53 + 1),
    str(2**63),
    "9" * 40,
    "",
    "-1",
    "+5",
]
RESTS = ["", "", ' "-" "agent"', " ", "x", "\u2028", "\u2028\u2028", "\x85x", "\t", "\x0b", "\x01", "\x1c"]
ODD = [
    b"\x00", b"\x01", b"\x0b", b"\x0c", b"\t", b"\r", b"\n", b" ", b'"', b"\\", b"\xff", b"\xc3", b"\xe2\x80",
    b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xf0\x9f", b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xa8", b"[",
    b"]", b"9", b"-", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xed\xa0", b"\xe0\x80\x80",
]  # fmt: skip


def odd_line(draw: random.Random) -> bytes:
    """Return a line of the format with odd fields, sometimes with odd bytes anywhere."""
    usual = draw.random() < 0.5
    time = TIMES[0] if usual else draw.choice(TIMES)
    status, size = ("200", "7") if usual else (draw.choice(STATUS), draw.choice(BYTES))
    request, rest = draw.choice(REQUESTS), draw.choice(RESTS)
    if request == "GET /only-304":
        status = "304"
    line = f'{draw.choice(HOSTS)} - - [{time}] "{request}" {status} {size}{rest}'.encode()
    while draw.random() < 0.3:
        at = draw.randrange(len(line) + 1)
        line = line[:at] + draw.choice(ODD) + line[at + draw.randrange(2) :]
    return line


def odd_log(seed: int, lines: int) -> bytes:
    """Return a log of odd lines with odd ends, some of them empty."""
    draw = random.Random(seed)
    whole = [
        odd_line(draw) if draw.random() < 0.97 else draw.choice([b"", b"  ", b"\t", b"\x01" * 5])
        for _ in range(lines)
    ]
    return b"".join(line + draw.choice([b"\n", b"\n", b"\n", b"\r\n", b"\r"]) for line in whole)


Rows = tuple[tuple[str, ...], list[tuple[float, int, int]], list[tuple[int, float, int]]]


def rows_on_spark(spark: SparkSession, path: Path) -> Rows:
    log = read_access_log(spark, path)
    asked = [tuple(row) for row in log.requests.orderBy("row").select("time", "proxy", "page").collect()]
    published = [tuple(row) for row in log.publications.select("page", "time", "size").collect()]
    return (log.notes, *renumbered(asked, published))


def rows_in_memory(path: Path) -> Rows:
    log = read_log_columns(path)
    asked = zip(
        *(column.tolist() for column in (log.requests.time, log.requests.proxy, log.requests.page)), strict=True
    )
    pages = log.publications
    assert pages.page.tolist() == list(range(len(pages)))
    published = zip(pages.page.tolist(), pages.time.tolist(), pages.size.tolist(), strict=True)
    return (log.notes, *renumbered(list(asked), list(published)))


def renumbered(asked: list, published: list) -> tuple[list, list]:  # type: ignore[type-arg]
    """Number the pages by their first requests."""
    number = {page: place for place, page in enumerate(dict.fromkeys(page for _, _, page in asked))}
    assert {page for page, _, _ in published} == number.keys()
    requests = [(time, proxy, number[page]) for time, proxy, page in asked]
    return requests, sorted((number[page], time, size) for page, time, size in published)


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_odd_lines_are_read_as_on_spark(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    path = tmp_path / "odd.log"
    path.write_bytes(b"\xef\xbb\xbf" + odd_log(seed, 6000))
    notes, asked, published = rows_in_memory(path)
    assert len(asked) > 1000
    assert "cannot be parsed" in notes[0]
    assert "dropped" in notes[2]
    assert (notes, asked, published) == rows_on_spark(spark, path)


def test_hosts_have_networks_of_spark(spark: SparkSession) -> None:
    draw = random.Random(5)
    letters = [*"0123456789abcdefABF:::....%g-", "::", "::ffff:", "1.2.3.4", "\u2028", "\x85", "é"]
    hosts = HOSTS + ["".join(draw.choices(letters, k=draw.randrange(1, 12))) for _ in range(20_000)]
    rows = spark.createDataFrame([(host,) for host in hosts], "host string")
    for prefixes in ((24, 48), (27, 128), (32, 52), (0, 0)):
        found = [row[0] for row in rows.select(network(F.col("host"), *prefixes)).collect()]
        differing = [
            (h, a, b) for h, a, b in zip(hosts, networks_of(hosts, *prefixes), found, strict=True) if a != b
        ]
        assert differing == []


def test_files_of_folder_are_read_as_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "logs of a week"
    (folder / "_temporary").mkdir(parents=True)
    (folder / "_temporary" / "x.log").write_bytes(odd_log(9, 5))
    (folder / ".hidden.log").write_bytes(odd_log(9, 5))
    (folder / "c.log").write_bytes(odd_log(6, 200).rstrip())
    (folder / "b.log.gz").write_bytes(gzip.compress(odd_log(7, 200)) + gzip.compress(odd_log(10, 20)))
    (folder / "a.log.bz2").write_bytes(bz2.compress(b"\xef\xbb\xbf" + odd_log(8, 200)))
    (folder / "empty.log").write_bytes(b"")
    assert rows_in_memory(folder) == rows_on_spark(spark, folder)


GOOD = '192.0.2.7 - - [10/Oct/2000:20:55:41 +0000] "GET / HTTP/1.1" 200 7\n'


@pytest.mark.parametrize(
    ("text", "strict"),
    [
        ("", False),
        ("\n \n", False),
        ("one\n", False),
        ("one\ntwo\nthree\nfour\n", False),
        ('h - - [10/Oct/2000:20:55:40 +0000] "GET / HTTP/1.1" 304 -', False),
        (f"{GOOD}not a line {'é' * 90}\n", True),
    ],
)
def test_log_rejected_as_on_spark(spark: SparkSession, tmp_path: Path, text: str, strict: bool) -> None:
    path = tmp_path / "bad.log"
    path.write_text(text)
    with pytest.raises(BadTrace) as here:
        read_log_columns(path, strict=strict)
    with pytest.raises(BadTrace) as there:
        read_access_log(spark, path, strict=strict)
    assert str(here.value) == str(there.value)


def test_broken_archive_is_named(tmp_path: Path) -> None:
    for name, pack in (("cut.log.gz", gzip.compress), ("cut.log.bz2", bz2.compress)):
        (tmp_path / name).write_bytes(pack(GOOD.encode() * 99)[:-12])
        with pytest.raises(BadTrace, match=rf"^\S+{name}: not readable as text \(.+\)$"):
            read_log_columns(tmp_path / name)


def test_other_archive_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.log.lz4").write_bytes(b"x")
    with pytest.raises(
        BadTrace, match=r"a\.log\.lz4: only Spark reads \.lz4 files; unpack it, or set --engine spark"
    ):
        read_log_columns(tmp_path)


def test_log_rejected_when_missing(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="no such file or folder"):
        read_log_columns(tmp_path / "none.log")


def test_prefix_rejected_when_out_of_range() -> None:
    with pytest.raises(BadOption, match="prefix_v6 129: must be within 0 … 128"):
        networks_of(["::1"], prefix_v6=129)
