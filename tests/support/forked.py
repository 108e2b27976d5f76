"""Processes of the command `newsstand`, forked from one process that has imported it.

Importing costs a server more than all else that it does in a short test. A forked server is a process of its own:
it has a PID, sockets, signals and an exit code.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TextIO

PRELOADED = (
    "newsstand.cli.main",
    "newsstand.config.settings",
    "newsstand.http.request_log",
    "newsstand.broker.server",
    "newsstand.coordinator.server",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)
"""What `newsstand broker` and `newsstand coordinator` import, also while they start."""


class ForkedCommand:
    """A running command `newsstand`, with the part of the interface of `subprocess.Popen` that tests use."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        self._arguments = list(arguments)
        context = get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        reader, writer = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run, args=(self._arguments, dict(env), os.getcwd(), writer), daemon=True
        )
        self._process.start()
        writer.close()
        self.stdout: TextIO = os.fdopen(os.dup(reader.fileno()), errors="replace")
        reader.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send_signal(self, number: int) -> None:
        if self._process.is_alive():
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._arguments, timeout or 0)
        return self._process.exitcode


def _run(arguments: list[str], env: dict[str, str], folder: str, output: Connection) -> None:
    """Run a command in this process as if it had been started from a shell."""
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.argv = ["newsstand", *arguments]
    from newsstand.cli.main import main

    main(arguments)
