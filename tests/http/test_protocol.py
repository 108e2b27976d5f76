"""Limits on connections and on the heads of requests, over raw sockets."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from newsstand.config.settings import HttpLimits
from newsstand.http.bodies import Bodies
from newsstand.http.errors import HttpError
from newsstand.http.protocol import limited_http

LIMITS = HttpLimits()
Address = tuple[str, int]


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def chunks(request: Request) -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    return StreamingResponse(pieces())


async def nothing(request: Request) -> Response:
    return Response(status_code=204)


async def read(request: Request) -> PlainTextResponse:
    try:
        async with Bodies(patience_s=0.3).read(request, 1000) as body:
            return PlainTextResponse(body)
    except HttpError as rejected:
        return PlainTextResponse("rejected", rejected.status, rejected.headers)


APP = Starlette(
    routes=[
        Route("/", hello, methods=["GET", "POST"]),
        Route("/read", read, methods=["POST"]),
        Route("/chunks", chunks),
        Route("/nothing", nothing),
    ]
)


@contextmanager
def http_server(limits: HttpLimits, loop: str = "uvloop") -> Iterator[Address]:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        config = uvicorn.Config(
            APP,
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


class Recorder(asyncio.Transport):
    """A transport that records what each call writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        """Reject an empty piece: from CPython 3.12 on, the transport of a socket would write it without end."""
        given = [bytes(one) for one in pieces]
        assert all(given), given
        self.written.append(b"".join(given))

    def is_closing(self) -> bool:
        return False

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    protocol: asyncio.BaseProtocol


@pytest.mark.parametrize(
    ("request_line", "ends"),
    [
        (b"GET / HTTP/1.1", [b"\r\n\r\nhello"]),
        (b"HEAD / HTTP/1.1", [b"\r\n\r\n"]),
        (b"GET /nothing HTTP/1.1", [b"\r\n\r\n"]),
        (b"GET /chunks HTTP/1.1", [b"\r\n\r\n3\r\none\r\n", b"3\r\ntwo\r\n", b"0\r\n\r\n"]),
    ],
)
def test_head_is_written_with_first_bytes_of_body(request_line: bytes, ends: list[bytes]) -> None:
    async def written() -> list[bytes]:
        state = ServerState()
        config = uvicorn.Config(APP, log_config=None, lifespan="off", ws="none")
        transport = Recorder()
        transport.protocol = protocol = limited_http(LIMITS)(config, state, {})
        protocol.connection_made(transport)
        for _ in range(2):
            protocol.data_received(request_line + b"\r\nHost: a\r\n\r\n")
            await asyncio.gather(*state.tasks)
        protocol.connection_lost(OSError("the test ends"))
        return transport.written

    answers = asyncio.run(written())
    assert len(answers) == 2 * len(ends)
    for piece, end in zip(answers, ends * 2, strict=True):
        assert piece.endswith(end)
        assert piece.startswith(b"HTTP/1.1 20" if end.startswith(b"\r\n\r\n") else end)


@pytest.mark.parametrize(
    ("request_line", "status", "end"),
    [
        (b"HEAD / HTTP/1.1", b"HTTP/1.1 200 ", b"\r\n\r\n"),
        (b"GET /nothing HTTP/1.1", b"HTTP/1.1 204 ", b"\r\n\r\n"),
        (b"GET /chunks HTTP/1.1", b"HTTP/1.1 200 ", b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
        (b"GET / HTTP/1.0", b"HTTP/1.1 200 ", b"\r\n\r\nhello"),
    ],
)
def test_responses_with_and_without_body(address: Address, request_line: bytes, status: bytes, end: bytes) -> None:
    answered = exchange(address, request_line + b"\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert answered.startswith(status)
    assert answered.endswith(end)


def test_client_that_expects_continue_is_asked_for_body(address: Address) -> None:
    head = b"POST /read HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\n"
    with socket.create_connection(address, 20) as client:
        client.sendall(head + b"Content-Length: 5\r\n\r\n")
        asked = b""
        while not asked.endswith(b"\r\n\r\n"):
            asked += client.recv(1)
        assert asked == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"bytes")
        answered = rest(client)
    assert answered.startswith(b"HTTP/1.1 200 ")
    assert answered.endswith(b"\r\n\r\nbytes")


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
