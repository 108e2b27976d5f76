"""A server process: its socket, signals, private folders, and the addresses of its clients."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from newsstand.errors import BadOption

_OFFSET_MS = int(os.environ.get("NEWSSTAND_CLOCK_OFFSET_MS", "0"))


def wall_clock_ms() -> int:
    """Return Unix milliseconds; NEWSSTAND_CLOCK_OFFSET_MS shifts them, to test wrong clocks."""
    return time.time_ns() // 1_000_000 + _OFFSET_MS


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, also during a slow start."""

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
    """Yield a bound socket; raise BadOption if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
        except OSError as error:
            raise BadOption(f"cannot listen on {host} port {port}: {error.strerror}") from error
        yield bound


def url_of(bound: socket.socket, certificate: Path | None = None) -> str:
    """Return the URL of a socket: https if the server has a certificate."""
    host, port = bound.getsockname()[:2]
    scheme = "http" if certificate is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def make_private(folder: Path) -> None:
    """Make a data folder that only its owner may enter, and keep other users from all that this process writes.

    Raise BadOption if it cannot be made.
    """
    os.umask(0o077)
    try:
        make_private_folder(folder)
    except OSError as error:
        raise BadOption(f"data folder {folder}: cannot be created ({error.strerror})") from error


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner may enter; what this process writes elsewhere is as it was."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


LONGEST_ADDRESS = 64
"""Characters of a client's address."""


def proxy_options(trusted: Sequence[str]) -> dict[str, Any]:
    """Return arguments of `uvicorn.Config` that trust `X-Forwarded-*` headers from these addresses only."""
    return {"proxy_headers": bool(trusted), "forwarded_allow_ips": list(trusted)}


def client_of(scope: Mapping[str, Any]) -> str:
    """Return the address of a client; empty if it has none, as over a Unix socket."""
    client = scope.get("client")
    return str(client[0])[:LONGEST_ADDRESS] if client else ""


def network_of(address: str) -> str:
    """Return what limits count by: an IPv4 address, or the /64 network of an IPv6 address.

    >>> network_of("2001:db8::1:2:3:4")
    '2001:db8::/64'
    """
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))
