"""Results that come with notifications: in order, each once, and no read for them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given, settings
from hypothesis import strategies as st
from support.broker.press import Press
from support.client.results import (
    PASSWORD,
    QUICK,
    a_client,
    a_name,
    print_numbers,
    take,
    until_acknowledged,
)
from support.profiles import examples

from newsstand.client import Client, Pace, Result, Subscription, Tokens
from newsstand.client.http import HttpCalls
from newsstand.client.iteration import ResultBatch, ResultIteration
from newsstand.client.models import ResourceNotFound
from newsstand.client.notifications import Cursor, Notifications
from newsstand.client.session import BrokerLocator, Session

TOKENS = Tokens("access", "refresh", 86_400, "ana", time.time() + 86_400)
SUBSCRIPTION = {"id": "s1", "channel": "c", "values": {}, "stream": "t1", "position": 0, "head": 0}


def run(work) -> None:  # type: ignore[no-untyped-def]
    asyncio.run(asyncio.wait_for(work, 60))


def a_result(position: int) -> Result:
    return Result(position, 0, {"id": f"r{position}"}, None, None, "cache")


def a_cursor(seen: int = 0) -> Cursor:
    return Cursor(Subscription("s", "c", {}, "t", 0, 0), seen, asyncio.Event())


def add(cursor: Cursor, *positions: int, most: int = 100) -> None:
    cursor.add_inline([a_result(one) for one in positions], most)


def taken(cursor: Cursor) -> list[int]:
    return [one.position for one in cursor.take_inline()]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([[4, 5], [6]], [4, 5, 6]),
        ([[4, 5], [4, 5], [5, 6]], [4, 5, 6]),
        ([[2, 3, 4]], [4]),
        ([[1, 2]], []),
        ([[5, 6]], []),
        ([[4], [6]], [4]),
        ([[4, 6]], [4]),
        ([[6], [4, 5]], []),
        ([[4, 5, 6, 7], [8]], [4, 5, 6]),
    ],
    ids=["two", "again", "known", "old", "gap", "gap after", "gap within", "order", "too many"],
)
def test_cursor_takes_results_that_continue_without_a_gap(frames: list[list[int]], expected: list[int]) -> None:
    cursor = a_cursor(seen=3)
    for frame in frames:
        add(cursor, *frame, most=3)
    assert cursor.continues == bool(expected)
    assert taken(cursor) == expected


def test_results_beyond_a_read_are_taken_after_it() -> None:
    cursor = a_cursor()
    add(cursor, 5, 6)
    assert taken(cursor) == []
    cursor.seen = 4  # as a read has returned
    add(cursor, 7)
    assert taken(cursor) == [5, 6, 7]
    cursor.seen = 7
    add(cursor, 9)
    cursor.seen = 20
    add(cursor, 21)
    assert taken(cursor) == [21]


def test_subscription_dropped_after_inline_results_is_not_made_again() -> None:
    """A broker that has sent results had the subscription, so somebody has dropped it since."""

    async def dropped(key: str, after: int) -> ResultBatch:
        raise ResourceNotFound(f"you have no subscription '{key}'", 404)

    async def again(subscription: Subscription, after: int) -> Subscription:
        raise AssertionError("subscribed again")

    async def listed() -> list[Subscription]:
        return []

    async def work() -> None:
        calls = HttpCalls(None, None, Pace(), random.Random(1))
        locator = BrokerLocator(calls, None, "http://127.0.0.1:9", None, None)
        session = Session(calls, locator, "ana", None, TOKENS, register=False, allow=None, on_tokens=None)
        cursor = a_cursor()
        notifications = Notifications(session, listed)
        iteration = ResultIteration(
            [cursor], cursor.wake, notifications, dropped, again, calls, acknowledge=False, on_removed="raise"
        )
        cursor.update(Subscription("s", "c", {}, "t", 0, 1, broker="http://127.0.0.1:9"))
        assert cursor.moved
        add(cursor, 1)
        results = iteration.results()
        assert (await anext(results)).position == 1
        cursor.read_now()
        with pytest.raises(ResourceNotFound):
            await anext(results)

    run(work())


class CountedReads:
    """Reads of results and the queries of WebSockets, as the client sends them."""

    def __init__(self) -> None:
        self.reads = 0
        self.queries: list[str] = []

    async def __call__(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if request.url.path.endswith("/notifications"):
            self.queries.append(urlsplit(str(request.url)).query)
        response = await send(request)
        self.reads += request.url.path.endswith("/results")
        return response


async def connected(client: Client, counted: CountedReads) -> None:
    """Wait until the first read has found nothing and notifications arrive."""
    async with asyncio.timeout(20):
        while not (client.connected and counted.reads):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("channel", ["of_kind", "pushed"])
def test_results_arrive_without_a_read(press: Press, broker: str, channel: str) -> None:
    async def work() -> None:
        counted = CountedReads()
        async with aiohttp.ClientSession(middlewares=[counted]) as http, a_client(broker, http=http) as client:
            subscription = await client.subscribe(channel, f"inline {channel}")
            async with aclosing(client.results(subscription)) as results:
                first = asyncio.create_task(anext(results))
                await connected(client, counted)
                before = counted.reads
                for number in range(1, 6):
                    press.print([{"channel": channel, "values": [f"inline {channel}"], "payload": {"n": number}}])
                found = [await first, *await take(results, 4)]
                assert [(one.position, one.payload, one.origin) for one in found] == [
                    (number, {"n": number}, "cache") for number in range(1, 6)
                ]
                assert {(one.read_ms, one.subscription) for one in found} == {(0.0, subscription.id)}
                assert counted.reads == before
                await until_acknowledged(client, subscription, 4)
            await until_acknowledged(client, subscription, 4)
        assert counted.queries == ["results=inline"]

    run(work())


def test_client_that_wants_no_results_reads_them(press: Press, broker: str) -> None:
    async def work() -> None:
        counted = CountedReads()
        pace = replace(QUICK, inline_results=0)
        async with (
            aiohttp.ClientSession(middlewares=[counted]) as http,
            a_client(broker, http=http, pace=pace) as client,
        ):
            subscription = await client.subscribe("of_kind", "read")
            async with aclosing(client.results(subscription)) as results:
                first = asyncio.create_task(anext(results))
                await connected(client, counted)
                before = counted.reads
                print_numbers(press, "read", 1, 1)
                assert (await first).position == 1
                assert counted.reads > before
        assert counted.queries == [""]

    run(work())


def test_large_results_are_read(press: Press, broker: str) -> None:
    async def work() -> None:
        counted = CountedReads()
        async with aiohttp.ClientSession(middlewares=[counted]) as http, a_client(broker, http=http) as client:
            subscription = await client.subscribe("of_kind", "large")
            async with aclosing(client.results(subscription)) as results:
                first = asyncio.create_task(anext(results))
                await connected(client, counted)
                before = counted.reads
                for size in (10, 20_000, 100_000, 10):
                    press.print([{"channel": "of_kind", "values": ["large"], "payload": {"id": "x" * size}}])
                found = [await first, *await take(results, 3)]
                assert [len(one.payload["id"]) for one in found] == [10, 20_000, 100_000, 10]
                assert counted.reads > before

    run(work())


def test_sessions_of_one_subscriber_get_the_same_results(press: Press, broker: str) -> None:
    async def work() -> None:
        name = a_name()
        async with a_client(broker, name) as one, a_client(broker, name) as other:
            subscription = await one.subscribe("of_kind", "sessions inline")
            reading = [asyncio.create_task(take(each.results(subscription), 5)) for each in (one, other)]
            async with asyncio.timeout(20):
                while not (one.connected and other.connected):
                    await asyncio.sleep(0.01)
            print_numbers(press, "sessions inline", 1, 5)
            for found in await asyncio.gather(*reading):
                assert [each.position for each in found] == [1, 2, 3, 4, 5]

    run(work())


def test_limited_session_gets_no_results_of_other_values(press: Press, broker: str) -> None:
    async def work() -> None:
        name = a_name()
        frames: list[str] = []
        async with a_client(broker, name) as whole:
            for kind in ("open", "closed"):
                await whole.subscribe("of_kind", kind)
            allow = [{"channel": "of_kind", "values": {"kind": "open"}}]
            async with Client(broker=broker, name=name, password=PASSWORD, allow=allow, pace=QUICK) as limited:
                assert limited.tokens is not None
                headers = {"Authorization": f"Bearer {limited.tokens.access}"}
                async with aiohttp.ClientSession() as http:
                    url = f"{broker}/notifications?results=inline"
                    async with http.ws_connect(url, headers=headers) as socket:
                        assert await socket.receive_str() == '{"ready":true}'
                        print_numbers(press, "closed", 1, 1)
                        print_numbers(press, "open", 2, 2)
                        frames.append(await socket.receive_str())
        assert '"r2"' in frames[0]
        assert '"r1"' not in frames[0]

    run(work())


class CapriciousBroker:
    """A broker that sends results as a schedule says: inline, late, again, with gaps, or not at all."""

    def __init__(self, schedule: Sequence[tuple[str, int]]) -> None:
        self._schedule = list(schedule)
        self.head = 0
        self.acked = 0
        self.app = web.Application()
        self.app.router.add_get("/notifications", self._notify)
        self.app.router.add_get("/subscriptions/s1/results", self._read)
        self.app.router.add_post("/subscriptions/s1/ack", self._acknowledge)
        self.app.router.add_get("/subscriptions", self._list)
        self.app.router.add_post("/subscriptions", self._subscribe)

    def _subscription(self) -> dict[str, object]:
        return {**SUBSCRIPTION, "position": self.acked, "head": self.head}

    async def _subscribe(self, _: web.Request) -> web.Response:
        return web.json_response(self._subscription(), status=201)

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response({"subscriptions": [self._subscription()], "next": None})

    async def _acknowledge(self, request: web.Request) -> web.Response:
        self.acked = max(self.acked, (await request.json())["position"])
        return web.json_response({"position": self.acked})

    async def _read(self, request: web.Request) -> web.Response:
        after, head = int(request.query["after"]), self.head
        last = min(head, after + 3)
        await asyncio.sleep(0.001)
        following = last if last < head else None
        return web.json_response({"results": _json(after + 1, last), "head": head, "next": following})

    async def _notify(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        assert request.query_string == "results=inline"
        if self.head:
            await socket.send_json({"stream": "t1", "position": self.head})
        await socket.send_json({"ready": True})
        reading = asyncio.create_task(self._answer(socket))
        while self._schedule:
            what, count = self._schedule.pop(0)
            if what == "close":
                await socket.close(code=1011)
                break
            await self._act(socket, what, count)
        await reading
        return socket

    async def _answer(self, socket: web.WebSocketResponse) -> None:
        async for message in socket:
            positions = message.json()["ack"]
            assert positions["s1"] <= self.head
            self.acked = max(self.acked, positions["s1"])
            await socket.send_json({"acked": positions})

    async def _act(self, socket: web.WebSocketResponse, what: str, count: int) -> None:
        first = self.head + 1
        if what == "wait":
            await asyncio.sleep(0.002 * count)
            return
        if what == "repeat":
            first = max(1, self.head - count)
        elif what == "lost":  # the connection was paused: an earlier frame was replaced
            self.head += count
            first = self.head + 1
            self.head += 1
        else:
            self.head += count
        frame: dict[str, object] = {"stream": "t1", "position": self.head}
        if what != "position":
            frame["results"] = _json(first, self.head)
        await socket.send_json(frame)


def _json(first: int, last: int) -> list[dict[str, object]]:
    more = {"at_ms": 0, "publication": None, "page": None, "origin": "cache", "latency_ms": 0}
    return [{"position": one, "payload": {"id": f"r{one}"}, **more} for one in range(first, last + 1)]


SCHEDULES = st.lists(
    st.tuples(
        st.sampled_from(["inline", "inline", "position", "repeat", "lost", "wait", "close"]), st.integers(1, 4)
    ),
    max_size=16,
)


@settings(max_examples=examples(60), deadline=None)
@given(schedule=SCHEDULES, most=st.sampled_from([1, 3, 100]), slow=st.booleans())
def test_iteration_yields_each_position_once_in_order(
    schedule: list[tuple[str, int]], most: int, slow: bool
) -> None:
    """Rule: however results come, an iteration yields 1, 2, 3 …, and acknowledges what it has yielded."""
    broker = CapriciousBroker([*schedule, ("position", 1)])

    async def work() -> None:
        pace = Pace(first_s=0.005, longest_s=0.01, ack_within_s=0.002, inline_results=most)
        async with TestServer(broker.app) as server:
            url = str(server.make_url("")).rstrip("/")
            async with Client(broker=url, tokens=TOKENS, pace=pace, rng=random.Random(1)) as client:
                subscription = await client.subscribe("c")
                positions: list[int] = []
                async with aclosing(client.results(subscription)) as results:
                    while broker._schedule or len(positions) < broker.head:
                        result = await asyncio.wait_for(anext(results), 10)
                        assert result.payload == {"id": f"r{result.position}"}
                        positions.append(result.position)
                        if slow:
                            await asyncio.sleep(0.001)
                assert positions == list(range(1, broker.head + 1))
            assert broker.acked == broker.head - 1

    run(work())
