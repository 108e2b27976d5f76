"""The data cluster on executors of their own: what it finds is what it finds here, and right."""

# ruff: noqa: F811  a test's arguments are the fixtures that this file imports

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from on_a_cluster import REPORTS
from test_results_postgres import url  # noqa: F401

sys.path.append(str(Path(__file__).parents[1] / "lab"))  # where clusters of Spark are started
from test_cluster import SPARK_HOME, no_new_folder, standalone_cluster

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


def assert_matched(master: str, folder: Path, *results: str) -> None:
    """Run a data cluster on a master and compare what it stores with what it should."""
    folder.mkdir()
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("on_a_cluster.py")), master, str(folder), *results],
        env={key: value for key, value in os.environ.items() if not key.startswith(("NEWSSTAND_", "SPARK_"))},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-5000:]
    told = json.loads(ran.stdout)
    of_kind = [[{"id": one["id"]} for one in REPORTS if one["kind"] == f"kind{number}"] for number in range(7)]
    near = [{"id": one["id"], "name": "gym"} for one in REPORTS if one["lon"] == 1.0]
    assert told["streams"] == [*of_kind, near]
    assert told["hosts"] == ["127.0.0.1"] * 2, "the driver and an executor, which do not listen on the network"


def test_on_a_local_cluster(tmp_path: Path) -> None:
    with no_new_folder(SPARK_HOME / "work"):
        assert_matched("local-cluster[1,1,1024]", tmp_path / "app")


def test_on_a_master_and_a_worker_with_results_that_executors_write(tmp_path: Path, url: str) -> None:
    with standalone_cluster(tmp_path, workers=1) as master:
        assert_matched(master, tmp_path / "app", url)
