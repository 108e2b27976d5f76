"""HTTP clients against a server of aiohttp, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from newsstand.concurrency.background_loop import BackgroundLoop
from newsstand.errors import BadOption
from newsstand.http.client import (
    BlockingHttpClient,
    ConnectError,
    HttpClient,
    HttpResponse,
    RequestError,
    ResponseTooLarge,
    raw_path,
    trust,
)


async def echo(request: web.Request) -> web.Response:
    """Return a request as JSON; `/status/418` has that status."""
    body = await request.read()
    return web.json_response(
        {
            "method": request.method,
            "path": request.raw_path,
            "body": body.decode()[:100],
            "size": len(body),
            "headers": {name.lower(): value for name, value in request.headers.items()},
        }
    )


async def status(request: web.Request) -> web.Response:
    number = int(request.match_info["number"])
    headers = {"Location": "/echo", "Retry-After": "3"} if number == 307 else {"Retry-After": "3"}
    return web.json_response({"error": "two\nlines"}, status=number, headers=headers)


async def large(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(100):
        await response.write(b"x" * 10_000)
    return response


async def slow(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"x")
    await asyncio.sleep(60)
    return response


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    app = web.Application(client_max_size=10 << 20)
    app.router.add_get("/status/{number}", status)
    app.router.add_get("/large", large)
    app.router.add_get("/slow", slow)
    app.router.add_route("*", "/{path:.*}", echo)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that sends some bytes to each connection and closes it."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Echo(msgspec.Struct):
    method: str
    path: str
    body: str
    size: int
    headers: dict[str, str]


def with_client(work: Callable[[HttpClient], Awaitable[None]], **options: float) -> None:
    async def run() -> None:
        async with serving() as url, HttpClient(url, headers={"Authorization": "Bearer t"}, **options) as http:  # type: ignore[arg-type]
            await work(http)

    asyncio.run(run())


def test_request_sends_json_headers_and_parameters() -> None:
    async def work(http: HttpClient) -> None:
        response = await http.request(
            "PUT", "/a%2Fb/~c%7Ed", json={"x": 1}, params={"q": "ä b"}, headers={"If-Match": "1"}
        )
        assert response.is_success
        assert response.url == f"{http.base_url}/a%2Fb/~c%7Ed"
        got = response.decode(Echo)
        assert (got.method, got.path, got.body) == ("PUT", "/a%2Fb/~c%7Ed?q=%C3%A4+b", '{"x":1}')
        assert got.headers["content-type"] == "application/json"
        assert got.headers["authorization"] == "Bearer t"
        assert got.headers["if-match"] == "1"
        assert got.headers["accept-encoding"] == "identity"

    with_client(work)


@pytest.mark.parametrize("content", [b"y" * 3_000_000, io.BytesIO(b"y" * 3_000_000)])
def test_request_sends_large_bodies_with_their_length(content: bytes | io.BytesIO) -> None:
    async def work(http: HttpClient) -> None:
        got = (await http.request("POST", "/", content=content, timeout_s=10)).decode(Echo)
        assert got.size == 3_000_000
        assert got.headers["content-length"] == "3000000"

    with_client(work)


@pytest.mark.parametrize("number", [307, 404, 503])
def test_status_is_no_error_and_redirect_is_not_followed(number: int) -> None:
    async def work(http: HttpClient) -> None:
        response = await http.request("GET", f"/status/{number}")
        assert (response.status, response.is_success) == (number, False)
        assert response.error_text == "two lines"
        assert response.headers["retry-after"] == "3"

    with_client(work)


def test_body_larger_than_accepted_is_an_error() -> None:
    async def work(http: HttpClient) -> None:
        assert len((await http.request("GET", "/large", most_bytes=1_000_000)).content) == 1_000_000
        with pytest.raises(ResponseTooLarge, match="more than 999999 bytes"):
            await http.request("GET", "/large", most_bytes=999_999)
        with pytest.raises(ResponseTooLarge):
            await http.request("GET", "/echo", most_bytes=3)

    with_client(work)


def test_slow_response_is_an_error_after_the_time_limit() -> None:
    async def work(http: HttpClient) -> None:
        with pytest.raises(RequestError, match=r"/slow: no response within 0\.2 s"):
            await http.request("GET", "/slow?secret=1")
        async with http.stream("GET", "/slow", timeout_s=5) as response:
            assert await response.content.readany() == b"x"

    with_client(work, timeout_s=0.2)


def test_refused_connection_is_a_connect_error() -> None:
    async def run() -> None:
        async with HttpClient("http://127.0.0.1:9") as http:
            with pytest.raises(ConnectError, match=r"^http://127.0.0.1:9/x: cannot connect \(Connection ref"):
                await http.request("GET", "/x?signature=1")

    asyncio.run(run())


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"]
)
def test_broken_response_is_a_request_error(answer: bytes) -> None:
    async def run() -> None:
        async with answering(answer) as url, HttpClient(url) as http:
            with pytest.raises(RequestError, match=r"no response \(.+\)"):
                await http.request("POST", "/")

    asyncio.run(run())


def test_compressed_body_stays_compressed() -> None:
    async def run() -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n"
        async with answering(head + b"\x1f\x8b\x08\x00") as url, HttpClient(url) as http:
            assert (await http.request("GET", "/")).content == b"\x1f\x8b\x08\x00"

    asyncio.run(run())


@pytest.mark.parametrize("url", ["ftp://h/", "http://", "http://[::1", "no url"])
def test_url_of_another_kind_is_rejected(url: str) -> None:
    async def run() -> None:
        async with HttpClient() as http:
            with pytest.raises(RequestError, match="not an http:// or https:// URL"):
                await http.request("GET", url)

    asyncio.run(run())
    with pytest.raises(BadOption, match="not a URL such as"):
        HttpClient(url)


def test_raw_path_is_what_a_request_has() -> None:
    assert raw_path("http://h:1/a%2fb/~%7e?x=%20#f") == "/a%2fb/~%7e?x=%20"
    assert raw_path("http://h") == "/"
    assert raw_path("http://h/ä b") == "/%C3%A4%20b"


@pytest.mark.parametrize(
    ("content", "text"),
    [(b'{"error": "why"}', "why"), (b"{}", "status 500"), (b"[1]", "status 500"), (b"\xff", "status 500")],
)
def test_error_text_is_that_of_the_body_or_the_status(content: bytes, text: str) -> None:
    response = HttpResponse("http://h/", 500, {}, content)
    assert response.error_text == text


def test_decode_rejects_another_shape() -> None:
    with pytest.raises(RequestError, match=r"^http://h/: unexpected response"):
        HttpResponse("http://h/", 200, {}, b"{}").decode(Echo)


def test_trust_names_a_file_without_certificates(tmp_path: Path) -> None:
    assert trust(None) is None
    assert trust("") is None
    with pytest.raises(BadOption, match=r"^SSL_CERT_FILE .*none\.pem: cannot read certificates"):
        trust(tmp_path / "none.pem", "SSL_CERT_FILE ")
    (tmp_path / "empty.pem").write_text("nothing")
    with pytest.raises(BadOption, match="cannot read certificates"):
        trust(tmp_path / "empty.pem")


@pytest.fixture
def server() -> Iterator[str]:
    loop = BackgroundLoop("server")
    context = serving()
    try:
        yield loop.run(context.__aenter__())  # type: ignore[arg-type]
        loop.run(context.__aexit__(None, None, None))  # type: ignore[arg-type]
    finally:
        loop.stop()


def test_blocking_client_leaves_no_thread(server: str) -> None:
    threads = threading.active_count()
    with BlockingHttpClient(server) as http:
        assert http.request("DELETE", "/x").decode(Echo).path == "/x"
        with pytest.raises(RequestError):
            http.request("GET", "http://127.0.0.1:9/")
    assert threading.active_count() == threads
    with pytest.raises(BadOption):
        BlockingHttpClient("nothing")
    assert threading.active_count() == threads


def test_error_of_tls_says_what_tls_says(server: str) -> None:
    address = server.replace("http://", "https://")
    with BlockingHttpClient(address) as http, pytest.raises(RequestError, match="SSL"):
        http.request("GET", "/echo")


def test_module_imports_no_server() -> None:
    code = "import newsstand.http.client, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"starlette", "uvicorn", "httpx", "pyspark"} & set(printed.split())
