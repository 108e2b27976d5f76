"""Push traces: four tables, rejected with the file and the row that break a rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from newsstand.errors import BadInput, BadTrace
from newsstand.lab.push_caching.demand import PushDemand, demand_in_memory, demand_of
from newsstand.workload.push1995.columns import LAYOUTS, read_push_columns
from newsstand.workload.push1995.trace import (
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


def test_trace_in_csv_is_read_and_versions_are_counted(spark: SparkSession, tmp_path: Path) -> None:
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


def test_written_trace_is_clustered_by_server_and_ordered_by_time(spark: SparkSession, tmp_path: Path) -> None:
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
def test_trace_rejected_when_rule_is_broken(
    spark: SparkSession, tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    with pytest.raises(BadTrace) as refused:
        check_push_trace(read_push_trace(spark, written(tmp_path, **changes)))
    assert reason in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path))
    assert "\n" not in str(refused.value)
    with pytest.raises(BadTrace) as refused_in_memory:
        read_push_columns(tmp_path)
    assert str(refused_in_memory.value) == str(refused.value)


def outcome(read: Callable[[], PushDemand]) -> str:
    """The digest of a demand, or the error."""
    try:
        return read().digest()
    except BadTrace as error:
        return str(error)


def on_spark(spark: SparkSession, folder: Path) -> str:
    def read() -> PushDemand:
        trace = read_push_trace(spark, folder)
        check_push_trace(trace)
        return demand_of(trace)

    return outcome(read)


def in_memory(folder: Path) -> str:
    return outcome(lambda: demand_in_memory(read_push_columns(folder)))


SUBNET = "0,example.org,35.68,139.69,0.5,"


@pytest.mark.parametrize(
    ("row", "is_valid"),
    [
        ("0,,35.68,139.69,0.5,", False),
        ('0,"",35.68,139.69,0.5,', False),
        ('0,"  ",35.68,139.69,0.5,', True),
        ("0,  ,35.68,139.69,0.5,", False),
        ('0,"a ""b"", c",135.68,139.69,0.5,', False),
        ("0, é ü ,135.68,139.69,0.5,", False),
        ('0,a"b,135.68,139.69,0.5,', False),
        ("0,x,35.68,139.69,0.5", True),
        ("0,x,35.68,139.69", False),
        ("0,x,35.68,139.69,0.5,3", True),
        ("0,x,35.68,139.69,0.5, +3 ", True),
        ('0,x,35.68,139.69,0.5,"3"', True),
        ('0,x,35.68,139.69,0.5,""', True),
        ('0,x,35.68,139.69,0.5,"  "', False),
        ("0,x,35.68,139.69,0.5,3.0", False),
        ("0,x,35.68,139.69,0.5,-1", False),
        ("0,x,35.68,139.69,0.5,2147483647", True),
        ("0,x,35.68,139.69,0.5,2147483648", False),
        ("0,x,35.68,139.69,1d,3,4,5", True),
        ("\n0,x,35.68,139.69,0.5,3\n", True),
    ],
)
def test_cells_are_read_in_memory_as_on_spark(
    spark: SparkSession, tmp_path: Path, row: str, is_valid: bool
) -> None:
    folder = written(tmp_path, **changed("subnets", SUBNET, row))
    expected = on_spark(spark, folder)
    assert (str(tmp_path) not in expected) is is_valid
    assert in_memory(folder) == expected


HEADERS = [
    changed("subnets", "weight,node", "weight,other"),
    changed("subnets", "weight,node", "weight, node "),
    changed("subnets", "weight,node", "weight,Node"),
    changed("subnets", "subnet,name,latitude,longitude,weight,node", "node,name,latitude,longitude,weight,node"),
    {"subnets": "subnet,name,latitude,longitude,weight,node,node\n0,a,1,1,1,1,2\n1,b,1,1,1,1,2\n"},
    {"servers": "\ufeffserver,name,latitude,longitude\r\n1,a,1,1\r\n0,b,1,-0.0\r\n"},
    changed("pages", "10,0,2100,50\n", "10,0,2100,-0.0\n10,0,2200,0.0\n"),
]


@pytest.mark.parametrize("changes", HEADERS)
def test_columns_are_found_in_memory_as_on_spark(
    spark: SparkSession, tmp_path: Path, changes: dict[str, str]
) -> None:
    folder = written(tmp_path, **changes)
    assert in_memory(folder) == on_spark(spark, folder)


NODES = [
    pa.array([7, None], pa.int32()),
    pa.array([7, -1], pa.int8()),
    pa.array([2**31, 3], pa.int64()),
    pa.array([2**31, None], pa.uint32()),
    pa.array([7.0, None], pa.float64()),
    pa.array(["7", None], pa.string()),
]
NAMES = [
    pa.array(["a", "b"], pa.large_string()),
    pa.array(["a", ""]),
    pa.array(["a", None]),
    pa.array(["a", "b"]).dictionary_encode(),
    pa.array([b"a", b"b"]),
    pa.array([1, 2]),
]


@pytest.mark.parametrize(
    "changes",
    [*({"node": node} for node in NODES), *({"name": name} for name in NAMES)],
    ids=lambda changes: " ".join(f"{name} {column.type}" for name, column in changes.items()),
)
def test_parquet_is_read_in_memory_as_on_spark(
    spark: SparkSession, tmp_path: Path, changes: dict[str, pa.Array]
) -> None:
    folder = written(tmp_path)
    (folder / "subnets.csv").unlink()
    columns = {"subnet": [1, 0], "name": ["a", "b"], "latitude": [1.5, 2], "longitude": [3.5, 4], "weight": [1, 2]}
    pq.write_table(pa.table({**columns, **changes}), folder / "subnets.parquet")
    assert in_memory(folder) == on_spark(spark, folder)


def test_optional_column_may_be_missing_in_later_file(spark: SparkSession, tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "subnets.csv").unlink()
    (folder / "subnets").mkdir()
    row = {"name": ["a"], "latitude": [1.5], "longitude": [3.5], "weight": [1.0]}
    pq.write_table(pa.table({"subnet": [1], **row, "node": [5]}), folder / "subnets" / "a.parquet")
    pq.write_table(pa.table({"subnet": [0], **row}), folder / "subnets" / "b.parquet")
    found = in_memory(folder)
    assert found == on_spark(spark, folder)
    (folder / "subnets" / "a.parquet").rename(folder / "subnets" / "c.parquet")
    assert in_memory(folder) == on_spark(spark, folder) != found


@st.composite
def traces(draw: st.DrawFn) -> dict[str, list[tuple[float, ...]]]:
    """A trace with many equal times and now and then a fault."""
    servers, subnets = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    pages = draw(st.lists(st.sampled_from([0, 1, 5, -7, 2**40, 2**63 - 1]), min_size=1, max_size=4, unique=True))
    owner = {page: draw(st.integers(0, servers - 1)) for page in pages}
    times = st.sampled_from([-0.0, 0.0, 1.0, 1.5, -3.0, 1e9])
    versions = draw(
        st.lists(st.tuples(st.sampled_from(pages), times), max_size=8, unique_by=lambda row: (row[0], row[1] + 0))
    )
    versions += [(page, 2.0) for page in pages]
    requested = st.tuples(times, st.integers(0, subnets - 1), st.sampled_from(pages))
    requests = draw(st.lists(requested, min_size=1, max_size=30))
    fault = draw(st.sampled_from([None, None, *range(len(requests))]))
    place = st.sampled_from([0.0, -33.25, 90.0])
    return {
        "servers": [(number, draw(place), draw(place)) for number in draw(st.permutations(range(servers)))],
        "subnets": [(number, draw(place), draw(place)) for number in draw(st.permutations(range(subnets)))],
        "pages": [(page, owner[page], draw(st.integers(1, 9)), modified) for page, modified in versions],
        "requests": [
            (time, owner[page], subnets if fault == row else subnet, page)
            for row, (time, subnet, page) in enumerate(requests)
        ],
    }


def rows_of(name: str, rows: list[tuple[float, ...]]) -> pa.Table:
    layout = LAYOUTS[name]
    if "name" in layout.columns:
        more = (1.0,) if "weight" in layout.columns else ()
        rows = [(number, f"host {number}", *place, *more) for number, *place in rows]  # type: ignore[misc]
    kinds = {"int": pa.int32(), "bigint": pa.int64(), "double": pa.float64(), "string": pa.string()}
    return pa.table(
        {
            column: pa.array([row[at] for row in rows], kinds[kind])
            for at, (column, kind) in enumerate(layout.columns.items())
        }
    )


@settings(max_examples=10)
@given(traces(), st.sampled_from(["csv", "parquet"]), st.integers(1, 3))
def test_demand_in_memory_is_that_of_spark(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    trace: dict[str, list[tuple[float, ...]]],
    format: str,
    files: int,
) -> None:
    folder = tmp_path_factory.mktemp("push")
    for name, rows in trace.items():
        (folder / name).mkdir()
        table = rows_of(name, rows)
        for number in range(files):
            part = table.slice(
                len(table) * number // files, len(table) * (number + 1) // files - len(table) * number // files
            )
            file = folder / name / f"part-{number}.{format}"
            if format == "csv":
                pyarrow.csv.write_csv(part, file)
            else:
                pq.write_table(part, file)
    assert in_memory(folder) == on_spark(spark, folder)


def test_parquet_table_rejected_without_numeric_columns(spark: SparkSession, tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "pages.csv").unlink()
    columns = {"page": [10], "server": ["zero"], "size": [1], "modified": [0]}
    pq.write_table(pa.table(columns), folder / "pages.parquet")
    with pytest.raises(BadTrace, match=r"pages\.parquet: column 'server' is string, not int"):
        read_push_trace(spark, folder)


def test_table_rejected_when_not_parquet_or_missing(spark: SparkSession, tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "servers.csv").rename(folder / "servers.parquet")
    with pytest.raises(BadTrace, match=r"servers\.parquet: not readable as Parquet"):
        read_push_trace(spark, folder)
    (folder / "servers.parquet").unlink()
    with pytest.raises(BadTrace, match="table 'servers' is missing"):
        read_push_trace(spark, folder)
    with pytest.raises(BadTrace, match="no such trace folder"):
        read_push_trace(spark, folder / "none")


def test_force_replaces_only_push_trace(spark: SparkSession, tmp_path: Path) -> None:
    trace = read_push_trace(spark, written(tmp_path / "mine"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter").write_text("keep me")
    with pytest.raises(BadInput, match="is not a trace"):
        write_push_trace(trace, tmp_path / "other", force=True)
    assert (tmp_path / "other" / "letter").exists()


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50), st.integers(1, 20))
def test_servers_are_divided_among_files_in_order(requests: list[int], shards: int) -> None:
    found = shards_of(np.array(requests, np.int64), shards)
    assert found.min() >= 0
    assert found.max() < shards
    assert (np.diff(found) >= 0).all()
    # A file holds its share, and beyond that at most the last server that began in it.
    for shard in range(shards):
        of_shard = [count for count, place in zip(requests, found, strict=True) if place == shard]
        assert sum(of_shard[:-1]) <= sum(requests) / shards + 1
