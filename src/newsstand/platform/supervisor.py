"""A supervisor of processes: starts them in stages, joins their output into one log, restarts and stops them.

Every process leads its own process group. Ctrl-C in a terminal reaches the supervisor alone, which stops the
processes in the right order, and a process is killed together with its children. If the supervisor itself is
killed, Linux kills the processes (PR_SET_PDEATHSIG). A process is ready when `/readyz` says so.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import signal
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from newsstand.concurrency.pacing import Backoff
from newsstand.errors import BadInput, NewsstandError
from newsstand.platform.log_file import is_problem, plain
from newsstand.platform.processes import ProcessSpec, environment

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


def trusting_only(certificate: Path | None) -> ssl.SSLContext:
    """Trust the first certificate of a PEM file, under any name, and no other; raise OSError or ValueError.

    The platform calls its processes at addresses of this machine, for which a certificate need not be issued. The
    certificates after the first one are those of authorities, which have issued others, too.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if certificate is not None:
        found = _CERTIFICATE.search(certificate.read_text(encoding="ascii"))
        if found is None:
            raise ValueError(f"{certificate}: holds no certificate")
        context.load_verify_locations(cadata=found[0])
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


async def why_not_ready(url: str, certificate: Path | None, timeout_s: float = 5.0) -> str | None:
    """Return why a process does not count as ready; None if it is ready."""
    try:
        trusted = trusting_only(certificate)  # read each time: the certificate may be renewed
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.get(f"{url}/readyz", ssl=trusted, allow_redirects=False) as response,
        ):
            return None if response.status == 200 else f"it answers {response.status}"
    except TimeoutError:
        return f"it does not answer within {timeout_s:g} s"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return str(error)


PR_SET_PDEATHSIG = 1
BAD_INPUT = 2
"""The exit code of a process whose input is wrong."""

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True)
class SupervisorLimits:
    """Times and sizes of a supervisor."""

    start_s: float = 240.0
    """The time within which a process must be ready at its first start."""
    steady_s: float = 60.0
    """A process that has run for this time is restarted without an increased delay."""
    first_restart_s: float = 0.5
    """The longest pause before the first restart; it doubles each time."""
    longest_restart_s: float = 30.0
    line_bytes: int = 1 << 20
    """A longer line of output is divided in the log."""
    output_chars: int = 2000
    """Characters that are remembered of a line."""
    last_lines: int = 10
    """The lines of output that are shown of a process that cannot start."""


class CannotStart(NewsstandError):
    """A process ended, or was not ready in time, at its first start."""


class CannotStartWithInput(CannotStart, BadInput):
    """A process ended at its first start because its input is wrong."""


