"""Replay on Spark gives the counts of the reference for any layout of the trace on disk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.lab import tables
from support.lab.tables import Tables

from newsstand.caching import POLICIES
from newsstand.lab.pages import shuffled
from newsstand.lab.pages.clustered import shards
from newsstand.lab.pages.replay import COUNTS
from newsstand.lab.pages.spark import simulate
from newsstand.lab.pages.sweep import plan
from newsstand.workload.trace.folder import read_trace, write_trace

Answers = list[dict[str, object]]
THIRTEEN = list(dict.fromkeys(str(run["policy"]) for run in tables.expected("c-ties")))
CAPACITIES = ("0.01", "0.05", "0.1", "0.5")


def replay(
    spark: SparkSession,
    folder: Path,
    policies: list[str],
    capacities: tuple[str, ...] = ("0.05",),
    betas: tuple[float, ...] = (2.0,),
    *,
    per_proxy: bool = False,
    hourly: bool = False,
) -> Answers:
    wanted, job = plan(policies, capacities, betas, per_proxy=per_proxy, hourly=hourly)
    return simulate(spark, read_trace(spark, folder), wanted, job)


def assert_as_expected(vector: str, answers: Answers) -> None:
    by_run = {(answer["policy"], answer["capacity"]): answer for answer in answers}
    for run in tables.expected(vector):
        answer = by_run.pop((run["policy"], run["capacity"]))
        assert {name: answer[name] for name in run} == run
        assert answer["hit_ratio"] == pytest.approx(run["hits"] / run["requests"])  # type: ignore[operator]
    assert not by_run


@pytest.fixture(scope="module")
def clustered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every vector once more, as Newsstand would write it."""
    root = tmp_path_factory.mktemp("clustered")
    for vector in tables.NAMES:
        write_trace(read_trace(spark, tables.VECTORS / vector), root / vector, force=False)
    return {vector: root / vector for vector in tables.NAMES}


