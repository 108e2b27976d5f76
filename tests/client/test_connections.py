"""Connections that break, stall, are stale or encrypted, at servers made for these tests."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from support.client.results import PASSWORD, QUICK, a_client
from support.client.transport import Reply, answering

from newsstand.client import Client, RequestRejected, Subscription, Suspension, Tokens, Unreachable
from newsstand.client.http import HttpCalls, ServerUnavailable, _proxy_of, proxy_for

TOKENS = Tokens("access", "refresh", 86_400, "ana", time.time() + 86_400)
SUBSCRIPTION = {"id": "s1", "channel": "c", "values": {}, "stream": "t1", "position": 0, "head": 0}
IMPATIENT = replace(QUICK, answer_s=0.3, deadline_s=0.5)


def run(work) -> None:  # type: ignore[no-untyped-def]
    asyncio.run(asyncio.wait_for(work, 30))


def calls(answer_s: float = 0.3, slowest: int = 1 << 16) -> HttpCalls:
    return HttpCalls(None, None, replace(QUICK, answer_s=answer_s, slowest=slowest), random.Random(1))


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def talking(talk: Talk) -> AsyncIterator[str]:
    """Run a server of raw connections."""
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_client_created_before_its_event_loop_runs(broker: str) -> None:
    client = a_client(broker)

    async def work() -> None:
        async with client:
            assert await client.channels()

    run(work())


def test_http_calls_reopen_a_connection_that_the_server_closed() -> None:
    heard: list[bytes] = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        heard.append(await reader.read(1 << 16))  # the next request, which comes too late
        writer.close()

    async def work() -> None:
        asking = calls()
        async with talking(once) as url:
            assert (await asking.once("GET", url)).content == b"{}"
            assert (await asking.once("GET", url)).content == b"{}"
            assert len(heard) == 3
            with pytest.raises(ServerUnavailable):  # what changes something is not repeated unasked
                await asking.once("POST", url, body={})
            await asking.close()

    run(work())


@pytest.mark.parametrize("size", [10, 1 << 24])
def test_http_calls_give_up_a_server_that_stalls(size: int) -> None:
    async def stalling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()
        await asyncio.sleep(5)
        writer.close()

    async def work() -> None:
        asking = calls(slowest=1 << 30)
        async with talking(stalling) as url:
            begun = time.monotonic()
            with pytest.raises(ServerUnavailable, match="does not answer"):
                await asking.once("POST", url, content=bytes(size))
            assert time.monotonic() - begun < 4
            await asking.close()

    run(work())


def test_http_calls_follow_no_redirect() -> None:
    async def work() -> None:
        async with answering(Reply(307, {"error": "moved"}, {"Location": "http://b/login"})) as (
            http,
            asked,
        ):
            with pytest.raises(RequestRejected) as rejected:
                await Client(broker="http://a", name="ana", password=PASSWORD, http=http).__aenter__()
            assert rejected.value.status == 307
            assert asked == ["POST a/login"]

    run(work())


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    _proxy_of.cache_clear()
    yield monkeypatch
    _proxy_of.cache_clear()


def test_proxies_read_from_the_environment(environment: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def passing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()

    async def work() -> None:
        asking = calls()
        async with talking(passing) as url:
            environment.setenv("HTTP_PROXY", url.removeprefix("http://"))
            environment.setenv("NO_PROXY", "near.test")
            assert (await asking.once("GET", "http://far.test/broker", params={"node": "a b"})).status == 200
            assert proxy_for("http://near.test/broker") is None
            assert proxy_for("https://far.test/broker") is None
            await asking.close()

    run(work())
    assert asked == ["GET http://far.test/broker?node=a+b HTTP/1.1"]


def test_list_read_to_its_last_page() -> None:
    async def listed(request: web.Request) -> web.Response:
        after = request.query.get("after", "")
        name, following = {"": ("a", "a"), "a": ("b", "b"), "b": ("c", None)}[after]
        if request.path == "/channels":
            channel = {"name": name, "parameters": {}, "period_s": None}
            return web.json_response({"channels": [channel], "next": following})
        return web.json_response({"subscriptions": [{**SUBSCRIPTION, "id": name}], "next": following})

    async def work() -> None:
        app = web.Application()
        app.router.add_get("/{path:channels|subscriptions}", listed)
        async with TestServer(app) as server:
            url = str(server.make_url("")).rstrip("/")
            async with Client(broker=url, tokens=TOKENS, pace=QUICK) as client:
                assert [one.name for one in await client.channels()] == ["a", "b", "c"]
                assert [(one.id, one.broker) for one in await client.subscriptions()] == [
                    ("a", url),
                    ("b", url),
                    ("c", url),
                ]

    run(work())


class Stage:
    """A coordinator and a broker in one, with scripted WebSockets."""

    def __init__(self, *endings: Callable[[web.WebSocketResponse], Awaitable[object]]) -> None:
        """`endings` script one WebSocket each; the next one stays open."""
        self._endings = list(endings)
        self.asked: list[str] = []
        self.cookies: list[str] = []
        self.app = web.Application()
        self.app.router.add_get("/{path:.*}", self.answer)
        self.app.router.add_post("/{path:.*}", self.answer)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        self.cookies += request.cookies
        here = str(request.url.origin())
        match request.path:
            case "/broker":
                response = web.json_response({"broker": {"name": "a", "url": here}})
            case "/notifications":
                return await self._notify(request)
            case "/refresh":
                response = web.json_response(msgspec.structs.asdict(TOKENS))
            case "/subscriptions":
                response = web.json_response(SUBSCRIPTION, status=201)
            case "/channels":
                response = web.json_response({"channels": []})
            case _:
                response = web.json_response({"results": [], "head": 0, "next": None})
        response.set_cookie("remember", "me")
        return response

    async def _notify(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        await socket.send_json({"ready": True})
        if self._endings:
            await self._endings.pop(0)(socket)
        else:
            await socket.receive()
        return socket


async def close(socket: web.WebSocketResponse, code: int) -> None:
    await socket.close(code=code)


async def cut(socket: web.WebSocketResponse) -> None:
    assert socket._req is not None
    assert socket._req.transport is not None
    socket._req.transport.abort()


async def babble(socket: web.WebSocketResponse) -> None:
    await socket.send_str("x" * (2 << 20))
    await socket.receive()


async def pretend(socket: web.WebSocketResponse) -> None:
    """Read, and leave pings unanswered."""
    while (await socket.receive()).type is aiohttp.WSMsgType.PING:
        pass


@pytest.mark.parametrize(
    ("ending", "away"),
    [
        (lambda socket: close(socket, 1012), ["/broker"]),
        (lambda socket: close(socket, 4003), ["/broker"]),
        (lambda socket: close(socket, 4001), ["/broker", "/refresh"]),
        (lambda socket: close(socket, 1011), []),
        (cut, []),
        (babble, []),
        (pretend, []),
    ],
    ids=["1012", "4003", "4001", "1011", "cut", "babble", "pretend"],
)
def test_websocket_reopened_where_its_close_code_says(
    ending: Callable[[web.WebSocketResponse], Awaitable[object]], away: list[str]
) -> None:
    pace = replace(QUICK, heartbeat_s=0.4)
    stage = Stage(ending)

    async def work() -> None:
        async with TestServer(stage.app) as server:
            url = str(server.make_url("")).rstrip("/")
            async with Client(url, tokens=TOKENS, pace=pace, rng=random.Random(1)) as client:
                subscription = await client.subscribe("c")
                stage.asked.clear()
                async with aclosing(client.results(subscription)) as results:
                    reading = asyncio.create_task(anext(results))
                    while stage.asked.count("/notifications") < 2 or not client.connected:
                        await asyncio.sleep(0.02)
                    reading.cancel()
                    await asyncio.wait([reading])

    run(work())
    between = stage.asked[stage.asked.index("/notifications") :]
    assert [one for one in between if one in ("/broker", "/refresh")] == away
    assert not stage.cookies


def test_tls_connections_verify_certificates() -> None:
    file = Path(__file__).with_name("loopback.pem")
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(file)
    known = ssl.create_default_context(cafile=file)
    stage = Stage()

    async def work() -> None:
        server = TestServer(stage.app)
        await server.start_server(ssl=served)
        try:
            url = str(server.make_url("")).rstrip("/")
            async with Client(url, tokens=TOKENS, tls=known, pace=QUICK) as client:
                subscription = await client.subscribe("c")
                async with aclosing(client.results(subscription)) as results:
                    reading = asyncio.create_task(anext(results))
                    while not client.connected:
                        await asyncio.sleep(0.02)
                    reading.cancel()
                    await asyncio.wait([reading])
            with pytest.raises(Unreachable, match="Certificate"):
                await Client(url, tokens=TOKENS, pace=IMPATIENT).__aenter__()
        finally:
            await server.close()

    run(work())


def test_suspension_of_iterated_subscription_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def wait(socket: web.WebSocketResponse) -> None:
        await socket.receive()

    stage = Stage(wait)

    async def work() -> None:
        async with TestServer(stage.app) as server:
            url = str(server.make_url("")).rstrip("/")
            async with Client(url, tokens=TOKENS, pace=QUICK) as client:
                made = await client.subscribe("c")
                suspended = msgspec.structs.replace(made, suspended=Suspension("no number", 70))
                async with aclosing(client.results(suspended)) as results:
                    reading = asyncio.create_task(anext(results))
                    while "subscription s1 is suspended: no number" not in caplog.text:
                        await asyncio.sleep(0.02)
                    reading.cancel()
                    await asyncio.wait([reading])

    run(work())


def test_suspension_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def suspend(socket: web.WebSocketResponse) -> None:
        response = {"stream": "t1", "position": 0, "suspended": {"error": "no number", "since_ms": 70}}
        await socket.send_json(response)
        await socket.send_json({**response, "suspended": None})
        await socket.receive()

    stage = Stage(suspend)

    async def work() -> None:
        async with TestServer(stage.app) as server:
            url = str(server.make_url("")).rstrip("/")
            async with Client(url, tokens=TOKENS, pace=QUICK) as client:
                subscription = await client.subscribe("c")
                assert subscription.suspended is None
                async with aclosing(client.results(subscription)) as results:
                    reading = asyncio.create_task(anext(results))
                    while "subscription s1 is suspended: no number" not in caplog.text:
                        await asyncio.sleep(0.02)
                    reading.cancel()
                    await asyncio.wait([reading])

    run(work())
    assert caplog.text.count("is suspended") == 1
    response = {**SUBSCRIPTION, "suspended": {"error": "no number", "since_ms": 70}}
    assert msgspec.convert(response, Subscription).suspended == Suspension("no number", 70)
