"""Push traces: four tables, refused with the file and the row where they break a rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from newsstand.errors import BadInput, BadTrace
from newsstand.workload.push1995_trace import (
    check_push_trace,
    read_push_trace,
    shards_of,
    versions,
    write_push_trace,
)

TABLES = {
    "servers": """\
server,name,latitude,longitude
0,Boston,42.36,-71.06
1,"Washington, D.C.",38.9,-77.04
""",
    "subnets": """\
subnet,name,latitude,longitude,weight,node
1,192.0.2.0/24,51.51,-0.13,2,7
0,example.org,35.68,139.69,0.5,
""",
    "pages": """\
page,server,size,modified
10,0,2000,-86400
10,0,2100,50
11,1,400,0
""",
    "requests": """\
time,server,subnet,page
60,0,1,10
30.5,1,0,11
40,0,0,10
40,0,1,10
""",
}


def written(folder: Path, **changes: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in {**TABLES, **changes}.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def changed(table: str, before: str, after: str) -> dict[str, str]:
    assert before in TABLES[table]
    return {table: TABLES[table].replace(before, after, 1)}


def test_a_trace_in_csv_is_read_and_versions_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    trace = read_push_trace(spark, written(tmp_path))
    check_push_trace(trace)
    assert [tuple(row)[:5] for row in trace.servers.orderBy("server").collect()] == [
        (0, "Boston", 42.36, -71.06, None),
        (1, "Washington, D.C.", 38.9, -77.04, None),
    ]
    assert [tuple(row)[:6] for row in trace.subnets.orderBy("subnet").collect()] == [
        (0, "example.org", 35.68, 139.69, 0.5, None),
        (1, "192.0.2.0/24", 51.51, -0.13, 2.0, 7),
    ]
    counted = versions(trace.pages).orderBy("page", "version")
    assert [tuple(row) for row in counted.select("page", "server", "size", "modified", "version").collect()] == [
        (10, 0, 2000, -86400.0, 0),
        (10, 0, 2100, 50.0, 1),
        (11, 1, 400, 0.0, 0),
    ]


def test_what_is_written_is_clustered_by_server_and_in_order_of_time(spark: SparkSession, tmp_path: Path) -> None:
    trace = read_push_trace(spark, written(tmp_path / "mine"))
    write_push_trace(trace, tmp_path / "clustered", force=False)
    files = sorted((tmp_path / "clustered" / "requests").iterdir())
    rows = [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]
    assert rows == [(40.0, 0, 0, 10), (40.0, 0, 1, 10), (60.0, 0, 1, 10), (30.5, 1, 0, 11)]
    servers = [set(pq.read_table(file)["server"].to_pylist()) for file in files]
    assert sum(map(len, servers)) == 2
    again = read_push_trace(spark, tmp_path / "clustered")
    check_push_trace(again)
    assert again.pages.count() == 3
    (subnets,) = (tmp_path / "clustered" / "subnets").iterdir()
    assert pq.read_table(subnets)["node"].to_pylist() == [None, 7]


BROKEN = [
    (changed("servers", '1,"Wash', '2,"Wash'), "servers.csv: row 2: server is not in 0 … 1, as numbers without"),
    (
        changed("servers", "42.36", "142.36"),
        "servers.csv: row 1: latitude is not between -90 and 90 degrees (server",
    ),
    (
        changed("servers", "-77.04", "west"),
        "servers.csv: row 2: longitude is missing or not a double (server 1, name",
    ),
    (changed("servers", "-77.04", "inf"), "servers.csv: row 2: longitude is not a finite number (server 1, "),
    (changed("servers", "Boston", ""), "servers.csv: row 1: name is missing or not a string"),
    (
        changed("subnets", "0,example", "1,example"),
        "subnets.csv: row 2: subnet 1 occurs twice (first at subnets.csv",
    ),
    (changed("subnets", ",2,7", ",-2,7"), "subnets.csv: row 1: weight is negative"),
    (changed("subnets", ",2,7", ",2,x"), "subnets.csv: row 1: node is not a whole number from 0 on"),
    (
        changed("subnets", "weight", "height"),
        "column 'weight' is missing (found: subnet, name, latitude, longitude, ",
    ),
    (changed("subnets", "name", "weight"), "column 'name' is missing"),
    (changed("pages", "2000", "0"), "pages.csv: row 1: size is not positive (page 10, server 0, size 0"),
    (changed("pages", "11,1,", "11,2,"), "pages.csv: row 3: server is not in 'servers'"),
    (changed("pages", "10,0,2100", "10,1,2100"), "pages.csv: row 2: the page is another server's, too"),
    (
        changed("pages", ",50", ",-86400"),
        "pages.csv: row 2: page 10, modified -86400.0 occurs twice (first at pages",
    ),
    (changed("requests", "30.5", "nan"), "requests.csv: row 2: time is not a finite number"),
    (changed("requests", "60,0,1,10", "60,0,2,10"), "requests.csv: row 1: subnet is not in 'subnets'"),
    (changed("requests", "60,0,1,10", "60,-1,1,10"), "requests.csv: row 1: server is not in 'servers'"),
    (
        changed("requests", "60,0,1,10", "60,0,1,12"),
        "requests.csv: row 1: page is not in 'pages' (time 60.0, server 0",
    ),
    (changed("requests", "60,0,1,10", "60,1,1,10"), "requests.csv: row 1: the page is not this server's"),
    (changed("requests", "60,0,1,10", "60,0,1.0,10"), "requests.csv: row 1: subnet is missing or not a int"),
    ({"requests": "time,server,subnet,page\n"}, "table 'requests' is empty"),
]


@pytest.mark.parametrize(("changes", "reason"), BROKEN, ids=[reason for _, reason in BROKEN])
def test_a_trace_that_breaks_a_rule_is_refused(
    spark: SparkSession, tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    with pytest.raises(BadTrace) as refused:
        check_push_trace(read_push_trace(spark, written(tmp_path, **changes)))
    assert reason in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path))
    assert "\n" not in str(refused.value)


def test_a_table_in_parquet_must_have_numbers_for_numbers(spark: SparkSession, tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "pages.csv").unlink()
    columns = {"page": [10], "server": ["zero"], "size": [1], "modified": [0]}
    pq.write_table(pa.table(columns), folder / "pages.parquet")
    with pytest.raises(BadTrace, match=r"pages\.parquet: column 'server' is string, not int"):
        read_push_trace(spark, folder)


def test_a_file_that_is_not_parquet_and_a_table_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "servers.csv").rename(folder / "servers.parquet")
    with pytest.raises(BadTrace, match=r"servers\.parquet: not readable as Parquet"):
        read_push_trace(spark, folder)
    (folder / "servers.parquet").unlink()
    with pytest.raises(BadTrace, match="table 'servers' is missing"):
        read_push_trace(spark, folder)
    with pytest.raises(BadTrace, match="no such trace folder"):
        read_push_trace(spark, folder / "none")


def test_nothing_but_a_push_trace_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    trace = read_push_trace(spark, written(tmp_path / "mine"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter").write_text("keep me")
    with pytest.raises(BadInput, match="is not a trace"):
        write_push_trace(trace, tmp_path / "other", force=True)
    assert (tmp_path / "other" / "letter").exists()


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50), st.integers(1, 20))
def test_servers_are_shared_out_among_files_in_their_order(requests: list[int], shards: int) -> None:
    found = shards_of(np.array(requests, np.int64), shards)
    assert found.min() >= 0
    assert found.max() < shards
    assert (np.diff(found) >= 0).all()
    # A file holds its share, and beyond that at most the last server that began in it.
    for shard in range(shards):
        of_shard = [count for count, place in zip(requests, found, strict=True) if place == shard]
        assert sum(of_shard[:-1]) <= sum(requests) / shards + 1
