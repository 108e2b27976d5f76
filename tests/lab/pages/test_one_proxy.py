"""One cache in front of the readers of all proxies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.lab import tables

from newsstand.cli.main import run
from newsstand.lab.pages import spark as on_spark
from newsstand.lab.pages.local import simulate
from newsstand.lab.pages.sweep import plan
from newsstand.workload.trace.folder import read_trace
from newsstand.workload.trace.folder_columns import read_folder_columns
from newsstand.workload.trace.sources import read_columns, read_source

ROWS: tables.Tables = {
    "publications": [(1, 0.0, 10), (2, 0.0, 10), (3, 1.0, 10)],
    "requests": [(5.0, 4, 1), (3.0, 9, 1), (4.0, 9, 2), (6.0, 0, 2), (7.0, 4, 3)],
    "subscriptions": [(4, 3, 2), (9, 3, 1), (0, 1, 0)],
}


def test_readers_of_all_proxies_share_cache(tmp_path: Path) -> None:
    columns = read_folder_columns(tables.write(tmp_path, ROWS, "csv"))
    wanted, job = plan(["lru", "sub"], ["1"], [2.0], per_proxy=True)
    lru, sub = simulate(columns, wanted, replace(job, one_proxy=True))
    # Pages 1 and 2 miss once for all; page 3 is pushed once, for its three subscriptions.
    assert (lru["requests"], lru["hits"], lru["cache_bytes"]) == (5, 2, 30)
    assert lru["proxies"] == [{"proxy": 0, "requests": 5, "hits": 2}]
    assert (sub["pushed_pages_always"], sub["hits"]) == (1, 1)
    assert columns.behind_one_proxy().subscriptions.count.tolist() == [0, 3]


def test_sum_of_subscriptions_is_limited(spark: SparkSession, tmp_path: Path) -> None:
    most = 2**31 - 1
    rows = {**ROWS, "subscriptions": [(4, 3, most), (9, 3, 5), (9, 1, 1)]}
    folder = tables.write(tmp_path, rows, "parquet")
    assert read_folder_columns(folder).behind_one_proxy().subscriptions.count.tolist() == [1, most]
    wanted, job = plan(["sub", "sg1"], ["0.4"], [2.0])
    job = replace(job, one_proxy=True)
    expected = on_spark.simulate(spark, read_trace(spark, folder), wanted, job)
    assert simulate(read_folder_columns(folder), wanted, job) == expected


@pytest.mark.parametrize(("vector", "format"), [("c-ties", "csv"), ("d-large", "parquet")])
def test_engines_agree_behind_one_proxy(spark: SparkSession, tmp_path: Path, vector: str, format: str) -> None:
    rows = tables.numbers(tables.read(tables.VECTORS / vector))
    folder = tables.write(tmp_path, rows, format)
    wanted, job = plan(["lru", "gdstar", "sg2", "dc-lap"], ["0.05"], [2.0], hourly=True)
    job = replace(job, one_proxy=True)
    expected = on_spark.simulate(spark, read_trace(spark, folder), wanted, job)
    assert simulate(read_folder_columns(folder), wanted, job) == expected


LINE = '{host} - - [19/Nov/2026:10:00:{second:02} +0000] "GET /{page} HTTP/1.1" 200 {size}\n'


def test_engines_agree_on_access_log(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "access.log"
    log.write_text(
        "".join(
            LINE.format(host=f"10.0.{n % 7}.1", second=n // 2, page=n * n % 11, size=100 + n * n % 11)
            for n in range(100)
        )
    )
    wanted, job = plan(["lru", "s3-fifo"], ["0.2", "1"], [2.0])
    job = replace(job, one_proxy=True)
    expected = on_spark.simulate(spark, read_source(spark, log), wanted, job)
    assert simulate(read_columns(log), wanted, job) == expected
    assert run(["simulate", str(log), "--policy", "lru", "--one-proxy", "--capacity", "1", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["requests"] - answer["hits"] == len({n * n % 11 for n in range(100)})
