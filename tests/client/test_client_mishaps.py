"""A client at a real broker whose answers are late, wrong or missing, and callers who leave in the middle."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace

import aiohttp
import msgspec
import pytest
from meddling import Send, Told, between
from press import Press
from printing import PASSWORD, QUICK, a_client, a_name, print_numbers, standing, take

from newsstand.client import Client, Misused, Refused, SyncClient, Tokens


def run(work) -> None:  # type: ignore[no-untyped-def]
    asyncio.run(asyncio.wait_for(work, 60))


async def tokens_to_renew(broker: str) -> Tokens:
    """Those of a session, without a password, that are about to expire."""
    async with a_client(broker) as client:
        assert client.tokens is not None
        return msgspec.structs.replace(client.tokens, expires_at=time.time())


class HeldBack:
    """The answer to a renewal, which the broker has given and the client does not get before `free`."""

    def __init__(self) -> None:
        self.given, self.free = asyncio.Event(), asyncio.Event()

    async def meddle(self, request: aiohttp.ClientRequest, send: Send) -> aiohttp.ClientResponse | Told:
        response = await send(request)
        if request.url.path == "/refresh":
            self.given.set()
            await self.free.wait()
        return response


def test_who_cancels_a_call_during_a_renewal_keeps_the_session(broker: str) -> None:
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


def test_who_closes_a_client_during_a_renewal_gets_the_new_tokens(broker: str) -> None:
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


def test_a_broker_that_promises_more_than_it_gives_is_not_asked_without_a_pause(press: Press, broker: str) -> None:
    asked: list[float] = []
    ready = asyncio.Event()

    async def meddle(request: aiohttp.ClientRequest, send: Send) -> aiohttp.ClientResponse | Told:
        if request.url.path.endswith("/results"):
            asked.append(time.monotonic())
            await asyncio.sleep(0)
            if not ready.is_set():
                return Told(200, {"results": [], "head": 2, "next": 0})
        return await send(request)

    async def work() -> None:
        async with between(meddle) as http, a_client(broker, http=http) as client:
            subscription = await client.subscribe("of_kind", "promised")
            print_numbers(press, "promised", 1, 2)
            async with aclosing(client.results(subscription)) as results:
                reading = asyncio.create_task(take(results, 2))
                await asyncio.sleep(1.5)
                assert 2 <= len(asked) <= 20
                ready.set()
                begun = time.monotonic()
                assert [one.position for one in await reading] == [1, 2]
                assert time.monotonic() - begun < 5  # long before it would look by itself

    run(work())


def test_a_broker_that_fails_to_renew_is_asked_again_by_who_iterates(press: Press, broker: str) -> None:
    failing = [500, 507, 500]

    async def meddle(request: aiohttp.ClientRequest, send: Send) -> aiohttp.ClientResponse | Told:
        if request.url.path == "/refresh" and failing:
            return Told(failing.pop(), {"error": "the disk is full"})
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


def test_after_a_failure_one_can_iterate_again(press: Press, broker: str) -> None:
    wrong: list[str] = []

    async def meddle(request: aiohttp.ClientRequest, send: Send) -> aiohttp.ClientResponse | Told:
        if request.url.path == "/refresh" and wrong:
            return Told(200, wrong[0])
        return await send(request)

    async def work() -> None:
        async with a_client(broker) as one:
            subscription = await one.subscribe("of_kind", "failed")
            tokens = msgspec.structs.replace(one.tokens, expires_at=time.time())
        print_numbers(press, "failed", 1, 1)
        async with between(meddle) as http:
            client = Client(broker=broker, tokens=tokens, http=http, pace=QUICK)
            wrong.append("<html>")
            with pytest.raises(Refused, match="not understood"):
                await take(client.results(subscription), 1)
            await asyncio.sleep(0.3)  # until all of the client has failed
            wrong.clear()
            async with aclosing(client.results(subscription)) as results:
                assert len(await take(results, 1)) == 1
                print_numbers(press, "failed", 2, 2)
                assert len(await take(results, 1, patience=5)) == 1  # told by a signal
            await client.close()

    run(work())


def test_leaving_takes_no_longer_with_many_subscriptions(
    press: Press, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("newsstand.client.client.FLUSH_S", 0.5)

    async def meddle(request: aiohttp.ClientRequest, send: Send) -> aiohttp.ClientResponse | Told:
        if request.url.path.endswith("/ack"):
            await asyncio.sleep(1)
            return Told(503, {"error": "busy"})
        return await send(request)

    async def work() -> None:
        slowly = replace(QUICK, ack_within_s=60)
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


def test_one_can_break_out_of_a_loop_and_begin_another_at_once(press: Press, broker: str) -> None:
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


def test_a_newer_iteration_takes_over_and_the_older_one_is_told(press: Press, broker: str) -> None:
    async def work() -> None:
        async with a_client(broker) as client:
            subscription = await client.subscribe("of_kind", "newer")
            waiting = asyncio.create_task(take(client.results(subscription), 1))
            await asyncio.sleep(0.2)
            async with aclosing(client.results(subscription)) as newer:
                print_numbers(press, "newer", 1, 1)
                assert len(await take(newer, 1)) == 1
                with pytest.raises(Misused, match="newer"):
                    await waiting
                print_numbers(press, "newer", 2, 2)
                assert len(await take(newer, 1, patience=5)) == 1  # told by a signal

    run(work())


def test_a_newer_iteration_takes_over_without_asyncio(press: Press, broker: str) -> None:
    with SyncClient(broker=broker, name=a_name(), password=PASSWORD, register=True, pace=QUICK) as client:
        subscription = client.subscribe("of_kind", "newer-sync")
        print_numbers(press, "newer-sync", 1, 3)
        older = client.results(subscription)
        assert [next(older).position for _ in range(2)] == [1, 2]
        for result in client.results(subscription):
            assert result.position == 2
            break
        with pytest.raises(Misused, match="newer"):
            next(older)
