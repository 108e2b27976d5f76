"""What every server of a platform rejects before its application sees a request."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

from support.waiting import eventually

CONNECTIONS = 20
"""The limit for one client address with which the servers of these tests are configured."""


def require_limits(url: str) -> None:
    """Fail unless a server rejects large heads, and more connections than the limit."""
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    address = where.hostname, where.port
    for pieces in ([b"A: ", *[b"a" * 16384] * 4], [b"a: b\r\n" * 200]):
        assert _answer(address, b"GET /healthz HTTP/1.1\r\n", *pieces).startswith(b"HTTP/1.1 431 ")
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(address, 20))
        assert _answer(address).startswith(b"HTTP/1.1 429 ")
    eventually(lambda: _accepts(address))


def _accepts(address: tuple[str, int]) -> bool:
    """
    Whether a server answers a request, and with it leaves room for one more connection.

    It counts closed connections until its event loop has read their end, but its own close comes after the count.
    """
    with socket.create_connection(address, 20) as client, client.makefile("rb") as answer:
        try:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
            return answer.read().startswith(b"HTTP/1.1 200 ")
        except (BrokenPipeError, ConnectionResetError):
            return False


def _answer(address: tuple[str, int], *pieces: bytes) -> bytes:
    """The first bytes that a server answers, whether or not it reads all that is sent."""
    with socket.create_connection(address, 20) as client:
        try:
            for piece in pieces:
                client.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            return client.recv(4096)
        except ConnectionResetError:
            return b""
