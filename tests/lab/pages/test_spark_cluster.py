"""Replay gives the same results in this process, on a local cluster, and on a master with workers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession
from support.environment import without_settings
from support.lab import tables
from support.standalone_spark import SPARK_HOME, no_new_folder, standalone_cluster

from newsstand.caching import POLICIES
from newsstand.caching.pages.policy import PolicyFile
from newsstand.lab.pages.clustered import shards
from newsstand.lab.pages.spark import simulate
from newsstand.lab.pages.sweep import plan
from newsstand.workload.chen2003.generator import generate
from newsstand.workload.chen2003.publishing import News
from newsstand.workload.trace.folder import read_trace, write_trace

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[3]
VECTOR = "c-ties"
POLICY_FILE = ROOT / "examples" / "my_policy.py"
OF_EACH_KIND = ["lru", "sg2", "dc-lap"]
QUICK_TO_START = "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
NEWS = News(requests=800, proxies=9, pages=60, seed=5)


class Here(NamedTuple):
    """The two kinds of trace, and what this process makes of them."""

    folder: Path
    answers: list[dict[str, object]]


@pytest.fixture(scope="module")
def here(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Here:
    folder = tmp_path_factory.mktemp("cluster")
    shutil.copytree(tables.VECTORS / VECTOR, folder / "shuffled")
    write_trace(read_trace(spark, folder / "shuffled"), folder / "clustered", force=False)
    assert shards(folder / "shuffled") is None
    assert shards(folder / "clustered") is not None
    generate(spark, NEWS, folder / "week")
    known = dict(POLICIES)
    file = PolicyFile.read(POLICY_FILE)
    try:
        wanted, job = plan([*OF_EACH_KIND, "head-start"], ["0.1"], [2.0], [file], per_proxy=True)
        answers = simulate(spark, read_trace(spark, folder / "shuffled"), wanted, job)
    finally:
        POLICIES.restore(known)
        for name in [name for name in sys.modules if name.startswith("newsstand_policy_")]:
            del sys.modules[name]
    return Here(folder, answers)


def assert_same_replays(here: Here, master: str, out: Path) -> None:
    """Replay both traces by the command line, on a master."""
    policies = " ".join([*OF_EACH_KIND, "head-start"])
    replay = f"--policy-file {POLICY_FILE} --policy {policies} --capacity 0.1 --per-proxy --json --master {master}"
    traces = [here.folder / "shuffled", here.folder / "clustered"]
    for output in run(out / "replays.json", *(f"simulate {trace} {replay}" for trace in traces)):
        assert json.loads(output) == here.answers


def assert_same_trace(here: Here, master: str, out: Path) -> None:
    """Draw a trace by the command line, on a master."""
    drawn = f"--requests {NEWS.requests} --proxies {NEWS.proxies} --pages {NEWS.pages} --seed {NEWS.seed}"
    run(out / "draw.json", f"workload chen2003 --out {out / 'week'} {drawn} --master {master}")
    assert contents(out / "week") == contents(here.folder / "week")


def run(outcomes: Path, *commands: str) -> list[str]:
    """What each command prints, in silence otherwise."""
    subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "lab" / "batch.py", outcomes],
        input=json.dumps([[*command.split(), "--conf", QUICK_TO_START] for command in commands]),
        env=without_settings(),
        text=True,
        check=True,
    )
    output = json.loads(outcomes.read_text())
    assert [(one["code"], one["err"]) for one in output] == [(0, "")] * len(commands)
    return [one["out"] for one in output]


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.mark.slow
def test_replay_in_process_agrees_with_vectors(here: Here) -> None:
    expected = {run["policy"]: run for run in tables.expected(VECTOR) if run["capacity"] == 0.1}
    for answer in here.answers[:-1]:
        assert expected[answer["policy"]].items() <= answer.items()


@pytest.mark.slow
def test_replay_on_local_cluster_agrees(here: Here, tmp_path: Path) -> None:
    with no_new_folder(SPARK_HOME / "work"):
        assert_same_replays(here, "local-cluster[2,1,1024]", tmp_path)


@pytest.mark.slow
def test_replay_on_two_workers_agrees(here: Here, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path, workers=2) as master:
        assert_same_replays(here, master, tmp_path)
        assert_same_trace(here, master, tmp_path)
