"""Follows a page that starts servers from top to bottom, in a folder, as a reader would.

A block such as ```toml my-app/newsstand.toml is a file to write. A block ```console server is a command in a
terminal of its own: it is ready when it has printed what the page shows, and ends with the page. All other
commands are given one after the other. One that only looks (`cat`, or `curl` without a body) is given again for a
while until it prints what is shown, since results take a moment. Ports 87xx on the page stand for free ones.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from support.environment import without_settings

PATIENCE = 120.0
"""Seconds that a server may take to start, and results to come."""

COMMAND = re.compile(r"^```(console|sh)\b([^\n]*)\n(.*?)^```$", re.M | re.S)
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.M | re.S)
_PORT = re.compile(r"\b87\d\d\b")


def joined(body: str) -> list[str]:
    """The lines of a block; one that ends in a backslash goes on in the next."""
    return re.sub(r"\\\n\s*", "", body).splitlines()


def is_shown_as(line: str, printed: str) -> bool:
    """Whether a line on a page stands for a printed one; `…` in it stands for what is left out."""
    if printed == line:
        return True
    pattern = ".*".join(re.escape(part) for part in re.split(" *…", line))
    return "…" in line and re.fullmatch(pattern, printed) is not None


def lines_not_printed(shown: Sequence[str], printed: Iterable[str]) -> list[str]:
    """The shown lines that do not occur, in this order, in what was printed; `…` stands for lines left out."""
    rest = iter([line.rstrip() for line in printed])
    wanted = [line.rstrip() for line in shown if line.strip() not in ("", "…")]
    return [line for line in wanted if not any(is_shown_as(line, candidate) for candidate in rest)]


def follow(text: str, folder: Path) -> None:
    """Do what a page says; raise AssertionError where it comes out otherwise than the page says."""
    text = _with_free_ports(text)
    settings: list[str] = []
    with ExitStack() as servers:
        for kind, info, body in _BLOCK.findall(text):
            marks = info.split()
            if kind in ("console", "sh"):
                for command, shown in _commands(kind, joined(body)):
                    if "server" in marks:
                        servers.enter_context(_serving(command, shown, folder, settings))
                    elif re.match(r"\w+=", command):
                        settings.append(command)
                    elif "no-run" not in marks:
                        _give(command, shown, folder, settings)
            elif len(marks) == 1:
                file = folder / marks[0]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(body)


def _commands(kind: str, lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    starts = [number for number, line in enumerate(lines) if kind == "sh" or line.startswith("$ ")]
    for start, end in pairwise([*starts, len(lines)]):
        if command := lines[start].removeprefix("$ ").strip():
            yield command, lines[start + 1 : end]


def _give(command: str, shown: list[str], folder: Path, settings: list[str]) -> None:
    only_looks = re.match(r"cat |curl (?!.*( -X | -d ))", command) is not None
    deadline = time.monotonic() + PATIENCE
    while True:
        done = subprocess.run(
            ["bash", "-c", "\n".join([*settings, command])],
            cwd=folder,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        lost = lines_not_printed(shown, done.stdout.splitlines())
        if not lost and (done.returncode == 0 or shown):
            return
        if not only_looks or time.monotonic() > deadline:
            raise AssertionError(f"{command}\nprinted:\n{done.stdout}\nand not: {lost}")
        time.sleep(0.5)


@contextmanager
def _serving(command: str, shown: list[str], folder: Path, settings: list[str]) -> Iterator[None]:
    log = folder / f".server-{time.monotonic_ns()}.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["bash", "-c", "\n".join([*settings, f"exec {command}"])],
            cwd=folder,
            env=_environment(),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while lines_not_printed(shown, log.read_text().splitlines()):
            if server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{command}\nprinted:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)
        yield
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(timeout=60)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _environment() -> dict[str, str]:
    known = without_settings()
    return known | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}


def _with_free_ports(text: str) -> str:
    with ExitStack() as stack:
        free: dict[str, str] = {}
        for port in sorted(set(_PORT.findall(text))):
            held = stack.enter_context(socket.socket())
            held.bind(("127.0.0.1", 0))
            free[port] = str(held.getsockname()[1])
    return _PORT.sub(lambda found: free[found[0]], text)
