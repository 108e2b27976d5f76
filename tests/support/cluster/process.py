"""A data cluster in a process of its own, which tests use, kill and start again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

FAST_JVM = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PATIENCE = 90.0


class RunningCluster:
    """A process of `newsstand cluster APP`; `client` has its token for everything."""

    def __init__(self, app: Path, data: Path, process: subprocess.Popen[bytes], log: Path) -> None:
        self.app = app
        self.data = data
        self.process = process
        self.log = log
        self.url = (data / "address").read_text().strip()
        token = (data / "admin.token").read_text().strip()
        self.client = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=30)

    def kill(self) -> None:
        """Kill the process and Spark, like a loss of power."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)
        self.client.close()

    def terminate(self) -> int:
        """Stop it with SIGTERM; return its exit code."""
        self.process.terminate()
        code = self.process.wait(timeout=60)
        self.client.close()
        return code


def start(
    app: Path, data: Path, *, environment: Mapping[str, str] | None = None, options: tuple[str, ...] = ()
) -> RunningCluster:
    """Start a cluster and wait until it is ready."""
    (data / "address").unlink(missing_ok=True)
    data.mkdir(parents=True, exist_ok=True)
    log = data.parent / f"{data.name}.log"
    command = [sys.executable, "-m", "newsstand.cli.main", "cluster", str(app), "--data", str(data), "--port", "0"]
    command += ["--master", "local[2,4]", "--conf", FAST_JVM, "--conf", "spark.driver.memory=1g", *options]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            start_new_session=True,
            umask=0o022,
            env={**os.environ, **(environment or {})},
        )
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"the cluster ended with {process.returncode}:\n{log.read_text()[-3000:]}")
        try:
            url = (data / "address").read_text().strip()
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return RunningCluster(app, data, process, log)
        except (OSError, httpx.HTTPError):
            pass
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    raise AssertionError(f"the cluster was not ready in {PATIENCE:.0f} s:\n{log.read_text()[-3000:]}")


@contextmanager
def running(app: Path, data: Path, **how: object) -> Iterator[RunningCluster]:
    """Start a cluster for the length of a `with` block, and kill it at the end if it still runs."""
    cluster = start(app, data, **how)  # type: ignore[arg-type]
    try:
        yield cluster
    finally:
        if cluster.process.poll() is None:
            cluster.kill()
