"""Brokers, coordinators and presses as processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from newsstand.auth.credentials import broker_credential, operator_token
from support.broker.press import SECRET
from support.forked import ForkedCommand

PRESS = Path(__file__).with_name("press.py")
NEWSSTAND = Path(sys.executable).with_name("newsstand")


class Process:
    """A process that tells its address in its first lines; what it says later is kept for when a test fails.

    The command `newsstand` is forked from a process that has imported it, unless `as_typed`.
    """

    def __init__(self, *command: object, env: dict[str, str] | None = None, as_typed: bool = False) -> None:
        self.said: list[str] = []
        words, environment = [str(one) for one in command], {**os.environ, **(env or {})}
        self._process: subprocess.Popen[str] | ForkedCommand
        if command[0] == NEWSSTAND and not as_typed:
            self._process = ForkedCommand(words[1:], environment)
        else:
            self._process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
            )
        self._url: str | None = None
        self._known = threading.Event()
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line.rstrip())
            found = re.search(r"(?:on |^)(https?://\S+:\d+)$", line.rstrip())
            if found and self._url is None:
                self._url = found[1]
                self._known.set()
        self._known.set()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def url(self) -> str:
        assert self._known.wait(60), self.said
        assert self._url is not None, self.said
        return self._url

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self, patience: float = 20) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self.ended(patience)

    def ended(self, patience: float = 20) -> int:
        try:
            code = self._process.wait(patience)
            self._listening.join(5)  # its last words may still be in the pipe
            return code
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"does not stop: {self.said[-20:]}") from None


def start_press(folder: Path, port: int = 0) -> Process:
    return Process(sys.executable, PRESS, folder, port)


def start_coordinator(folder: Path, port: int = 0, *more: object) -> Process:
    folder.mkdir(parents=True, exist_ok=True)
    env = {"NEWSSTAND_COORDINATOR_SECRET": SECRET}
    return Process(NEWSSTAND, "coordinator", "--data", folder, "--port", port, *more, env=env)


def start_broker(
    folder: Path, cluster: str, name: str = "edge", port: int = 0, *more: object, as_typed: bool = False
) -> Process:
    command = ("broker", "--name", name, "--cluster", cluster, "--data", folder, "--port", port)
    return Process(
        NEWSSTAND, *command, *more, env=broker_secrets(name, "--coordinator" not in more), as_typed=as_typed
    )


def broker_secrets(name: str, is_alone: bool = False) -> dict[str, str]:
    """The credential of a broker, and its own secret if it stands alone, for its environment."""
    own = {"NEWSSTAND_BROKER_SECRET": SECRET} if is_alone else {}
    return {"NEWSSTAND_BROKER_TOKEN": broker_credential(SECRET, name), **own}


def as_operator(broker: str | None = None) -> str:
    """A token of an operator, for coordinator and cluster or for a broker."""
    return operator_token(SECRET, "tester", ["operator"], now_s=time.time(), days=1, broker=broker)


@contextmanager
def running_broker(folder: Path, cluster: str, settings: str = "", as_typed: bool = False) -> Iterator[str]:
    """A broker that is ready, for the length of a `with` block; gives its address."""
    config = folder / "broker.toml"
    if settings:
        folder.mkdir(exist_ok=True)
        config.write_text(settings)
    more = ("--config", config) if settings else ()
    broker = start_broker(folder, cluster, "edge", 0, *more, as_typed=as_typed)
    try:
        wait_ready(broker.url)
        yield broker.url
    finally:
        assert broker.stop() == 0


def wait_ready(url: str, patience: float = 30) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            answer = httpx.get(f"{url}/readyz", verify=False)
            if answer.status_code == 200:
                return
        except httpx.HTTPError:
            answer = None
        assert time.monotonic() < until, answer and answer.text
        time.sleep(0.05)