class SupervisedProcess:
    """A process of the platform: its specification and its current run."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()
        self.restarts = 0
        self.unreached = "it does not answer"
        """Why it is not ready."""
        self.output: deque[str] = deque(maxlen=20)
        self.keeping: asyncio.Task[None] | None = None

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def send(self, number: int) -> None:
        """Send a signal to the process alone."""
        if self.process is not None and self.is_alive:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    def kill(self) -> None:
        """End the process and all that it has started, at once."""
        if self.process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def last_line(self) -> str:
        """Return its last line of plain text, else its last line."""
        for_people = [line for line in self.output if not line.startswith("{")]
        return plain((for_people or list(self.output) or ["no output"])[-1])


class Supervisor:
    """The processes of a platform, started in stages and restarted when they die.

    `write` receives lines of the joined log, `look` the name of a process and a line of its output,
    and `say` messages for the terminal.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[ProcessSpec]],
        write: Callable[[bytes], None],
        say: Callable[[str], None],
        look: Callable[[str, bytes], None] | None = None,
        limits: SupervisorLimits = SupervisorLimits(),  # noqa: B008  it is frozen
    ) -> None:
        self.stages = [[SupervisedProcess(spec) for spec in stage] for stage in stages]
        self.stopping = asyncio.Event()
        self.killed = False
        self._write = write
        self._say = say
        self._look = look
        self._limits = limits

    @property
    def watched(self) -> list[SupervisedProcess]:
        return [one for stage in self.stages for one in stage]

    def interrupt(self) -> None:
        """Begin to stop; when that has begun already, kill everything at once."""
        if self.stopping.is_set():
            self.killed = True
            for one in self.watched:
                one.kill()
        self.stopping.set()

    async def start(self) -> bool:
        """Start every stage; False if it was interrupted. Raises CannotStart, after which `stop` is due."""
        for stage in self.stages:
            for one in stage:
                one.keeping = asyncio.create_task(self._keep(one))
            for one in stage:
                await self._until_ready(one)
                if self.stopping.is_set():
                    return False
        return True

    async def stop(self) -> None:
        """Stop all processes, the last stage first; kill a process that does not stop in time."""
        self.stopping.set()
        for stage in reversed(self.stages):
            await asyncio.gather(*(self._stop(one) for one in stage))

    async def _until_ready(self, one: SupervisedProcess) -> None:
        """Wait until a process is ready, has failed, or all processes stop."""
        assert one.keeping is not None
        waiting = {asyncio.create_task(one.ready.wait()), asyncio.create_task(self.stopping.wait())}
        try:
            done, _ = await asyncio.wait(
                {*waiting, one.keeping}, timeout=self._limits.start_s, return_when=asyncio.FIRST_COMPLETED
            )
            if one.keeping in done:
                one.keeping.result()
            if not done:
                self._say_last_lines(one)
                raise CannotStart(
                    f"{one.spec.name} is not ready after {self._limits.start_s:.0f} s ({one.unreached}): "
                    f"{one.last_line()}"
                )
        finally:
            for task in waiting:
                task.cancel()

    async def _keep(self, one: SupervisedProcess) -> None:
        """Run a process, and restart it when it dies, until the platform stops."""
        spec = one.spec
        backoff = Backoff(self._limits.first_restart_s, self._limits.longest_restart_s)
        while not self.stopping.is_set():
            born = time.monotonic()
            try:
                one.process = process = await asyncio.create_subprocess_exec(
                    *spec.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    env=environment(),
                    process_group=0,
                    preexec_fn=_dies_with(os.getpid()),
                )
            except OSError as error:
                raise CannotStart(f"{spec.name} cannot start: {spec.command[0]}: {error.strerror}") from error
            if self.killed:  # while it was being started
                one.kill()
            listening = asyncio.create_task(self._join(one, process))
            watching = asyncio.create_task(self._watch(one))
            code = await process.wait()
            watching.cancel()
            one.kill()  # what it has left behind
            with suppress(TimeoutError):
                await asyncio.wait_for(listening, 2)
            if self.stopping.is_set():
                return
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            if not one.ready.is_set():
                self._say_last_lines(one)
                failure = CannotStartWithInput if code == BAD_INPUT else CannotStart
                raise failure(f"{spec.name} cannot start ({how}): {one.last_line()}")
            if time.monotonic() - born > self._limits.steady_s:
                backoff.reset()
            pause = backoff.next_s()
            one.restarts += 1
            self._tell(spec.name, f"{spec.name} died ({how}); restarting in {pause:.1f} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), pause)

    async def _watch(self, one: SupervisedProcess) -> None:
        """Set `ready` when the process is ready; report it after a restart."""
        while (reason := await why_not_ready(one.spec.url, one.spec.certificate)) is not None:
            one.unreached = reason
            await asyncio.sleep(0.1)
        one.ready.set()
        if one.restarts:
            self._tell(one.spec.name, f"{one.spec.name} is ready again")

    async def _join(self, one: SupervisedProcess, process: asyncio.subprocess.Process) -> None:
        """Write the output of a process line by line, with its name."""
        assert process.stdout is not None
        rest = b""
        while piece := await process.stdout.read(1 << 16):
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > self._limits.line_bytes:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._pass_on(one, line)
        self._pass_on(one, rest)

    def _pass_on(self, one: SupervisedProcess, line: bytes) -> None:
        line = line.strip()
        if not line:
            return
        one.output.append(line[: self._limits.output_chars].decode(errors="replace"))
        self._write(joined_line(one.spec.name, line))
        if self._look is not None:
            self._look(one.spec.name, line)

    def _say_last_lines(self, one: SupervisedProcess) -> None:
        """Print the last lines of a process that cannot start, except those printed before."""
        for line in list(one.output)[-self._limits.last_lines :]:
            if plain(line) != one.last_line() and not (self._look is not None and is_problem(line)):
                self._say(f"{one.spec.name}: {plain(line)}")

    async def _stop(self, one: SupervisedProcess) -> None:
        one.send(signal.SIGTERM)
        if one.keeping is None:
            return
        done, _ = await asyncio.wait({one.keeping}, timeout=one.spec.patience_s)
        if not done:
            self._tell(one.spec.name, f"{one.spec.name} does not stop in {one.spec.patience_s:.0f} s; killing it")
            one.kill()
            await asyncio.wait({one.keeping}, timeout=5)

    def _tell(self, component: str, text: str) -> None:
        self._say(f"newsstand: {text}")
        entry = {"component": "up", "at": _now(), "level": "warning", "message": text, "about": component}
        self._write(json.dumps(entry).encode() + b"\n")


def joined_line(component: str, line: bytes) -> bytes:
    """Return a line of the joined log: always a JSON object, with the name of the process that wrote it."""
    name = json.dumps(component).encode()
    if line.startswith(b"{") and line.endswith(b"}") and len(line) > 2:
        return b'{"component": ' + name + b", " + line[1:] + b"\n"
    entry = json.dumps(
        {"at": _now(), "level": "info", "message": line.decode(errors="replace")}, ensure_ascii=False
    )
    return b'{"component": ' + name + b", " + entry[1:].encode() + b"\n"


def _now() -> str:
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d}Z"


def _dies_with(parent: int) -> Callable[[], None]:
    """Return what a new process does first: it asks to be killed when the supervisor ends."""

    def ask() -> None:
        if _libc is not None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it was gone already
                os._exit(1)

    return ask
