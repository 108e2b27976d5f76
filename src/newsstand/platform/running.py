"""A platform from start to stop, with its signals, for `newsstand up` and what else needs one."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

from newsstand.platform.log_file import LogFile, Problems
from newsstand.platform.parts import Platform
from newsstand.platform.pinning import trusting_only
from newsstand.platform.storages import place
from newsstand.platform.supervisor import Supervisor


class Stopped(Exception):
    """Ctrl-C or SIGTERM came before the platform was ready."""


@asynccontextmanager
async def running(
    platform: Platform, say: Callable[[str], None], log: Path | None = None, *, verbose: bool = False
) -> AsyncIterator[Supervisor]:
    """A platform that is ready, for the length of an `async with` block; Ctrl-C and SIGTERM set `stopping`.

    The joined log goes to a file, that of the data folder unless told; problems in it are said, too. With
    `verbose` all of it goes to standard error as well.
    """
    with ExitStack() as stack:
        stack.enter_context(platform.folder.locked())
        platform.prepare()
        stack.enter_context(platform.folder.remembered(platform.usual_data))
        stack.enter_context(platform.folder.announced(platform.cluster.url))
        file = LogFile(log or platform.folder.log, say)
        stack.callback(file.close)
        parts = ", ".join(part.name for stage in platform.stages for part in stage)
        say(f"newsstand: starting {parts} …; the log is {log or platform.folder.log}")
        write = _to_both(file.write) if verbose else file.write
        supervisor = Supervisor(platform.stages, write, say, None if verbose else Problems(say).look)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, supervisor.interrupt)
            stack.callback(loop.remove_signal_handler, number)
        try:
            if not await supervisor.start():
                raise Stopped
            if platform.storages:
                trusted = trusting_only(platform.coordinator.certificate)
                await place(platform.coordinator.url, trusted, platform.folder, platform.storages)
            yield supervisor
        finally:
            await supervisor.stop()


def _to_both(write: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Write to standard error, too."""

    def both(line: bytes) -> None:
        write(line)
        with suppress(BrokenPipeError):  # nobody reads it any more; the platform goes on
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()

    return both
