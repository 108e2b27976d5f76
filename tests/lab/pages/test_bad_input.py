"""A mistake in a trace or an option is one line that names its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.lab import tables
from support.lab.tables import Rows, Tables

from newsstand.caching import POLICIES
from newsstand.caching.pages.policy import PolicyFile
from newsstand.errors import BadInput, BadOption, BadPolicyFile, BadTrace, UnknownPolicy
from newsstand.lab.pages.clustered import read_shard, shards
from newsstand.lab.pages.spark import simulate
from newsstand.lab.pages.sweep import plan
from newsstand.workload.chen2003 import generator as generating
from newsstand.workload.chen2003.generator import generate
from newsstand.workload.chen2003.publishing import News
from newsstand.workload.trace.folder import new_folder, read_trace, write_trace
from newsstand.workload.trace.folder_columns import read_folder_columns
from newsstand.workload.trace.tables import ROW

GOOD: Tables = {
    "publications": [(1, 0.0, 10), (2, 5.0, 20)],
    "requests": [(1.0, 0, 1), (6.0, 0, 2), (7.0, 1, 2)],
    "subscriptions": [(0, 1, 1), (1, 2, 3)],
}
NAN, INFINITY = float("nan"), float("inf")


def local_refusal(folder: Path) -> str:
    """The line that tells what is wrong with a trace, by the local engine."""
    with pytest.raises(BadTrace) as refused:
        read_folder_columns(folder)
    (line,) = str(refused.value).splitlines()
    return line


def refusal(spark: SparkSession, folder: Path) -> str:
    """The line of Spark; the local engine has the same, but for the words of a library."""
    with pytest.raises(BadTrace) as refused:
        simulate(spark, read_trace(spark, folder), *plan(["lru", "sub"], ["0.5"], [2.0]))
    (line,) = str(refused.value).splitlines()
    assert local_refusal(folder).partition(": not readable (")[0] == line.partition(": not readable (")[0]
    return line


FAULTS: dict[str, tuple[str, Rows, str]] = {
    "a size of zero": ("publications", [(1, 0.0, 10), (2, 5.0, 0)], "row 2: size is not positive (page 2"),
    "a negative size": ("publications", [(1, 0.0, -1), (2, 5.0, 7)], "row 1: size is not positive (page 1"),
    "a publication at no time": (
        "publications",
        [(1, 0.0, 10), (2, NAN, 9)],
        "row 2: time is not a finite number",
    ),
    "a page published twice": (
        "publications",
        [(1, 0.0, 10), (2, 5.0, 20), (1, 9.0, 10)],
        "row 3: page 1 occurs twice (first at publications.{}: row 1)",
    ),
    "a publication without a page": ("publications", [(1, 0.0, 10), (None, 5.0, 20)], "row 2: page is missing"),
    "a request at no time": ("requests", [(1.0, 0, 1), (NAN, 0, 2)], "row 2: time is not a finite number"),
    "a request at the end of time": (
        "requests",
        [(1.0, 0, 1), (2.0, 0, 1), (-INFINITY, 0, 2)],
        "row 3: time is not a finite number",
    ),
    "a request without a time": ("requests", [(1.0, 0, 1), (None, 0, 2)], "row 2: time is missing"),
    "a request without a proxy": ("requests", [(1.0, 0, 1), (6.0, None, 2)], "row 2: proxy is missing"),
    "a request for an unknown page": (
        "requests",
        [(1.0, 0, 1), (2.0, 3, 9)],
        "row 2: the page has no publication (time 2.0, proxy 3, page 9)",
    ),
    "a negative count": (
        "subscriptions",
        [(0, 1, 1), (1, 2, -3)],
        "row 2: count is negative (proxy 1, page 2, count -3)",
    ),
    "two counts for a pair": (
        "subscriptions",
        [(0, 1, 1), (1, 2, 3), (0, 1, 2)],
        "row 3: proxy 0, page 1 occurs twice (first at subscriptions.{}: row 1)",
    ),
    "a subscription to an unknown page": (
        "subscriptions",
        [(0, 1, 1), (1, 7, 3)],
        "row 2: the page has no publication (proxy 1, page 7, count 3)",
    ),
    "a subscription without a count": ("subscriptions", [(0, 1, 1), (1, 2, None)], "row 2: count is missing"),
}


@pytest.mark.parametrize("format", tables.FORMATS)
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_reported_with_file_and_row(tmp_path: Path, fault: str, format: str) -> None:
    table, rows, message = FAULTS[fault]
    folder = tables.write(tmp_path, {**GOOD, table: rows}, format)
    assert f"{table}.{format}: {message.format(format)}" in local_refusal(folder)


EACH_IN_ONE_FORMAT = [
    pytest.param(fault, format, marks=[] if place % 2 == tables.FORMATS.index(format) else [pytest.mark.slow])
    for place, fault in enumerate(FAULTS)
    for format in tables.FORMATS
]
"""In the other format, another reader of files has the same rules."""


@pytest.mark.parametrize(("fault", "format"), EACH_IN_ONE_FORMAT)
def test_fault_is_reported_alike_on_spark(spark: SparkSession, tmp_path: Path, fault: str, format: str) -> None:
    table, rows, _ = FAULTS[fault]
    refusal(spark, tables.write(tmp_path, {**GOOD, table: rows}, format))


@pytest.mark.parametrize("fault", [fault for fault, (table, _, _) in FAULTS.items() if table != "publications"])
def test_fault_ends_task_that_reads_shard(tmp_path: Path, fault: str) -> None:
    table, rows, _ = FAULTS[fault]
    parts = shards(tables.write(tmp_path, {**GOOD, table: rows}, "parquet"))
    assert (parts is None) == (fault == "a request without a proxy"), (
        "then a shuffle follows a check of all tables"
    )
    if parts is not None:
        with pytest.raises(BadTrace):
            [read_shard(part, hourly=False) for part in parts]


@pytest.mark.parametrize("format", tables.FORMATS)
@pytest.mark.parametrize("table", ["publications", "requests"])
def test_empty_table_is_named(spark: SparkSession, tmp_path: Path, table: str, format: str) -> None:
    folder = tables.write(tmp_path, {**GOOD, table: []}, format)
    assert refusal(spark, folder) == f"{tmp_path}: table '{table}' is empty"


@pytest.mark.parametrize("format", tables.FORMATS)
@pytest.mark.parametrize("table", tables.HEADERS)
def test_missing_table_is_named(spark: SparkSession, tmp_path: Path, table: str, format: str) -> None:
    folder = tables.write(tmp_path, {name: rows for name, rows in GOOD.items() if name != table}, format)
    assert refusal(spark, folder).startswith(f"{tmp_path}: table '{table}' is missing")


@pytest.mark.parametrize("format", tables.FORMATS)
@pytest.mark.parametrize("table", tables.HEADERS)
def test_missing_column_is_named(spark: SparkSession, tmp_path: Path, table: str, format: str) -> None:
    path = tables.write(tmp_path, GOOD, format) / f"{table}.{format}"
    column = tables.HEADERS[table][1]
    if format == "csv":
        path.write_text(path.read_text().replace(column, "other"))
    else:
        pq.write_table(pq.read_table(path).drop([column]), path)
    assert refusal(spark, tmp_path).startswith(f"{path}: column '{column}' is missing (found: ")


# What only CSV can get wrong


MALFORMED: list[tuple[Sequence[object], str]] = [
    (("abc", 0, 1), "time is missing or not a double (proxy 0, page 1)"),
    ((1.0, "abc", 1), "proxy is missing or not a int (time 1.0, page 1)"),
    ((1.0, "1.5", 1), "proxy is missing or not a int (time 1.0, page 1)"),
    ((1.0, 0, "1.0"), "page is missing or not a bigint (time 1.0, proxy 0)"),
    ((1.0, "", 1), "proxy is missing or not a int (time 1.0, page 1)"),
    ((1.0, 2**31, 1), "proxy is missing or not a int (time 1.0, page 1)"),
    ((1.0, 0, 2**63), "page is missing or not a bigint (time 1.0, proxy 0)"),
    ((1.0, 0), "page is missing or not a bigint (time 1.0, proxy 0)"),
]


@pytest.mark.parametrize(("row", "message"), MALFORMED, ids=str)
def test_malformed_number_is_reported(tmp_path: Path, row: Sequence[object], message: str) -> None:
    folder = tables.write(tmp_path, {**GOOD, "requests": [(1.0, 0, 1), row]}, "csv")
    assert local_refusal(folder) == f"requests.csv: row 2: {message}"


def test_malformed_numbers_are_missing_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(1.0, 0, 1), *(row for row, _ in MALFORMED)]
    folder = tables.write(tmp_path, {**GOOD, "requests": rows}, "csv")
    read = read_trace(spark, folder).requests.orderBy(ROW).drop(ROW).collect()
    assert tuple(read[0]) == rows[0]
    for row, (_, message) in zip(read[1:], MALFORMED, strict=True):
        values = row.asDict()
        missing, _, rest = message.partition(" is missing or not a ")
        kept = ", ".join(f"{column} {value}" for column, value in values.items() if column != missing)
        assert values[missing] is None
        assert rest.endswith(f"({kept})")
    assert refusal(spark, folder).startswith(f"requests.csv: row 2: {MALFORMED[0][1]}")


def test_table_part_is_named_with_its_folder(spark: SparkSession, tmp_path: Path) -> None:
    folder = tables.write(tmp_path, {name: GOOD[name] for name in ("publications", "subscriptions")}, "csv")
    (folder / "requests").mkdir()
    (folder / "requests" / "a.csv").write_text("time,proxy,page\n" + "1.0,0,1\n" * 50)
    (folder / "requests" / "b.csv").write_text("time,proxy,page\n1.0,0,1\n2.0,x,1\n")
    assert refusal(spark, folder).startswith("requests/b.csv: row 2: proxy is missing")
    (folder / "requests" / "b.csv").write_text("time,page,proxy\n1.0,1,0\n")
    assert refusal(spark, folder) == f"{folder}/requests/b.csv: its header differs from that of a.csv"


def test_csv_rejected_when_garbage(spark: SparkSession, tmp_path: Path) -> None:
    garbage = bytes(range(14, 256)) * 4000
    path = tables.write(tmp_path, GOOD, "csv") / "requests.csv"
    path.write_bytes(garbage)
    assert refusal(spark, tmp_path).startswith(f"{path}: column 'time' is missing (found: ")
    assert len(refusal(spark, tmp_path)) < 1000
    path.write_bytes(b"time,proxy,page\n" + garbage)
    assert refusal(spark, tmp_path).startswith("requests.csv: row 1: time is missing or not a double")


# What only Parquet can get wrong


@pytest.mark.parametrize(
    ("table", "column", "kind", "rows"),
    [
        ("requests", "page", pa.string(), [(1.0, 0, "1")]),
        ("requests", "page", pa.float64(), [(1.0, 0, 1.0)]),
        ("requests", "proxy", pa.string(), [(1.0, "0", 1)]),
        ("requests", "time", pa.string(), [("1.0", 0, 1)]),
        ("publications", "size", pa.float32(), [(1, 0.0, 1.0)]),
        ("subscriptions", "count", pa.bool_(), [(0, 1, True)]),
    ],
)
def test_column_of_other_type_is_reported(
    spark: SparkSession, tmp_path: Path, table: str, column: str, kind: pa.DataType, rows: Rows
) -> None:
    tables.write(tmp_path, GOOD, "parquet")
    path = tables.write_table(tmp_path, table, rows, "parquet", {column: kind})
    assert re.match(rf"{path}: column '{column}' is \w+, not \w+$", refusal(spark, tmp_path))


@pytest.mark.parametrize(
    ("table", "column", "rows"),
    [
        ("requests", "proxy", [(1.0, 0, 1), (2.0, 2**31, 1)]),
        ("subscriptions", "proxy", [(0, 1, 1), (2**31, 1, 1)]),
        ("subscriptions", "count", [(0, 1, 1), (1, 1, 2**31)]),
    ],
)
def test_number_too_large_for_column_is_reported(
    spark: SparkSession, tmp_path: Path, table: str, column: str, rows: Rows
) -> None:
    tables.write(tmp_path, GOOD, "parquet")
    tables.write_table(tmp_path, table, rows, "parquet", {column: pa.int64()})
    assert refusal(spark, tmp_path).startswith(f"{table}.parquet: row 2: {column} is missing or not a int")


@pytest.mark.parametrize("table", tables.HEADERS)
@pytest.mark.parametrize("damage", ["empty", "garbage", "cut short", "spoilt inside"])
def test_damaged_parquet_file_is_reported(spark: SparkSession, tmp_path: Path, table: str, damage: str) -> None:
    path = tables.write(tmp_path, GOOD, "parquet") / f"{table}.parquet"
    whole = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "garbage": bytes(range(256)) * 40,
            "cut short": whole[: len(whole) // 2],
            "spoilt inside": whole[:4] + b"\xff" * 60 + whole[64:],
        }[damage]
    )
    if damage == "spoilt inside":
        assert shards(tmp_path) is not None  # its footer is whole
    assert refusal(spark, tmp_path).startswith(f"{path}: not readable")


def test_second_file_of_table_is_checked_like_first(spark: SparkSession, tmp_path: Path) -> None:
    folder = tables.write(tmp_path, GOOD, "parquet")
    whole = pq.read_table(folder / "requests.parquet")
    (folder / "requests.parquet").rename(folder / "first")
    (folder / "requests").mkdir()
    (folder / "first").rename(folder / "requests" / "a.parquet")
    second = folder / "requests" / "b.parquet"
    second.write_bytes(b"PAR1 and nothing more")
    assert refusal(spark, folder).startswith(f"{second}: not readable as Parquet")
    pq.write_table(whole.drop(["page"]), second)
    assert refusal(spark, folder).startswith(f"{second}: column 'page' is missing")
    pq.write_table(whole.set_column(2, "page", pa.array(["x"] * 3)), second)
    assert refusal(spark, folder).startswith(f"{second}: not readable (")


def test_table_rejected_with_files_of_two_formats(spark: SparkSession, tmp_path: Path) -> None:
    folder = tables.write(tmp_path, {name: GOOD[name] for name in ("publications", "subscriptions")}, "csv")
    (folder / "requests").mkdir()
    assert refusal(spark, folder) == f"{folder}/requests: the folder holds no data file"
    (folder / "requests" / "a.csv").write_text("time,proxy,page\n1.0,0,1\n")
    (folder / "requests" / "b.txt").write_text("time,proxy,page\n1.0,0,1\n")
    assert refusal(spark, folder) == f"{folder}/requests: expected .parquet or .csv files, found .csv, .txt"


def test_trace_rejected_without_folder(spark: SparkSession, tmp_path: Path) -> None:
    assert refusal(spark, tmp_path / "nowhere") == f"{tmp_path}/nowhere: no such trace folder"


# Options of a replay


@pytest.mark.parametrize("capacity", ["0", "-1", "1.5", "0.0", "1e9", "abc", "", "nan", "inf", "1/0"])
def test_capacity_outside_range_is_named(capacity: str) -> None:
    with pytest.raises(BadOption, match=rf"^capacity {re.escape(capacity)}: must be "):
        plan(["lru"], [capacity], [2.0])


@pytest.mark.parametrize("beta", [0.0, -1.0, NAN, INFINITY])
def test_beta_outside_range_is_named(beta: float) -> None:
    with pytest.raises(BadOption, match=rf"^beta {beta:g}: must be a number above 0$"):
        plan(["gdstar"], ["0.1"], [beta])


def test_unknown_policy_is_named_with_known_ones() -> None:
    with pytest.raises(UnknownPolicy, match=r"^unknown policy 'lruu'; known: gdstar, sub, .*\blru\b"):
        plan(["lruu"], ["0.1"], [2.0])


@pytest.fixture
def policies_as_before() -> Iterator[None]:
    before = dict(POLICIES)
    yield
    POLICIES.restore(before)


@pytest.mark.usefixtures("policies_as_before")
@pytest.mark.parametrize("format", ["parquet", pytest.param("csv", marks=pytest.mark.slow)])
def test_failing_score_is_reported_with_policy(spark: SparkSession, tmp_path: Path, format: str) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from newsstand.caching import policy\n"
        f"@policy('brittle-{format}')\n"
        "def brittle(e):\n"
        "    return 1.0 / (e.size - 33)\n"
    )
    sizes = [(1, 0.0, 10), (2, 5.0, 33)]
    one_proxy: Tables = {"requests": [(1.0, 0, 1), (6.0, 0, 2)], "subscriptions": [(0, 1, 1)]}
    folder = tables.write(tmp_path / "trace", {"publications": sizes, **one_proxy}, format)
    wanted, job = plan([f"brittle-{format}"], ["1"], [2.0], [PolicyFile.read(mine)])
    message = rf"^policy 'brittle-{format}' cannot score an entry at proxy \d: division by zero$"
    with pytest.raises(BadPolicyFile, match=message):
        simulate(spark, read_trace(spark, folder), wanted, job)


# Output: whole or not at all


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_trace_folder_is_replaced_only_by_force_and_other_folders_never(tmp_path: Path) -> None:
    out = tables.write(tmp_path / "out", GOOD, "csv")
    with (
        pytest.raises(BadInput, match=rf"^out {out}: exists already; .* force "),
        new_folder(out, force=False),
    ):
        pass
    with new_folder(out, force=True) as folder:
        (folder / "new").touch()
    assert left_in(out) == ["new"]
    with pytest.raises(BadInput, match=rf"^out {out}: is not a trace"), new_folder(out, force=True):
        pass
    assert left_in(out) == ["new"]
    assert left_in(tmp_path) == ["out"]


def test_file_is_never_replaced_by_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("mine")
    for force in (False, True):
        with pytest.raises(BadInput, match=rf"^out {out}: is a file"), new_folder(out, force=force):
            pass
    with (
        pytest.raises(BadInput, match=rf"^{out}/below: cannot be written"),
        new_folder(out / "below", force=False),
    ):
        pass
    assert out.read_text() == "mine"


@pytest.mark.parametrize("failure", [BadTrace("no"), KeyboardInterrupt(), RuntimeError("no")])
def test_failure_leaves_existing_files(tmp_path: Path, failure: BaseException) -> None:
    out = tables.write(tmp_path / "out", GOOD, "csv")

    def fail_half_way() -> None:
        with new_folder(out, force=True) as folder:
            (folder / "half").touch()
            raise failure

    with pytest.raises(type(failure)):
        fail_half_way()
    assert left_in(tmp_path) == ["out"]
    assert left_in(out) == ["publications.csv", "requests.csv", "subscriptions.csv"]


def test_trace_failing_while_drawn_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no more disk")

    monkeypatch.setattr(generating, "subscribe", fail)
    with pytest.raises(RuntimeError):
        generate(spark, News(requests=50, proxies=2, pages=5), tmp_path / "deep" / "out")
    assert left_in(tmp_path / "deep") == []


def test_trace_failing_while_imported_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    source = tables.write(tmp_path / "source", GOOD, "parquet")
    trace = read_trace(spark, source)
    (source / "requests.parquet").unlink()
    with pytest.raises(Exception, match="requests"):
        write_trace(trace, tmp_path / "out", force=False)
    assert left_in(tmp_path) == ["source"]
