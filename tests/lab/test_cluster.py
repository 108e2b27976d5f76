"""A cluster comes to the same results as this process: a local one, and one of a master and its workers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest
import tables
from pyspark.sql import SparkSession

from newsstand.caching import POLICIES
from newsstand.caching.policy_file import PolicyFile
from newsstand.lab.clustered import shards
from newsstand.lab.simulate import plan, simulate
from newsstand.spark.java import java_home
from newsstand.spark.session import cache_folder
from newsstand.workload.chen2003 import News
from newsstand.workload.generate import generate
from newsstand.workload.store import write_trace
from newsstand.workload.trace import read_trace

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
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
    for told in run(out / "replays.json", *(f"simulate {trace} {replay}" for trace in traces)):
        assert json.loads(told) == here.answers


def assert_same_trace(here: Here, master: str, out: Path) -> None:
    """Draw a trace by the command line, on a master."""
    drawn = f"--requests {NEWS.requests} --proxies {NEWS.proxies} --pages {NEWS.pages} --seed {NEWS.seed}"
    run(out / "draw.json", f"workload chen2003 --out {out / 'week'} {drawn} --master {master}")
    assert contents(out / "week") == contents(here.folder / "week")


def run(outcomes: Path, *commands: str) -> list[str]:
    """What each command prints, in silence otherwise."""
    subprocess.run(
        [sys.executable, ROOT / "tests" / "cli" / "batch.py", outcomes],
        input=json.dumps([[*command.split(), "--conf", QUICK_TO_START] for command in commands]),
        env={key: value for key, value in os.environ.items() if not key.startswith("NEWSSTAND_")},
        text=True,
        check=True,
    )
    told = json.loads(outcomes.read_text())
    assert [(one["code"], one["err"]) for one in told] == [(0, "")] * len(commands)
    return [one["out"] for one in told]


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.mark.slow
def test_this_process_comes_to_the_counts_of_the_vector(here: Here) -> None:
    expected = {run["policy"]: run for run in tables.expected(VECTOR) if run["capacity"] == 0.1}
    for answer in here.answers[:-1]:
        assert expected[answer["policy"]].items() <= answer.items()


@pytest.mark.slow
def test_a_local_cluster_comes_to_the_same(here: Here, tmp_path: Path) -> None:
    with no_new_folder(SPARK_HOME / "work"):
        assert_same_replays(here, "local-cluster[2,1,1024]", tmp_path)


@pytest.mark.slow
def test_a_master_with_two_workers_comes_to_the_same(here: Here, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path, workers=2) as master:
        assert_same_replays(here, master, tmp_path)
        assert_same_trace(here, master, tmp_path)


@contextmanager
def no_new_folder(path: Path) -> Iterator[None]:
    """A local cluster's workers leave their files beside the package."""
    before = set(path.glob("*"))
    yield
    for new in set(path.glob("*")) - before:
        shutil.rmtree(new)
    if not before and path.exists():
        path.rmdir()


@contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[str]:
    """A Spark master and its workers on loopback, for the length of a `with` block."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as running:
        running.enter_context(daemon(folder, "master.Master", *here, "--port", str(port)))
        log = folder / "master.Master.log"
        wait_for(lambda: "I have been elected leader" in log.read_text(), log)
        for number in range(workers):
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}")]
            running.enter_context(daemon(folder, "worker.Worker", *here, *size, master))
        wait_for(lambda: log.read_text().count("Registering worker") == workers, log)
        yield master


@contextmanager
def daemon(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    """One process of a Spark cluster, and all that it starts, until the block ends."""
    environment = os.environ | {
        "JAVA_HOME": str(java_home(cache_folder())),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(true, log: Path, seconds: float = 90) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
