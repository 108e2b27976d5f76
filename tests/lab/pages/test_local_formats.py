"""The local engine replays oracleGeneral traces and access logs with the results of Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from newsstand.caching import POLICIES
from newsstand.lab.pages import spark as on_spark
from newsstand.lab.pages.local import simulate
from newsstand.lab.pages.sweep import plan
from newsstand.workload.oracle_file import write_oracle_general
from newsstand.workload.trace.sources import read_columns, read_source


def equal(spark: SparkSession, path: Path) -> None:
    """Compare the results of both engines under all policies."""
    wanted, job = plan(list(POLICIES), ["0.1", "0.5"], [2.0], cache_bytes=[900], per_proxy=True, hourly=True)
    here, there = read_columns(path), read_source(spark, path)
    assert here.notes == there.notes
    assert simulate(here, wanted, job) == on_spark.simulate(spark, there, wanted, job)


@pytest.mark.parametrize("is_sorted", [True, False])
def test_local_replay_of_oracle_general_equals_replay_on_spark(
    spark: SparkSession, tmp_path: Path, is_sorted: bool
) -> None:
    random = np.random.default_rng(4)
    times = random.integers(0, 9_000, 2_000)
    pages, sizes = random.geometric(0.02, 2_000) - 2**62, random.integers(0, 300, 2_000)
    path = tmp_path / "some.oracleGeneral.zst"
    write_oracle_general(path, np.sort(times) if is_sorted else times, pages, sizes)
    equal(spark, path)


def test_local_replay_of_access_log_equals_replay_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    rows = zip(
        random.integers(0, 6, 2_000).tolist(),
        random.integers(0, 60, 2_000).tolist(),
        random.geometric(0.02, 2_000).tolist(),
        random.choice([200, 200, 304, 404], 2_000).tolist(),
        random.integers(0, 300, 2_000).tolist(),
        strict=True,
    )
    (tmp_path / "access.log").write_text(
        "".join(
            f'10.0.{network}.9 - - [10/Oct/2000:1{network}:{minute:02d}:36 -0700] "GET /{page}" {status} {size}\n'
            for network, minute, page, status, size in rows
        )
    )
    equal(spark, tmp_path / "access.log")
