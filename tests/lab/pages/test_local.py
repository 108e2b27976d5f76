"""The local engine gives the results of Spark, and of the reference, without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.lab import tables
from support.lab.tables import Tables
from support.profiles import examples

from newsstand.caching import POLICIES
from newsstand.cli.main import run
from newsstand.errors import BadOption
from newsstand.lab.pages import spark as on_spark
from newsstand.lab.pages.local import simulate
from newsstand.lab.pages.sweep import plan
from newsstand.workload.trace import memory
from newsstand.workload.trace.folder import read_trace
from newsstand.workload.trace.folder_columns import read_folder_columns

THIRTEEN = list(dict.fromkeys(str(run["policy"]) for run in tables.expected("c-ties")))
CAPACITIES = ["0.01", "0.05", "0.1", "0.5"]


@pytest.mark.parametrize("format", tables.FORMATS)
@pytest.mark.parametrize("vector", tables.NAMES)
def test_local_replay_agrees_with_vectors(tmp_path: Path, vector: str, format: str) -> None:
    folder = tables.VECTORS / vector
    if format == "parquet":
        folder = tables.write(tmp_path, tables.numbers(tables.read(folder)), format)
    answers = simulate(read_folder_columns(folder), *plan(THIRTEEN, CAPACITIES, [2.0], per_proxy=True))
    by_run = {(answer["policy"], answer["capacity"]): answer for answer in answers}
    for expected in tables.expected(vector):
        answer = by_run.pop((expected["policy"], expected["capacity"]))
        assert {name: answer[name] for name in expected} == expected
    assert not by_run


PAGES = st.sampled_from([0, 1, 2, 3, 4, -7, 2**40, 2**63 - 1])
PROXIES = st.sampled_from([0, 1, 2, 9, -(2**31), 2**31 - 1])
TIMES = st.sampled_from([0.0, -0.0, 1.0, 1.5, 3599.0, 3600.0, 1e9, -5.0])


@st.composite
def traces(draw: st.DrawFn) -> Tables:
    """A small trace with many equal times."""
    published = draw(st.lists(PAGES, min_size=1, unique=True))
    known = st.sampled_from(published)
    return {
        "publications": [(page, draw(TIMES), draw(st.integers(1, 50))) for page in published],
        "requests": draw(st.lists(st.tuples(TIMES, PROXIES, known), min_size=1, max_size=60)),
        "subscriptions": draw(
            st.lists(st.tuples(PROXIES, known, st.integers(0, 3)), unique_by=lambda row: row[:2], max_size=20)
        ),
    }


@settings(max_examples=examples(12, light=3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=traces(), format=st.sampled_from(tables.FORMATS))
def test_local_replay_equals_replay_on_spark(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, trace: Tables, format: str
) -> None:
    folder = tables.write(tmp_path_factory.mktemp("trace"), trace, format)
    wanted, job = plan(list(POLICIES), ["0.3", "1"], [2.0, 1.5], cache_bytes=[1, 60], per_proxy=True, hourly=True)
    expected = on_spark.simulate(spark, read_trace(spark, folder), wanted, job)
    assert simulate(read_folder_columns(folder), wanted, job) == expected


@pytest.mark.parametrize("format", tables.FORMATS)
def test_local_replay_reads_tables_of_several_files(spark: SparkSession, tmp_path: Path, format: str) -> None:
    rows = tables.numbers(tables.read(tables.VECTORS / "c-ties"))
    for name, listed in rows.items():
        for part, start in enumerate(range(0, len(listed), 500)):
            one = tables.write_table(tmp_path, name, listed[start : start + 500], format)
            (tmp_path / name).mkdir(exist_ok=True)
            one.rename(tmp_path / name / f"part-{part}.{format}")
    (tmp_path / "requests" / f"_part.{format}").write_text("not read")
    wanted, job = plan(["lru", "dc-lap", "sr"], ["0.1"], [2.0], per_proxy=True, hourly=True)
    expected = on_spark.simulate(spark, read_trace(spark, tmp_path), wanted, job)
    assert simulate(read_folder_columns(tmp_path), wanted, job) == expected


def test_local_replay_is_independent_of_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = read_folder_columns(tables.VECTORS / "d-large")
    wanted, job = plan(["gdstar", "sub"], ["0.1"], [2.0], per_proxy=True, hourly=True)
    answers = []
    for cores in (1, 3, 64):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        answers.append(simulate(columns, wanted, job))
    assert answers[0] == answers[1] == answers[2]


def test_progress_counts_all_tasks() -> None:
    steps: list[int] = []
    totals: list[int] = []

    def begin(total: int) -> object:
        totals.append(total)
        return steps.append

    columns = read_folder_columns(tables.VECTORS / "c-ties")
    simulate(columns, *plan(["lru", "sub"], ["0.1"], [2.0]), begin)  # type: ignore[arg-type]
    assert totals == [sum(steps)]


def test_cache_bytes_are_those_of_each_proxy(tmp_path: Path) -> None:
    rows: Tables = {
        "publications": [(1, 0.0, 10), (2, 0.0, 10)],
        "requests": [(1.0, 0, 1), (2.0, 0, 2), (3.0, 0, 1), (1.0, 1, 1), (2.0, 1, 1)],
        "subscriptions": [(7, 2, 1)],
    }
    columns = read_folder_columns(tables.write(tmp_path, rows, "csv"))
    wanted, job = plan(["lru"], ["0.5"], [2.0], cache_bytes=[10, 20], per_proxy=True)
    half, ten, twenty = simulate(columns, wanted, job)
    assert [answer["capacity"] for answer in (half, ten, twenty)] == [0.5, None, None]
    assert [answer["cache_bytes"] for answer in (half, ten, twenty)] == [15, 30, 60]
    assert [answer["proxy_cache_bytes"] for answer in (half, ten, twenty)] == [[10, 5, 0], [10] * 3, [20] * 3]
    assert [answer["hits"] for answer in (half, ten, twenty)] == [0, 1, 2]


def test_local_command_loads_neither_spark_nor_pandas(tmp_path: Path) -> None:
    program = (
        "import sys; from newsstand.cli.main import run\n"
        f"code = run(['simulate', {str(tables.VECTORS / 'c-ties')!r}, '--policy', 'lru', '--json'])\n"
        "assert code == 0 and not {'pyspark', 'py4j', 'pandas'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 3


def test_tables_show_runs_proxies_and_hours(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows: Tables = {
        "publications": [(1, 0.0, 1000), (2, 0.0, 1000)],
        "requests": [(1.0, 0, 1), (3600.0, 0, 1), (2.0, 1, 1), (3.0, 1, 2)],
        "subscriptions": [(7, 2, 1)],
    }
    folder = tables.write(tmp_path, rows, "csv")
    sizes = ["--capacity", "1", "--cache-bytes", "1000"]
    assert run(["simulate", str(folder), "--policy", "lru", *sizes, "--per-proxy", "--hourly"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "policy  capacity  beta  cache bytes  hit ratio  fetched  pushed always  pushed needed",
        "lru            1     2        3,000     0.2500        3              0              0",
        "lru      1,000 B     2        3,000     0.2500        3              0              0",
        "",
        "policy  capacity  beta  proxy  cache bytes  requests  hits  hit ratio",
        "lru            1     2      0        1,000         2     1     0.5000",
        "lru            1     2      1        2,000         2     0     0.0000",
        "lru            1     2      7            0         0     0          -",
        "lru      1,000 B     2      0        1,000         2     1     0.5000",
        "lru      1,000 B     2      1        1,000         2     0     0.0000",
        "lru      1,000 B     2      7        1,000         0     0          -",
        "",
        "policy  capacity  beta  hour  requests  hits  hit ratio  fetched  pushed always  pushed needed",
        "lru            1     2     0         3     0     0.0000        3              0              0",
        "lru            1     2     1         1     1     1.0000        0              0              0",
        "lru      1,000 B     2     0         3     0     0.0000        3              0              0",
        "lru      1,000 B     2     1         1     1     1.0000        0              0              0",
    ]


def test_trace_fits_if_its_estimate_is_within_share_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requests.csv").write_bytes(b"0" * 700)
    needed = memory.needed_bytes(tmp_path, "trace")
    assert needed > 700
    for available, fits in ((needed, False), (2 * needed, True)):
        monkeypatch.setattr(memory, "available_bytes", lambda available=available: available)
        assert memory.fits_in_memory(tmp_path, "trace") == fits


def test_log_that_only_spark_unpacks_is_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "a.log.zst").write_bytes(b"x")
    assert not memory.fits_in_memory(tmp_path, "access-log")
    assert memory.fits_in_memory(tmp_path, "trace")


@pytest.mark.parametrize("size", ["0", "-1", str(2**60)])
def test_cache_bytes_outside_range_are_named(size: str) -> None:
    with pytest.raises(BadOption, match=f"^cache_bytes {size}: must be at least 1 and at most"):
        plan(["lru"], [], [2.0], cache_bytes=[int(size)])
