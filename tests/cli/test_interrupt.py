"""Ctrl-C ends a command at once, in one line, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

MARK = "NEWSSTAND_TEST_MARK"
"""A variable that every process of a command inherits, by which they are found again."""


def marked(mark: str) -> dict[int, str]:
    """The living processes of a command: the program of each."""
    found = {}
    for process in Path("/proc").iterdir():
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                found[int(process.name)] = (process / "cmdline").read_bytes().split(b"\0")[0].decode()
        except (OSError, ValueError):
            continue
    return found


def wait_until(true: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "not printed within the deadline"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["while Spark starts", "while requests are drawn"])
def test_interrupt_prints_one_line(tmp_path: Path, moment: str) -> None:
    mark = uuid.uuid4().hex
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    command = "workload chen2003 --out out/week --requests 800000 --proxies 50 --pages 50 --master local[2]"
    running = subprocess.Popen(
        [sys.executable, "-m", "newsstand.cli.main", *command.split()],
        cwd=tmp_path,
        env=os.environ | {MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        if moment == "while Spark starts":
            wait_until(lambda: any(program.endswith("java") for program in marked(mark).values()))
        else:
            wait_until(lambda: list(tmp_path.glob("out/.week.partial-*/requests/_temporary/0/_temporary/*")))
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to all of the foreground at once
        out, err = running.communicate(timeout=60)
        assert err == "newsstand: stopped\n"
        assert (running.returncode, out) == (130, "")
        wait_until(lambda: not marked(mark), seconds=30)
        assert not list(tmp_path.rglob("*.partial*"))
        assert not (tmp_path / "out" / "week").exists()
    finally:
        for process in marked(mark):
            os.kill(process, signal.SIGKILL)
