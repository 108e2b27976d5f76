"""The data cluster on separate executors: its results equal those of this process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.cluster.separate_executors import REPORTS
from support.environment import without_settings
from support.standalone_spark import SPARK_HOME, no_new_folder, standalone_cluster

PROGRAM = Path(__file__).parents[1] / "support" / "cluster" / "separate_executors.py"

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


def assert_matched(master: str, folder: Path, *results: str) -> None:
    """Run a data cluster on a master and compare its results with the expected ones."""
    folder.mkdir()
    ran = subprocess.run(
        [sys.executable, PROGRAM, master, folder, *results],
        env={key: value for key, value in without_settings().items() if not key.startswith("SPARK_")},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-5000:]
    outcome = json.loads(ran.stdout)
    of_kind = [[{"id": one["id"]} for one in REPORTS if one["kind"] == f"kind{number}"] for number in range(7)]
    near = [{"id": one["id"], "name": "gym"} for one in REPORTS if one["lon"] == 1.0]
    assert outcome["streams"] == [*of_kind, near]
    assert outcome["hosts"] == ["127.0.0.1"] * 2, "the driver and an executor, which do not listen on the network"


def test_platform_runs_on_local_cluster(tmp_path: Path) -> None:
    with no_new_folder(SPARK_HOME / "work"):
        assert_matched("local-cluster[1,1,1024]", tmp_path / "app")


def test_platform_runs_on_master_and_worker_with_postgres(tmp_path: Path, url: str) -> None:
    with standalone_cluster(tmp_path, workers=1) as master:
        assert_matched(master, tmp_path / "app", url)
