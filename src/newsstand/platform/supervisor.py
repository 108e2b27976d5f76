"""Watches over processes: starts them in stages, joins what they say into one log, restarts what dies, stops all.

Every part leads a process group of its own, so that Ctrl-C in a terminal reaches the supervisor alone, which then
stops the parts in the right order, and so that a part is killed together with what it has started. If the
supervisor itself is killed, Linux kills the parts (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import httpx

from newsstand.errors import NewsstandError
from newsstand.platform.log_file import is_problem, plain
from newsstand.platform.parts import Part, environment
from newsstand.platform.pinning import trusting_only

START_S = 240.0
"""How long a part may take until it is ready for the first time."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""Between a death and the next start; it doubles with each death that comes soon."""

STEADY_S = 60.0
"""After so long a life, a death is a first one again."""

LONGEST_LINE = 1 << 20
LONGEST_SAID = 2000
LAST_LINES = 10
"""Of a part that cannot start."""
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class CannotStart(NewsstandError):
    """A part ended, or was not ready in time, at its first start."""


class Watched:
    """One part, and the process that it is at the moment."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()
        self.restarts = 0
        self.unreached = "it does not answer"
        """Why it does not count as ready."""
        self.said: deque[str] = deque(maxlen=20)
        self.keeping: asyncio.Task[None] | None = None

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def send(self, number: int) -> None:
        """A signal to the process alone."""
        if self.process is not None and self.is_alive:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    def kill(self) -> None:
        """End the process and all that it has started, at once."""
        if self.process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def last_words(self) -> str:
        """What it said last for people, else at all."""
        for_people = [line for line in self.said if not line.startswith("{")]
        return plain((for_people or list(self.said) or ["it said nothing"])[-1])


class Supervisor:
    """Runs parts in stages.

    `write` takes whole lines of the joined log, `look` a part and a line of its own, and `say` tells what happens.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[Part]],
        write: Callable[[bytes], None],
        say: Callable[[str], None],
        look: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.stages = [[Watched(part) for part in stage] for stage in stages]
        self.stopping = asyncio.Event()
        self.killed = False
        self._write = write
        self._say = say
        self._look = look

    @property
    def watched(self) -> list[Watched]:
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
        """Stop all, the stage that started last first; a part that does not stop in time is killed."""
        self.stopping.set()
        for stage in reversed(self.stages):
            await asyncio.gather(*(self._stop(one) for one in stage))

    async def _until_ready(self, one: Watched) -> None:
        """Wait until a part is ready, it is given up, or all shall stop."""
        assert one.keeping is not None
        waiting = {asyncio.create_task(one.ready.wait()), asyncio.create_task(self.stopping.wait())}
        try:
            done, _ = await asyncio.wait(
                {*waiting, one.keeping}, timeout=START_S, return_when=asyncio.FIRST_COMPLETED
            )
            if one.keeping in done:
                one.keeping.result()
            if not done:
                self._say_last_lines(one)
                raise CannotStart(
                    f"{one.part.name} is not ready after {START_S:.0f} s ({one.unreached}): {one.last_words()}"
                )
        finally:
            for task in waiting:
                task.cancel()

    async def _keep(self, one: Watched) -> None:
        """Run a part for as long as the platform runs."""
        part, pause = one.part, FIRST_PAUSE_S
        while not self.stopping.is_set():
            born = time.monotonic()
            try:
                one.process = process = await asyncio.create_subprocess_exec(
                    *part.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    env=environment(),
                    process_group=0,
                    preexec_fn=_dies_with(os.getpid()),
                )
            except OSError as error:
                raise CannotStart(f"{part.name} cannot start: {part.command[0]}: {error.strerror}") from error
            if self.killed:  # the last order came while it was being born
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
                raise CannotStart(f"{part.name} cannot start ({how}): {one.last_words()}")
            pause = FIRST_PAUSE_S if time.monotonic() - born > STEADY_S else pause
            one.restarts += 1
            self._tell(part.name, f"{part.name} has died ({how}); it is started again in {pause:g} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), pause)
            pause = min(LONGEST_PAUSE_S, pause * 2)

    async def _watch(self, one: Watched) -> None:
        """Notice when a part is ready, and say so if it had died."""
        while not await self._is_ready(one):
            await asyncio.sleep(0.1)
        one.ready.set()
        if one.restarts:
            self._tell(one.part.name, f"{one.part.name} is back")

    async def _is_ready(self, one: Watched) -> bool:
        try:
            # Read anew each time: a certificate may be renewed while its part is down.
            trusted = trusting_only(one.part.certificate)
            async with httpx.AsyncClient(timeout=5, verify=trusted, trust_env=False) as http:
                answer = await http.get(f"{one.part.url}/readyz")
        except (httpx.HTTPError, OSError, ValueError) as error:
            one.unreached = str(error)
            return False
        one.unreached = f"it answers {answer.status_code}"
        return answer.status_code == 200

    async def _join(self, one: Watched, process: asyncio.subprocess.Process) -> None:
        """Pass on what a part says, line by line, with its name."""
        assert process.stdout is not None
        rest = b""
        while piece := await process.stdout.read(1 << 16):
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._pass_on(one, line)
        self._pass_on(one, rest)

    def _pass_on(self, one: Watched, line: bytes) -> None:
        line = line.strip()
        if not line:
            return
        one.said.append(line[:LONGEST_SAID].decode(errors="replace"))
        self._write(joined_line(one.part.name, line))
        if self._look is not None:
            self._look(one.part.name, line)

    def _say_last_lines(self, one: Watched) -> None:
        """Show the last lines of a part that cannot start, without those shown already and that of the error."""
        for line in list(one.said)[-LAST_LINES:]:
            if plain(line) != one.last_words() and not (self._look is not None and is_problem(line)):
                self._say(f"{one.part.name}: {plain(line)}")

    async def _stop(self, one: Watched) -> None:
        one.send(signal.SIGTERM)
        if one.keeping is None:
            return
        done, _ = await asyncio.wait({one.keeping}, timeout=one.part.patience_s)
        if not done:
            self._tell(
                one.part.name, f"{one.part.name} does not stop in {one.part.patience_s:.0f} s; it is killed"
            )
            one.kill()
            await asyncio.wait({one.keeping}, timeout=5)

    def _tell(self, part: str, text: str) -> None:
        self._say(f"newsstand: {text}")
        told = {"part": "up", "at": _now(), "level": "warning", "message": text, "about": part}
        self._write(json.dumps(told).encode() + b"\n")


def joined_line(part: str, line: bytes) -> bytes:
    """A line of a part's as a line of the joined log: always an object of JSON, with the name of the part."""
    name = json.dumps(part).encode()
    if line.startswith(b"{") and line.endswith(b"}") and len(line) > 2:
        return b'{"part": ' + name + b", " + line[1:] + b"\n"
    told = json.dumps(
        {"at": _now(), "level": "info", "message": line.decode(errors="replace")}, ensure_ascii=False
    )
    return b'{"part": ' + name + b", " + told[1:].encode() + b"\n"


def _now() -> str:
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d}Z"


def _dies_with(parent: int) -> Callable[[], None]:
    """What a new process does first: it asks to be killed when the supervisor is gone."""

    def ask() -> None:
        if _libc is not None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it was gone already
                os._exit(1)

    return ask
