"""A server as a process: its socket, its signals, and where it can be found."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from newsstand.errors import BadOption

_OFFSET_MS = int(os.environ.get("NEWSSTAND_CLOCK_OFFSET_MS", "0"))


def wall_clock_ms() -> int:
    """Unix milliseconds. NEWSSTAND_CLOCK_OFFSET_MS moves them, to try what a wrong clock does."""
    return time.time_ns() // 1_000_000 + _OFFSET_MS


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, also while something slow is still starting."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


BACKLOG = 4096
"""Connections that may wait to be accepted."""


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A bound socket, taken before anything slow begins."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
        except OSError as error:
            raise BadOption(f"cannot listen on {host} port {port}: {error.strerror}") from error
        yield bound


@dataclass(frozen=True)
class Tls:
    """The certificate of a server, and its key, in PEM files."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raise BadOption unless both files are there and belong together."""
        for file in (self.certificate, self.key):
            if not file.is_file():
                raise BadOption(f"{file}: there is no such file")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
        except OSError as error:  # what ssl raises is one, too
            raise BadOption(
                f"{self.certificate}: is no certificate in PEM with the key {self.key} ({error})"
            ) from error


def url_of(bound: socket.socket, tls: Tls | None = None) -> str:
    """Where a socket can be reached."""
    host, port = bound.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def make_private(folder: Path) -> None:
    """Make a data folder that only its owner may enter, and keep other users from all that this process writes."""
    os.umask(0o077)
    make_private_folder(folder)


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner may enter; what this process writes elsewhere is as it was."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
