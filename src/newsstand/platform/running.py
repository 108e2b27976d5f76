"""A platform from start to stop, with its signals, for `newsstand up` and what else needs one."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from newsstand.errors import BadOption
from newsstand.platform.parts import Platform
from newsstand.platform.storages import place
from newsstand.platform.supervisor import Supervisor


class Stopped(Exception):
    """Ctrl-C or SIGTERM came before the platform was ready."""


@asynccontextmanager
async def running(
    platform: Platform, say: Callable[[str], None], log: Path | None = None
) -> AsyncIterator[Supervisor]:
    """A platform that is ready, for the length of an `async with` block; Ctrl-C and SIGTERM set `stopping`.

    The joined log goes to a file, or to standard error.
    """
    with ExitStack() as stack:
        stack.enter_context(platform.folder.locked())
        platform.prepare()
        stack.enter_context(platform.folder.announced(platform.cluster.url))
        say(f"newsstand: starting {', '.join(part.name for stage in platform.stages for part in stage)} …")
        write = _writer(stack, log)
        supervisor = Supervisor(platform.stages, write, say)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, supervisor.interrupt)
            stack.callback(loop.remove_signal_handler, number)
        try:
            if not await supervisor.start():
                raise Stopped
            if platform.storages:
                await place(platform.coordinator.url, platform.folder, platform.storages)
            yield supervisor
        finally:
            await supervisor.stop()


def _writer(stack: ExitStack, log: Path | None) -> Callable[[bytes], None]:
    if log is None:
        stream = sys.stderr.buffer
    else:
        try:
            stream = stack.enter_context(log.open("ab"))
        except OSError as error:
            raise BadOption(f"--log {log}: cannot be written ({error.strerror})") from error

    def write(line: bytes) -> None:
        try:
            stream.write(line)
            stream.flush()
        except BrokenPipeError:
            pass  # nobody reads the log any more; the platform goes on

    return write
