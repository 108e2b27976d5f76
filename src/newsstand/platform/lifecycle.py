"""The lifecycle of a platform: start, signals, the first assignment of topics to storages, stop."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from newsstand.errors import BadOption
from newsstand.http.client import HttpClient, RequestError
from newsstand.platform.data_folder import PlatformFolder
from newsstand.platform.log_file import LogFile, Problems
from newsstand.platform.processes import Platform
from newsstand.platform.supervisor import Supervisor, trusting_only
from newsstand.platform.tables import Storages
from newsstand.wire.coordination import OverlayInfo


@dataclass(frozen=True)
class RegistrationLimits:
    """Times of the first assignment of topics to storages."""

    timeout_s: float = 30.0
    """Time that brokers have to register with the coordinator."""
    request_timeout_s: float = 5.0
    poll_s: float = 0.1


class StartupInterrupted(Exception):
    """Ctrl-C or SIGTERM before the platform is ready."""


@asynccontextmanager
async def running(
    platform: Platform, say: Callable[[str], None], log: Path | None = None, *, verbose: bool = False
) -> AsyncIterator[Supervisor]:
    """Run a platform for the length of an `async with` block, which begins when it is ready.

    Ctrl-C and SIGTERM set `stopping`. The joined log goes to the file `log`, by default in the data folder, and
    its warnings and errors to `say`; with `verbose` the whole log goes to standard error as well.
    """
    if not platform.folder.is_running:  # else the lock gives the reason; here it would create the folder
        platform.reject_used_ports()
    with ExitStack() as stack:
        stack.enter_context(platform.folder.locked())
        platform.prepare()
        stack.enter_context(platform.folder.remembered(platform.usual_data))
        stack.enter_context(platform.folder.announced(platform.cluster.url))
        file = LogFile(log or platform.folder.log, say)
        stack.callback(file.close)
        names = ", ".join(one.name for stage in platform.stages for one in stage)
        say(f"newsstand: starting {names} …, within half a minute or so; the log is {log or platform.folder.log}")
        write = _to_both(file.write) if verbose else file.write
        supervisor = Supervisor(platform.stages, write, say, None if verbose else Problems(say).look)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, supervisor.interrupt)
            stack.callback(loop.remove_signal_handler, number)
        try:
            if not await supervisor.start():
                raise StartupInterrupted
            if platform.storages and platform.coordinator is not None:
                trusted = trusting_only(platform.coordinator.certificate)
                await assign_storages(platform.coordinator.url, trusted, platform.folder, platform.storages)
            yield supervisor
        finally:
            await supervisor.stop()


async def assign_storages(
    coordinator: str,
    trusted: ssl.SSLContext,
    folder: PlatformFolder,
    storages: Storages,
    limits: RegistrationLimits = RegistrationLimits(),  # noqa: B008  it is frozen
) -> None:
    """Assign topics to storages when the brokers are registered, unless the coordinator has an assignment."""
    headers = {"Authorization": f"Bearer {folder.operator_token('up')}"}
    clock = asyncio.get_running_loop().time
    until = clock() + limits.timeout_s
    async with HttpClient(coordinator, headers=headers, tls=trusted, timeout_s=limits.request_timeout_s) as http:
        while True:
            try:
                overlay = (await http.request("GET", "/overlay")).decode(OverlayInfo)
                if overlay.storages:
                    return
                reason = "a broker is not registered yet"
                if {name for names in storages.values() for name in names} <= set(overlay.brokers):
                    body, version = {"assignment": storages}, {"If-Match": f'"{overlay.placement}"'}
                    response = await http.request("PUT", "/overlay/storages", json=body, headers=version)
                    if response.is_success or response.status == 412:  # another client assigned topics since
                        return
                    reason = f"the coordinator does not take them ({response.error_text})"
            except RequestError as error:
                reason = f"the coordinator does not take them ({error.reason})"
            if clock() > until:
                raise BadOption(f"storages: {reason}, after {limits.timeout_s:.0f} s")
            await asyncio.sleep(limits.poll_s)


def _to_both(write: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return a function that also writes to standard error."""

    def both(line: bytes) -> None:
        write(line)
        with suppress(BrokenPipeError):  # nobody reads it any more; the platform goes on
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()

    return both
