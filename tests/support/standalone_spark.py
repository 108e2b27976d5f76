"""A Spark master and its workers on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyspark

from newsstand.spark.java import cache_folder, find_java, wrap_java

SPARK_HOME = Path(pyspark.__file__).parent


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
        "JAVA_HOME": str(wrap_java(find_java(), cache_folder())),
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
