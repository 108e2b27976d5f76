"""Access logs of several servers as one push trace: subnets, their places, and what is left out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from newsstand.errors import BadOption, BadTrace
from newsstand.workload.push1995.logs import key_of, placed, read_places, read_push_logs
from newsstand.workload.push1995.trace import PushTrace, check_push_trace, read_push_trace, write_push_trace

AT = 971211300.0  # 10 October 2000, 20:55:00 UTC
START = "[10/Oct/2000:20:55:"
WWW = f"""\
192.0.2.7 - - {START}10 +0000] "GET / HTTP/1.0" 200 2326
192.0.2.9 - - {START}05 +0000] "GET /a HTTP/1.0" 200 100
2001:db8:1:2::5 - - {START}20 +0000] "GET / HTTP/1.0" 304 -
host.cs.example.edu - - {START}30 +0000] "GET / HTTP/1.0" 200 2300
203.0.113.5 - - {START}31 +0000] "GET / HTTP/1.0" 200 2300
203.0.113.6 - - {START}32 +0000] "GET /a HTTP/1.0" 200 100
198.51.100.1 - - {START}33 +0000] "GET /a HTTP/1.0" 200 100
not a line
"""
FTP = f'192.0.2.8 - - {START}40 +0000] "GET / HTTP/1.0" 200 77\n'
SERVERS = "name,latitude,longitude\nspare,0,0\nwww,42.36,-71.06\nftp,51.51,-0.13\n"
PLACES = """\
subnet,latitude,longitude
192.0.0.0/16,1,10
192.0.2.0/24,2,20
192.0.2.128/25,9,90
2001:db8::/32,3,30
edu,4,40
example.edu,5,50
"""


def read(spark: SparkSession, folder: Path, *, strict: bool = False, **changes: str) -> PushTrace:
    files = {"www.log": WWW, "ftp.log": FTP, "servers.csv": SERVERS, "places.csv": PLACES}
    for name, text in {**files, **{name.replace("_", "."): text for name, text in changes.items()}}.items():
        (folder / name).write_text(text)
    logs = {"www": folder / "www.log", "ftp": folder / "ftp.log"}
    return read_push_logs(spark, logs, folder / "servers.csv", folder / "places.csv", strict=strict)


def test_logs_of_two_servers_become_one_trace(spark: SparkSession, tmp_path: Path) -> None:
    trace = read(spark, tmp_path)
    check_push_trace(trace)
    servers = trace.servers.orderBy("server").select("server", "name", "latitude")
    assert [tuple(row) for row in servers.collect()] == [(0, "spare", 0.0), (1, "www", 42.36), (2, "ftp", 51.51)]
    subnets = trace.subnets.orderBy("subnet").select("subnet", "name", "latitude", "longitude", "weight")
    assert [tuple(row) for row in subnets.collect()] == [
        (0, "192.0.2.0/24", 2.0, 20.0, 3.0),
        (1, "2001:db8:1::/48", 3.0, 30.0, 1.0),
        (2, "cs.example.edu", 5.0, 50.0, 1.0),
    ]
    urls = trace.meanings["urls"]
    asked = trace.requests.join(urls, ["page", "server"]).orderBy("time").select("time", "server", "subnet", "url")
    assert [tuple(row) for row in asked.collect()] == [
        (AT + 5, 1, 0, "/a"),
        (AT + 10, 1, 0, "/"),
        (AT + 20, 1, 1, "/"),
        (AT + 30, 1, 2, "/"),
        (AT + 40, 2, 0, "/"),
    ]
    pages = trace.pages.join(urls, ["page", "server"]).orderBy("server", "url")
    assert [tuple(row) for row in pages.select("server", "url", "size", "modified").collect()] == [
        (1, "/", 2326, AT + 10),
        (1, "/a", 100, AT + 5),
        (2, "/", 77, AT + 40),
    ]
    assert trace.notes == (
        f"www: 1 lines cannot be parsed: {tmp_path}/www.log: 'not a line'",
        f"2 of 5 subnets, with 3 of 8 requests, have no place in {tmp_path}/places.csv: "
        "203.0.113.0/24 (2), 198.51.100.0/24 (1)",
    )


def test_trace_is_read_as_written(spark: SparkSession, tmp_path: Path) -> None:
    write_push_trace(read(spark, tmp_path), tmp_path / "trace", force=False)
    again = read_push_trace(spark, tmp_path / "trace")
    check_push_trace(again)
    assert again.requests.count() == 5
    assert spark.read.parquet(str(tmp_path / "trace" / "urls")).count() == 3


def test_notes_are_empty_if_all_subnets_have_places(spark: SparkSession, tmp_path: Path) -> None:
    everywhere = "subnet,latitude,longitude\n0.0.0.0/0,1,1\n::/0,2,2\nedu,3,3\n"
    trace = read(spark, tmp_path, www_log=WWW.replace("not a line\n", ""), places_csv=everywhere)
    assert trace.notes == ()
    assert trace.subnets.count() == 5


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"places_csv": "subnet,latitude,longitude\norg,1,1\n"}, "none of the 5 subnets in the logs has a place"),
        ({"places_csv": "subnet,latitude,longitude\n192.0.2.0/33,1,1\n"}, "row 1: subnet is neither a prefix of"),
        ({"places_csv": "subnet,latitude,longitude\n192.0.2.0/x,1,1\n"}, "row 1: subnet is neither a prefix of"),
        ({"places_csv": "subnet,latitude,longitude\nedu,1,1\nedu,2,2\n"}, "row 2: subnet edu occurs twice"),
        ({"places_csv": "subnet,latitude,longitude\nedu,91,1\n"}, "row 1: latitude is not between -90 and 90"),
        ({"places_csv": "subnet,latitude\nedu,91\n"}, "column 'longitude' is missing (found: subnet, latitude)"),
        ({"places_csv": "subnet,latitude,longitude\n"}, "table 'places' is empty"),
        ({"servers_csv": SERVERS + "www,1,1\n"}, "row 4: name www occurs twice (first at servers.csv: row 2)"),
        ({"servers_csv": SERVERS.replace("-0.13", "")}, "row 3: longitude is missing or not a double"),
        ({"ftp_log": ""}, "ftp.log: the log is empty"),
    ],
)
def test_tables_and_logs_rejected_when_malformed(
    spark: SparkSession, tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    with pytest.raises(BadTrace) as refused:
        read(spark, tmp_path, **changes)
    assert reason in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path))
    assert "\n" not in str(refused.value)


def test_log_rejected_when_server_has_no_place(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"log ftp: no such server in .*servers\.csv"):
        read(spark, tmp_path, servers_csv="name,latitude,longitude\nwww,42.36,-71.06\n")


def test_strict_rejects_malformed_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="'not a line': not a line of the Common or Combined Log Format"):
        read(spark, tmp_path, strict=True)


KEYS = {
    "192.0.2.0/24": "4:110000000000000000000010",
    "192.0.2.255/4": "4:1100",
    "0.0.0.0/0": "4:",
    "128.0.0.1": "4:1" + "0" * 30 + "1",
    "::ffff:192.0.2.1/4": "4:1100",
    "192.0.02.0/24": "4:110000000000000000000010",
    "::ffff:c000:201/32": "6:" + "0" * 32,
    "2001:DB8::/32": "6:00100000000000010000110110111000",
    "2001:db8:1::/48": "6:001000000000000100001101101110000000000000000001",
    "::/0": "6:",
    "Example.ORG.": "d:example.org",
    ".example.org": "d:example.org",
    "*.example.org": "d:example.org",
    "edu": "d:edu",
    "192.0.2.0/33": None,
    "192.0.2.0/-1": None,
    "2001:db8::/129": None,
    "example.org/24": None,
    "two words": None,
    "1:2:3": None,
    "": None,
}


def test_keys_are_prefixes_or_domains(spark: SparkSession) -> None:
    texts = spark.createDataFrame([(text,) for text in KEYS], "text string")
    found = texts.select("text", key_of(F.col("text")).alias("key")).collect()
    assert {row["text"]: row["key"] for row in found} == KEYS


def looked_up(spark: SparkSession, folder: Path, table: str, names: list[str]) -> dict[str, float]:
    path = folder / "places.csv"
    path.write_text("subnet,latitude,longitude\n" + table)
    asked = spark.createDataFrame([(name,) for name in names], "name string")
    return {row["name"]: row["latitude"] for row in placed(asked, read_places(spark, path)).collect()}


def test_prefix_longer_than_subnet_applies_without_better_match(spark: SparkSession, tmp_path: Path) -> None:
    table = "10.0.1.128/25,1,0\n10.0.1.0/25,2,0\n10.0.2.7,3,0\n10.0.2.0/24,4,0\n10.0.0.0/8,5,0\n"
    names = ["10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24", "11.0.0.0/24"]
    assert looked_up(spark, tmp_path, table, names) == {"10.0.1.0/24": 1, "10.0.2.0/24": 4, "10.0.3.0/24": 5}


def test_domain_matches_whole_labels_and_no_addresses(spark: SparkSession, tmp_path: Path) -> None:
    table = "ample.org,1,0\n10,2,0\n"
    assert looked_up(spark, tmp_path, table, ["example.org", "10.0.0.0/24", "an.ample.org"]) == {"an.ample.org": 1}


def test_longest_prefix_that_fits_counts(spark: SparkSession, tmp_path: Path) -> None:
    """Forty random tables against a search through all prefixes; the second octet tells the table."""
    draw = random.Random(1)
    rows: list[tuple[int, int, int]] = []
    for table in range(40):
        prefixes = {(draw.randrange(256), draw.randint(0, 8)) for _ in range(draw.randint(1, 12))}
        rows += [(table, net, bits) for net, bits in sorted(prefixes)]
    nets = [(table, draw.randrange(256)) for table in range(40) for _ in range(20)]
    lines = "".join(
        f"10.{table}.{net}.0/{16 + bits},{row / 10},0\n" for row, (table, net, bits) in enumerate(rows)
    )
    names = sorted({f"10.{table}.{net}.0/24" for table, net in nets})
    found = looked_up(spark, tmp_path, lines, names)
    lengths = set()
    for table, net in nets:
        fitting = [
            (bits, -row)
            for row, (of, prefix, bits) in enumerate(rows)
            if of == table and net >> (8 - bits) == prefix >> (8 - bits)
        ]
        lengths.add(max(fitting)[0] if fitting else None)
        assert found.get(f"10.{table}.{net}.0/24") == (-max(fitting)[1] / 10 if fitting else None)
    assert {None, 0, 1, 2, 3} <= lengths
