"""`newsstand up` in a process of its own, all of whose processes a test can find and kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

UP_WITH_PRESS = Path(__file__).with_name("up_with_press.py")


MARK = "NEWSSTAND_TEST_MARK"


class Up:
    """A platform that was started; every process of it is known by a mark in its environment."""

    def __init__(
        self,
        folder: Path,
        *options: object,
        command: tuple[object, ...] = (),
        log: str | None = "--log",
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.log = folder / "platform.log"
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        words = command or (sys.executable, UP_WITH_PRESS, folder / "app")
        self.process = subprocess.Popen(
            [str(word) for word in (*words, *((log, self.log) if log else ()), *options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {MARK: self.mark},
            start_new_session=True,
            umask=0o022,
        )

    def addresses(self) -> dict[str, object]:
        """What it tells when it is ready."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            raise AssertionError(f"{self.process.stderr.read()}\n{self.output()}")
        return json.loads(line)

    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def processes(self) -> dict[int, str]:
        found = {}
        for process in Path("/proc").iterdir():
            try:
                if f"{MARK}={self.mark}".encode() in (process / "environ").read_bytes():
                    found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, ValueError):
                continue
        return found

    def process_of(self, words: str) -> int:
        (found,) = [number for number, command in self.processes().items() if words in command]
        return found

    def ended(self, patience: float = 60) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=patience)
        return self.process.returncode, said

    def nothing_is_left(self, patience: float = 30) -> bool:
        return eventually(lambda: not self.processes(), patience)

    def sweep(self) -> None:
        for number in self.processes():
            os.kill(number, signal.SIGKILL)
        self.process.communicate()


def eventually(true: object, patience: float = 30) -> bool:
    until = time.monotonic() + patience
    while not true():  # type: ignore[operator]
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
