"""A client at a real broker whose responses are late, wrong or missing, and callers that cancel."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace

import aiohttp
import msgspec
import pytest
from support.broker.press import Press
from support.client.results import PASSWORD, QUICK, a_client, a_name, print_numbers, standing, take
from support.client.transport import Reply, Send, between

from newsstand.client import Client, RequestRejected, SyncClient, Tokens, UsageError


def run(work) -> None:  # type: ignore[no-untyped-def]
    asyncio.run(asyncio.wait_for(work, 60))


async def tokens_to_renew(broker: str) -> Tokens:
    """Return the tokens of a session that are about to expire."""
    async with a_client(broker) as client:
        assert client.tokens is not None
        return msgspec.structs.replace(client.tokens, expires_at=time.time())


class HeldBack:
    """The response to a renewal, which the client does not receive before `free`."""

    def __init__(self) -> None:
        self.given, self.free = asyncio.Event(), asyncio.Event()

    async def meddle(self, request: aiohttp.ClientRequest, send: Send) -> aiohttp.ClientResponse | Reply:
        response = await send(request)
        if request.url.path == "/refresh":
            self.given.set()
            await self.free.wait()
        return response


def test_session_survives_a_call_cancelled_during_renewal(broker: str) -> None:
    async def work() -> None:
        held = HeldBack()
        async with between(held.meddle) as http:
            client = Client(broker=broker, tokens=await tokens_to_renew(broker), http=http, pace=QUICK)
            asking = asyncio.create_task(client.channels())
            await held.given.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            held.free.set()
            assert await client.subscriptions() == []
            await client.close()

    run(work())


def test_tokens_received_when_client_closes_during_renewal(broker: str) -> None:
    async def work() -> None:
        held = HeldBack()
        kept: list[Tokens] = []
        async with between(held.meddle) as http:
            tokens = await tokens_to_renew(broker)
            client = Client(broker=broker, tokens=tokens, http=http, pace=QUICK, on_tokens=kept.append)
            asking = asyncio.create_task(client.channels())
            await held.given.wait()
            asking.cancel()
            asyncio.get_running_loop().call_later(0.2, held.free.set)
            await client.close()
        async with Client(broker=broker, tokens=kept[0], pace=QUICK) as client:
            assert await client.subscriptions() == []

    run(work())


def test_iteration_pauses_when_promised_results_are_missing(press: Press, broker: str) -> None:
    asked: list[float] = []
    ready = asyncio.Event()

    async def meddle(request: aiohttp.ClientRequest, send: Send) -> aiohttp.ClientResponse | Reply:
        if request.url.path.endswith("/results"):
            asked.append(time.monotonic())
            await asyncio.sleep(0)
            if not ready.is_set():
                return Reply(200, {"results": [], "head": 2, "next": 0})
        return await send(request)

    async def work() -> None:
        # Results that come with a signal would be read without a request.
        pace = replace(QUICK, inline_results=0)
        async with between(meddle) as http, a_client(broker, http=http, pace=pace) as client:
            subscription = await client.subscribe("of_kind", "promised")
            print_numbers(press, "promised", 1, 2)
            async with aclosing(client.results(subscription)) as results:
                reading = asyncio.create_task(take(results, 2))
                await asyncio.sleep(1.5)
                assert len(asked) <= 20
                while len(asked) < 2:  # pauses are random, and may be longer
                    await asyncio.sleep(0.05)
                ready.set()
                begun = time.monotonic()
                assert [one.position for one in await reading] == [1, 2]
                assert time.monotonic() - begun < 5  # long before it would look by itself

    run(work())


def test_iteration_retries_a_failed_renewal(press: Press, broker: str) -> None:
    failing = [500, 507, 500]

    async def meddle(request: aiohttp.ClientRequest, send: Send) -> aiohttp.ClientResponse | Reply:
        if request.url.path == "/refresh" and failing:
            return Reply(failing.pop(), {"error": "the disk is full"})
        return await send(request)

    async def work() -> None:
        tokens = await tokens_to_renew(broker)
        async with between(meddle) as http, Client(broker=broker, tokens=tokens, http=http, pace=QUICK) as client:
            subscription = await client.subscribe("of_kind", "failing")
            print_numbers(press, "failing", 1, 1)
            async with aclosing(client.results(subscription)) as results:
                assert len(await take(results, 1)) == 1

    run(work())
    assert not failing


def test_iteration_starts_again_after_a_failure(press: Press, broker: str) -> None:
    wrong: list[str] = []

    async def meddle(request: aiohttp.ClientRequest, send: Send) -> aiohttp.ClientResponse | Reply:
        if request.url.path == "/refresh" and wrong:
            return Reply(200, wrong[0])
        return await send(request)

    async def work() -> None:
        async with a_client(broker) as one:
            subscription = await one.subscribe("of_kind", "failed")
            tokens = msgspec.structs.replace(one.tokens, expires_at=time.time())
        print_numbers(press, "failed", 1, 1)
        async with between(meddle) as http:
            client = Client(broker=broker, tokens=tokens, http=http, pace=QUICK)
            wrong.append("<html>")
            with pytest.raises(RequestRejected, match="unexpected body"):
                await take(client.results(subscription), 1)
            await asyncio.sleep(0.3)  # until all of the client has failed
            wrong.clear()
            async with aclosing(client.results(subscription)) as results:
                assert len(await take(results, 1)) == 1
                print_numbers(press, "failed", 2, 2)
                assert len(await take(results, 1, patience=5)) == 1  # notified
            await client.close()

    run(work())


def test_close_takes_no_longer_with_many_subscriptions(press: Press, broker: str) -> None:
    async def meddle(request: aiohttp.ClientRequest, send: Send) -> aiohttp.ClientResponse | Reply:
        if request.url.path.endswith("/ack"):
            await asyncio.sleep(1)
            return Reply(503, {"error": "busy"})
        return await send(request)

    async def work() -> None:
        slowly = replace(QUICK, ack_within_s=60, flush_s=0.5)
        async with between(meddle) as http, a_client(broker, pace=slowly, http=http) as client:
            several = [await client.subscribe("of_kind", f"leaving-{number}") for number in range(5)]
            for number in range(5):
                print_numbers(press, f"leaving-{number}", 1, 2)
            results = client.results(*several)
            await take(results, 10)
            begun = time.monotonic()
            await results.aclose()
            assert time.monotonic() - begun < 2

    run(work())


def test_iteration_starts_after_a_break(press: Press, broker: str) -> None:
    async def work() -> None:
        async with a_client(broker) as client:
            subscription = await client.subscribe("of_kind", "loops")
            print_numbers(press, "loops", 1, 4)
            positions = []
            async for result in client.results(subscription):
                positions.append(result.position)
                if result.position == 2:
                    break
            async for result in client.results(subscription):  # 2 was not done with
                positions.append(result.position)
                if result.position == 4:
                    break
            assert positions == [1, 2, 2, 3, 4]
            print_numbers(press, "loops", 5, 5)
            assert [one.position for one in await take(client.results(subscription), 2)] == [4, 5]
            await asyncio.sleep(0.5)  # the older ones have ended by now, and left the newest alone
            assert (await standing(client, subscription)).position == 4

    run(work())


def test_older_iteration_raises_when_superseded(press: Press, broker: str) -> None:
    async def work() -> None:
        async with a_client(broker) as client:
            subscription = await client.subscribe("of_kind", "newer")
            waiting = asyncio.create_task(take(client.results(subscription), 1))
            await asyncio.sleep(0.2)
            async with aclosing(client.results(subscription)) as newer:
                print_numbers(press, "newer", 1, 1)
                assert len(await take(newer, 1)) == 1
                with pytest.raises(UsageError, match="newer"):
                    await waiting
                print_numbers(press, "newer", 2, 2)
                assert len(await take(newer, 1, patience=5)) == 1  # notified

    run(work())


def test_older_sync_iteration_raises_when_superseded(press: Press, broker: str) -> None:
    with SyncClient(broker=broker, name=a_name(), password=PASSWORD, register=True, pace=QUICK) as client:
        subscription = client.subscribe("of_kind", "newer-sync")
        print_numbers(press, "newer-sync", 1, 3)
        older = client.results(subscription)
        assert [next(older).position for _ in range(2)] == [1, 2]
        for result in client.results(subscription):
            assert result.position == 2
            break
        with pytest.raises(UsageError, match="newer"):
            next(older)