@pytest.fixture
def partitions(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[int]:
    before = str(spark.conf.get("spark.sql.shuffle.partitions"))
    spark.conf.set("spark.sql.shuffle.partitions", str(request.param))
    yield request.param
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.parametrize("vector", tables.NAMES)
def test_replay_of_shuffled_trace_agrees_with_vectors(spark: SparkSession, vector: str) -> None:
    folder = tables.VECTORS / vector
    assert shards(folder) is None
    assert_as_expected(vector, replay(spark, folder, THIRTEEN, CAPACITIES, per_proxy=True))


@pytest.mark.parametrize("vector", tables.NAMES)
def test_replay_of_clustered_trace_agrees_with_vectors(
    spark: SparkSession, clustered: dict[str, Path], vector: str
) -> None:
    parts = shards(clustered[vector])
    assert parts is not None
    assert len(parts) > 1
    assert_as_expected(vector, replay(spark, clustered[vector], THIRTEEN, CAPACITIES, per_proxy=True))


@pytest.mark.parametrize("partitions", [1, 7], indirect=True)
def test_replay_is_independent_of_partitions(spark: SparkSession, partitions: int) -> None:
    answers = replay(spark, tables.VECTORS / "c-ties", THIRTEEN, CAPACITIES, per_proxy=True)
    assert_as_expected("c-ties", answers)


def test_replay_of_shuffled_and_clustered_traces_agrees(spark: SparkSession, clustered: dict[str, Path]) -> None:
    shuffled_answers, clustered_answers = (
        replay(spark, folder, list(POLICIES), ("0.02", "1"), per_proxy=True, hourly=True)
        for folder in (tables.VECTORS / "b-alternative", clustered["b-alternative"])
    )
    assert shuffled_answers == clustered_answers


@pytest.mark.parametrize("format", tables.FORMATS)
def test_replay_is_independent_of_row_order(spark: SparkSession, tmp_path: Path, format: str) -> None:
    mixed = {name: in_disorder(name, rows) for name, rows in tables.read(tables.VECTORS / "c-ties").items()}
    if format == "parquet":
        mixed = tables.numbers(mixed)  # type: ignore[assignment]
    folder = tables.write(tmp_path / "mixed", mixed, format)
    assert (shards(folder) is not None) == (format == "parquet")
    assert_as_expected("c-ties", replay(spark, folder, THIRTEEN, CAPACITIES, per_proxy=True))


def in_disorder(name: str, rows: list[list[str]]) -> list[list[str]]:
    """The rows of distinct times mixed up; those of equal times stay in their order, which has a meaning."""
    chance = random.Random(5)
    if "time" not in tables.HEADERS[name]:
        return chance.sample(rows, len(rows))
    column = tables.HEADERS[name].index("time")
    place: dict[str, float] = {row[column]: chance.random() for row in rows}
    return sorted(rows, key=lambda row: place[row[column]])


@pytest.mark.parametrize("way", ["shuffled", "clustered"])
def test_replay_hours_add_up_to_totals(spark: SparkSession, clustered: dict[str, Path], way: str) -> None:
    folder = clustered["a-news"] if way == "clustered" else tables.VECTORS / "a-news"
    answers = replay(spark, folder, ["gdstar", "sub", "dc-lap"], ("0.05", "0.5"), hourly=True)
    for answer in answers:
        hours: list[dict[str, int]] = answer["hours"]  # type: ignore[assignment]
        assert len(hours) > 100
        assert [hour["hour"] for hour in hours] == sorted({hour["hour"] for hour in hours})
        assert {name: sum(hour[name] for hour in hours) for name in COUNTS} == {n: answer[n] for n in COUNTS}


def test_replay_of_many_betas_equals_single_replays(spark: SparkSession, clustered: dict[str, Path]) -> None:
    policies, betas = ["gdstar", "sg1", "sg2", "dm", "dc-ap"], (0.5, 1.0, 2.0, 3.0)
    together = replay(spark, clustered["d-large"], policies, ("0.1",), betas)
    for beta in betas[1:3]:
        apart = replay(spark, clustered["d-large"], policies, ("0.1",), (beta,))
        assert [answer for answer in together if answer["beta"] == beta] == apart
    assert len({answer["hits"] for answer in together if answer["policy"] == "gdstar"}) > 1


def test_replay_ignores_beta_if_unused(spark: SparkSession, clustered: dict[str, Path]) -> None:
    policies = ["sub", "sr", "lru", "lfu-da", "gds", "gdsf"]
    answers = replay(spark, clustered["d-large"], policies, ("0.1",), (0.5, 2.0))
    assert [answer["beta"] for answer in answers] == [0.5, 2.0] * len(policies)
    for one, other in zip(answers[::2], answers[1::2], strict=True):
        assert one | {"beta": 2.0} == other


def test_gdsf_is_gdstar_at_beta_1(spark: SparkSession, clustered: dict[str, Path]) -> None:
    gdstar, gdsf = replay(spark, clustered["a-news"], ["gdstar", "gdsf"], ("0.05",), (1.0,))
    assert gdstar | {"policy": "gdsf"} == gdsf


# Small traces, written down


def both(spark: SparkSession, tmp_path: Path, rows: Tables, policies: list[str], **options: object) -> Answers:
    """The answers for a trace, the same from both ways."""
    answers = []
    for format in tables.FORMATS:
        folder = tables.write(tmp_path / format, rows, format)
        assert (shards(folder) is not None) == (format == "parquet")
        answers.append(replay(spark, folder, policies, **options))  # type: ignore[arg-type]
    assert answers[0] == answers[1]
    return answers[0]


def test_replay_lists_proxy_without_requests(spark: SparkSession, tmp_path: Path) -> None:
    rows: Tables = {
        "publications": [(1, 0.0, 10), (2, 5.0, 10)],
        "requests": [(6.0, 3, 1), (7.0, 3, 1)],
        "subscriptions": [(-4, 1, 0), (3, 1, 1), (8, 2, 5), (9, 2, 0)],
    }
    (answer,) = both(spark, tmp_path, rows, ["sub"], capacities=("1",), per_proxy=True)
    assert answer["proxies"] == [
        {"proxy": -4, "requests": 0, "hits": 0},
        {"proxy": 3, "requests": 2, "hits": 2},
        {"proxy": 8, "requests": 0, "hits": 0},
        {"proxy": 9, "requests": 0, "hits": 0},
    ]
    # A push to a proxy without requests is sent under Always-Pushing, and never stored.
    assert (answer["pushed_pages_always"], answer["pushed_pages_needed"]) == (2, 1)


def test_replay_takes_request_before_publication(spark: SparkSession, tmp_path: Path) -> None:
    rows: Tables = {
        "publications": [(1, 5.0, 10)],
        "requests": [(1.0, 0, 1), (5.0, 0, 1)],
        "subscriptions": [(0, 1, 2)],
    }
    gdstar, sub, sg2 = both(spark, tmp_path, rows, ["gdstar", "sub", "sg2"], capacities=("1",))
    assert [answer["hits"] for answer in (gdstar, sub, sg2)] == [1, 1, 1]
    assert [answer["fetched_pages"] for answer in (gdstar, sub, sg2)] == [1, 1, 1]
    assert [answer["pushed_pages_always"] for answer in (gdstar, sub, sg2)] == [0, 1, 1]
    # `sub` stores nothing before the push; in `sg2` the push finds the page cached and changes nothing.
    assert [answer["pushed_pages_needed"] for answer in (gdstar, sub, sg2)] == [0, 1, 0]


def test_replay_capacity_is_exact_decimal(spark: SparkSession, tmp_path: Path) -> None:
    # In binary floating point 0.29 × 100 is less than 29, and a page of 29 bytes would not fit.
    rows: Tables = {
        "publications": [(1, 0.0, 29), (2, 0.0, 71)],
        "requests": [(1.0, 0, 1), (2.0, 0, 1), (3.0, 0, 2)],
        "subscriptions": [],
    }
    exact, less = both(spark, tmp_path, rows, ["lru"], capacities=("0.29", "0.2899999"))
    assert (exact["hits"], less["hits"]) == (1, 0)


def test_replay_accepts_as_many_events_as_publications(spark: SparkSession, tmp_path: Path) -> None:
    rows: Tables = {
        "publications": [(1, 0.0, 10), (2, 0.0, 70), (3, 0.0, 20)],
        "requests": [(1.0, 0, 2), (2.0, 0, 2), (3.0, 0, 1)],
        "subscriptions": [],
    }
    (answer,) = both(spark, tmp_path, rows, ["lru"], capacities=("1",))
    assert (answer["hit_bytes"], answer["fetched_bytes"]) == (70, 80)


def test_replay_takes_any_page_and_proxy_numbers(spark: SparkSession, tmp_path: Path) -> None:
    far = 2**63 - 1
    rows: Tables = {
        "publications": [(-5, -1e9, 1), (far, 1.7e9, 2**40)],
        "requests": [(1.7e9, -(2**31), far), (1.7e9, 2**31 - 1, far), (1.8e9, 2**31 - 1, far)],
        "subscriptions": [(2**31 - 1, far, 2**31 - 1), (-(2**31), -5, 1)],
    }
    (answer,) = both(spark, tmp_path, rows, ["sub"], capacities=("1",), per_proxy=True)
    assert (answer["requests"], answer["hits"], answer["hit_bytes"]) == (3, 2, 2**41)
    assert [row["proxy"] for row in answer["proxies"]] == [-(2**31), 2**31 - 1]  # type: ignore[attr-defined]


def test_replay_reads_overwritten_trace_again(spark: SparkSession, tmp_path: Path) -> None:
    for size in (10, 20, 30):
        rows: Tables = {
            "publications": [(1, 0.0, size)],
            "requests": [(1.0, proxy, 1) for proxy in range(4)],
            "subscriptions": [],
        }
        (answer,) = replay(spark, tables.write(tmp_path, rows, "parquet"), ["lru"])
        assert answer["fetched_bytes"] == 4 * size


def test_replay_ignores_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    rows: Tables = {
        "publications": [(1, 0.0, 10)],
        "requests": [(1.0, 3, 1), (2.0, 4, 1), (3.0, 5, 1), (4.0, 3, 1)],
        "subscriptions": [],
    }
    folder = tables.write(tmp_path, rows, "parquet")
    plain = pq.read_table(folder / "requests.parquet")
    noted = plain.add_column(0, "note", pa.array([{"low": row, "high": row} for row in range(4)]))
    (folder / "requests.parquet").unlink()
    (folder / "requests").mkdir()
    pq.write_table(noted.slice(0, 2), folder / "requests" / "part-0.parquet")
    pq.write_table(noted.slice(2), folder / "requests" / "part-1.parquet")
    # Proxy 3 is in both files, although no column in the place of `proxy` tells so.
    assert shards(folder) is None
    (answer,) = replay(spark, folder, ["lru"], ("1",))
    assert answer["hits"] == 1


def test_shards_of_overlapping_files_are_none(spark: SparkSession, tmp_path: Path) -> None:
    rows: Tables = {
        "publications": [(1, 0.0, 10)],
        "requests": [(1.0, 3, 1), (2.0, 4, 1), (3.0, 3, 1), (4.0, 5, 1)],
        "subscriptions": [(3, 1, 1), (4, 1, 1)],
    }
    folder = tables.write(tmp_path, rows, "parquet")
    whole = pq.read_table(folder / "requests.parquet")
    (folder / "requests.parquet").unlink()
    (folder / "requests").mkdir()
    pq.write_table(whole.slice(2), folder / "requests" / "part-0.parquet")
    pq.write_table(whole.slice(0, 2), folder / "requests" / "part-1.parquet")
    assert shards(folder) is None
    (answer,) = replay(spark, folder, ["lru"], ("1",), per_proxy=True)
    assert [(row["proxy"], row["hits"]) for row in answer["proxies"]] == [(3, 1), (4, 0), (5, 0)]  # type: ignore[attr-defined]


# The events of a partition, batch by batch


def test_timelines_have_complete_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffled, "ENOUGH", 20)
    chance = np.random.default_rng(3)
    proxy = np.sort(chance.integers(0, 12, 300)).astype(np.int32)
    events = pa.table(
        {
            "proxy": proxy,
            "time": np.arange(300.0),
            "kind": pa.array(chance.integers(0, 3, 300), pa.int32()),
            "page": chance.integers(0, 9, 300),
            "size": np.full(300, 5),
            "count": pa.array(np.ones(300), pa.int32()),
        }
    )
    for rows in (1, 7, 64, 300):
        seen = list(shuffled.timelines(iter(events.to_batches(max_chunksize=rows)), hourly=True))
        assert [p for part in seen for p in part.proxies] == sorted(set(proxy.tolist()))
        assert sum(len(part.events) for part in seen) == int(np.sum(events.column("kind").to_numpy() > 0))
        if rows < 64:
            assert len(seen) > 3
