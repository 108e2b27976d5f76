"""Limits on connections and on the heads of requests, over raw sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from newsstand.config.settings import HttpLimits
from newsstand.http.bodies import Bodies
from newsstand.http.errors import HttpError
from newsstand.http.protocol import limited_http

LIMITS = HttpLimits()
Address = tuple[str, int]


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def read(request: Request) -> PlainTextResponse:
    try:
        async with Bodies(patience_s=0.3).read(request, 1000) as body:
            return PlainTextResponse(body)
    except HttpError as rejected:
        return PlainTextResponse("rejected", rejected.status, rejected.headers)


@contextmanager
def http_server(limits: HttpLimits, loop: str = "uvloop") -> Iterator[Address]:
    app = Starlette(routes=[Route("/", hello, methods=["GET", "POST"]), Route("/read", read, methods=["POST"])])
    with socket.create_server(("127.0.0.1", 0)) as bound:
        config = uvicorn.Config(
            app,
            log_config=None,
            lifespan="off",
            http=limited_http(limits),
            ws="none",
            loop=loop,
            timeout_keep_alive=2,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield bound.getsockname()
        finally:
            server.should_exit = True
            thread.join(15)


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def address(request: pytest.FixtureRequest) -> Iterator[Address]:
    with http_server(LIMITS, request.param) as where:
        yield where


def exchange(address: Address, *pieces: bytes) -> bytes:
    """Everything the server answers until it closes the connection."""
    with socket.create_connection(address, 20) as client:
        try:
            for piece in pieces:
                client.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return rest(client)


def rest(client: socket.socket) -> bytes:
    answered = b""
    try:
        while piece := client.recv(65536):
            answered += piece
    except ConnectionResetError:
        pass
    return answered


def one_response(client: socket.socket) -> bytes:
    """A whole response of `hello`: one `recv` may return a part."""
    answered = b""
    while not answered.endswith(b"\r\n\r\nhello"):
        piece = client.recv(65536)
        assert piece, answered
        answered += piece
    return answered


def test_header_rejected_when_it_does_not_end(address: Address) -> None:
    answered = exchange(address, b"GET / HTTP/1.1\r\nA: ", *[b"a" * 65536] * 64)
    assert answered.startswith(b"HTTP/1.1 431 ")
    assert b"32768 bytes" in answered


def test_headers_rejected_when_too_many(address: Address) -> None:
    answered = exchange(address, b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 200)
    assert answered.startswith(b"HTTP/1.1 431 ")
    assert b"100 headers" in answered


def test_request_line_rejected_when_too_long(address: Address) -> None:
    answered = exchange(address, b"GET /", *[b"a" * 65536] * 16)
    assert answered.startswith(b"HTTP/1.1 431 ")


def test_trailer_rejected_when_too_long(address: Address) -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(address, 20) as client:
        try:
            client.sendall(head + b"0\r\nA: ")
            for _ in range(64):
                client.sendall(b"a" * 65536)
        except (BrokenPipeError, ConnectionResetError):
            pass
        rest(client)  # the server ends the connection


def test_websocket_handshake_has_same_limits(address: Address) -> None:
    head = b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: "
    assert exchange(address, head, b"a" * 100_000).startswith(b"HTTP/1.1 431 ")


def test_head_below_limits_is_answered(address: Address) -> None:
    headers = b"".join(b"h%d: %s\r\n" % (number, b"v" * 200) for number in range(90))
    with socket.create_connection(address, 20) as client:
        for _ in range(3):
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n" + headers + b"\r\n")
            assert one_response(client).startswith(b"HTTP/1.1 200 ")


def test_requests_in_one_piece_are_answered_in_order_up_to_a_limit(address: Address) -> None:
    one = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    last = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert exchange(address, one * 9 + last).count(b"HTTP/1.1 200 ") == 10
    assert exchange(address, one * 500).count(b"HTTP/1.1 200 ") < 20


def test_connection_closed_when_head_does_not_end() -> None:
    with http_server(replace(LIMITS, head_s=0.3)) as address:
        assert exchange(address, b"GET / HTTP/1.1\r\nHost:").startswith(b"HTTP/1.1 408 ")
        assert exchange(address) == b""
        with socket.create_connection(address, 20) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert one_response(client).startswith(b"HTTP/1.1 200 ")
            client.sendall(b"\r\n")
            assert rest(client).startswith(b"HTTP/1.1 408 ")


def test_body_that_nobody_reads_is_not_waited_for() -> None:
    with http_server(replace(LIMITS, head_s=0.3)) as address, socket.create_connection(address, 20) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n1")
        one_response(client)
        client.sendall(b"2")
        assert rest(client) == b""


def test_half_sent_body_rejected_and_idle_connection_closed() -> None:
    with http_server(replace(LIMITS, head_s=0.3)) as address:
        head = b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"
        assert exchange(address, head + b"half").startswith(b"HTTP/1.1 408 ")
        with socket.create_connection(address, 20) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            one_response(client)
            assert rest(client) == b""


def test_connections_are_limited_by_address_and_in_all() -> None:
    for limits, status in (
        (replace(LIMITS, connections_per_address=2), b"HTTP/1.1 429 "),
        (replace(LIMITS, connections=2), b"HTTP/1.1 503 "),
    ):
        with http_server(limits) as address:
            request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
            held = [socket.create_connection(address, 20) for _ in range(2)]
            for client in held:
                client.sendall(request)
                assert one_response(client).startswith(b"HTTP/1.1 200 ")
            assert exchange(address).startswith(status)
            for client in held:
                client.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                assert rest(client).startswith(b"HTTP/1.1 200 ")
                client.close()
            with socket.create_connection(address, 20) as client:
                client.sendall(request)
                assert one_response(client).startswith(b"HTTP/1.1 200 ")
