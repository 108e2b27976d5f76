"""The processes of a platform on loopback: started, killed and restarted on the same ports, paused and resumed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from faults.interests import APP
from faults.journal import Journal, now
from faults.schedule import BROKERS
from newsstand.auth.credentials import broker_credential

SECRET = "a secret of this platform, long enough"
NEWSSTAND = (sys.executable, "-m", "newsstand.cli.main")
FAST_JVM = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPARK = ("--master", "local[2,4]", "--conf", FAST_JVM, "--conf", "spark.driver.memory=1g")
PATIENCE_S = 180.0


class Process:
    """A server that can be killed and started again."""

    def __init__(
        self, name: str, port: int, command: tuple[object, ...], env: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{port}"
        self._command = [str(one) for one in command]
        self._env = {**os.environ, "PYTHONUNBUFFERED": "1", **env}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, start_new_session=True, env=self._env
            )

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def is_ready(self) -> bool:
        if not self.is_running():
            raise AssertionError(f"{self.name} ended unexpectedly: {self._log.read_text()[-3000:]}")
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5, verify=False).status_code == 200
        except httpx.HTTPError:
            return False

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children."""
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def kill(self, whole: bool = True) -> None:
        assert self._process is not None
        if whole:
            self.send(signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait(30)

    def end(self) -> None:
        """Kill the process unless it has ended, also if it is paused."""
        if self.is_running():
            self.kill()


class Platform:
    """A cluster, a coordinator and three brokers; the journal records when each is killed, paused and ready."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        app, data = folder / "app", folder / "data"
        app.mkdir()
        (app / "newsstand.toml").write_text(APP)
        data.mkdir(mode=0o700)
        (data / "platform.secret").write_text(SECRET)
        (data / "platform.secret").chmod(0o600)
        self._journal = journal
        ports = free_ports(2 + len(BROKERS))
        cluster_url, coordinator_url = (f"http://127.0.0.1:{port}" for port in ports[:2])
        cluster = ("cluster", app, "--data", data, "--port", ports[0], *SPARK)
        coordinator = (
            "coordinator",
            "--data",
            folder / "coordinator",
            "--port",
            ports[1],
            "--policy",
            "least-loaded",
        )
        commands: dict[str, tuple[object, ...]] = {"cluster": cluster, "coordinator": coordinator}
        for name in BROKERS:
            where = ("--cluster", cluster_url, "--coordinator", coordinator_url)
            commands[name] = (
                "broker",
                "--name",
                name,
                "--data",
                folder / name,
                "--port",
                ports[len(commands)],
                *where,
            )
        self._token = data / "admin.token"
        self.processes = {
            name: Process(name, port, (*NEWSSTAND, *command), _secrets(name), folder / f"{name}.log")
            for port, (name, command) in zip(ports, commands.items(), strict=True)
        }
        self.data = data

    @property
    def token(self) -> str:
        """The cluster's token for everything."""
        return self._token.read_text().strip()

    def url(self, name: str) -> str:
        return self.processes[name].url

    def start(self) -> None:
        for stage in (["cluster", "coordinator"], BROKERS):
            for name in stage:
                self.processes[name].start()
            self._wait_ready(stage)

    def strike(self, kind: str, targets: tuple[str, ...], whole: bool) -> None:
        """Kill or pause processes at once."""
        for name in targets:
            self._note(kind, name)
            if kind == "kill":
                self.processes[name].kill(whole)
            else:
                self.processes[name].send(signal.SIGSTOP)

    def bring_back(self, kind: str, targets: tuple[str, ...]) -> None:
        """Start or resume processes, and wait until they are ready."""
        for name in targets:
            self._note("start" if kind == "kill" else "resume", name)
            if kind == "kill":
                self.processes[name].start()
            else:
                self.processes[name].send(signal.SIGCONT)
        self._wait_ready(targets)

    def _wait_ready(self, names: Sequence[str]) -> None:
        until, waiting = time.monotonic() + PATIENCE_S, list(names)
        while waiting:
            for name in [name for name in waiting if self.processes[name].is_ready()]:
                self._note("ready", name)
                waiting.remove(name)
            assert time.monotonic() < until, f"not ready in {PATIENCE_S:.0f} s: {waiting}"
            time.sleep(0.1)

    def stop(self) -> None:
        for process in self.processes.values():
            process.end()

    def _note(self, what: str, name: str) -> None:
        self._journal.write(op=what, process=name, at=now())


def _secrets(name: str) -> Mapping[str, str]:
    if name in BROKERS:
        return {"NEWSSTAND_BROKER_TOKEN": broker_credential(SECRET, name)}
    return {"NEWSSTAND_COORDINATOR_SECRET": SECRET}


def free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
