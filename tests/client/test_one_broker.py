"""A client at one real broker."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace

import msgspec
import pytest
from support.broker.press import Press
from support.client.results import (
    PASSWORD,
    QUICK,
    a_client,
    a_name,
    print_numbers,
    standing,
    take,
    until_acknowledged,
)

from newsstand.client import (
    Client,
    RequestRejected,
    ResourceNotFound,
    ResultsRemoved,
    SessionEnded,
    Tokens,
    UsageError,
    WrongPassword,
)
from newsstand.model import Retention


def run(work) -> None:  # type: ignore[no-untyped-def]
    asyncio.run(asyncio.wait_for(work, 60))


def test_results_ordered_and_acknowledged_by_the_next_request(press: Press, broker: str) -> None:
    async def work() -> None:
        async with a_client(broker) as client:
            subscription = await client.subscribe("of_kind", kind="everyday")
            assert subscription.values == {"kind": "everyday"}
            print_numbers(press, "everyday", 1, 3)
            async with aclosing(client.results(subscription)) as results:
                taken = await take(results, 3)
                assert [(one.position, one.payload["id"]) for one in taken] == [(1, "r1"), (2, "r2"), (3, "r3")]
                await until_acknowledged(client, subscription, 2)
                coming = asyncio.create_task(anext(results))
                await until_acknowledged(client, subscription, 3)
                begun = time.monotonic()
                print_numbers(press, "everyday", 4, 4)
                assert (await coming).position == 4
                assert time.monotonic() - begun < 5

    run(work())


def test_last_acknowledgements_sent_on_close(press: Press, broker: str) -> None:
    async def work() -> None:
        name = a_name()
        slowly = replace(QUICK, ack_within_s=60)
        async with a_client(broker, name, slowly) as client:
            subscription = await client.subscribe("of_kind", "leaving")
            print_numbers(press, "leaving", 1, 5)
            async with aclosing(client.results(subscription)) as results:
                await take(results, 3)
                assert (await standing(client, subscription)).position == 0
            assert (await standing(client, subscription)).position == 2
            results = client.results(subscription)
            assert [one.position for one in await take(results, 3)] == [3, 4, 5]
        async with a_client(broker, name) as client:
            (subscription,) = await client.subscriptions()
            assert subscription.position == 4
            assert (await take(client.results(subscription), 1))[0].position == 5

    run(work())


def test_results_of_several_subscriptions_read_page_by_page(press: Press, broker: str) -> None:
    async def work() -> None:
        async with a_client(broker, pace=replace(QUICK, limit=7, acks=10)) as client:
            several = [await client.subscribe("of_kind", f"several-{number}") for number in range(3)]
            for number in range(3):
                print_numbers(press, f"several-{number}", 1, 25)
            positions: dict[str, list[int]] = {one.id: [] for one in several}
            async with aclosing(client.results(*several)) as results:
                for one in await take(results, 75):
                    positions[one.subscription].append(one.position)
            assert all(some == list(range(1, 26)) for some in positions.values())
            assert sum(one.head - one.position for one in await client.subscriptions()) == 1

    run(work())


def test_results_acknowledged_explicitly(press: Press, broker: str) -> None:
    async def work() -> None:
        async with a_client(broker) as client:
            subscription = await client.subscribe("of_kind", "explicit")
            print_numbers(press, "explicit", 1, 4)
            async with aclosing(client.results(subscription, acknowledge=False)) as results:
                taken = await take(results, 4)
                await asyncio.sleep(0.1)
                assert (await standing(client, subscription)).position == 0
                await client.acknowledge(taken[1])
                assert (await standing(client, subscription)).position == 2
            again = client.results(subscription)
            assert [one.position for one in await take(again, 2)] == [3, 4]

    run(work())


def test_removed_results_raised_or_skipped(press: Press, broker: str) -> None:
    async def work() -> None:
        async with a_client(broker) as client:
            subscription = await client.subscribe("near", kind="gone", lat=1.0)
            for number in range(5):
                press.print([{"channel": "near", "values": ["gone", 1.0], "payload": {"id": str(number)}}])
            async with aclosing(client.results(subscription)) as results:
                await take(results, 5)
            press.stores.cleaner.apply_retention("near", Retention(count=2), int(time.time() * 1000))
            back = msgspec.structs.replace(subscription, position=0)
            client._done.clear()
            with pytest.raises(ResultsRemoved, match="retention") as gone:
                await take(client.results(back), 1)
            assert gone.value.earliest == 4
            taken = await take(client.results(back, on_removed="skip"), 2)
            assert [(one.position, one.missed) for one in taken] == [(4, 3), (5, 0)]

    run(work())


def test_page_fetched_by_id_and_by_name(press: Press, broker: str) -> None:
    async def work() -> None:
        page_id = press.keep_page(b"a page of news")
        async with a_client(broker) as client:
            subscription = await client.subscribe("of_kind", "paged")
            item = {"channel": "of_kind", "values": ["paged"], "payload": {"id": "p"}, "page": page_id}
            press.print([item])
            (result,) = await take(client.results(subscription), 1)
            assert result.page is not None
            page = await client.page(result.page.id)
            assert page.content == b"a page of news"
            assert page.type.startswith("text/plain")
            assert await client.page(page.id, etag=page.etag) is None
            assert await client.page(page.id, etag='"another"') == page
            with pytest.raises(ResourceNotFound):
                await client.page("0" * 32)

    run(work())


def test_stored_tokens_renewed_before_they_expire(broker: str) -> None:
    async def work() -> None:
        kept: list[Tokens] = []
        async with a_client(broker, on_tokens=kept.append) as client:
            first = client.tokens
            assert kept == [first]
            assert first is not None
        async with Client(broker=broker, tokens=first, on_tokens=kept.append) as client:
            assert await client.subscriptions() == []
            assert client.tokens == first
        nearly_over = msgspec.structs.replace(first, expires_at=time.time() + 0.05 * first.expires_in)
        async with Client(broker=broker, tokens=nearly_over, on_tokens=kept.append) as client:
            assert await client.subscriptions() == []
            assert client.tokens == kept[-1] != first
        assert len(kept) == 2

    run(work())


def test_password_changed_and_account_deleted(broker: str) -> None:
    async def work() -> None:
        name, other = a_name(), "quite another password"
        async with Client(broker=broker, name=name, password=PASSWORD, register=True, pace=QUICK) as client:
            await client.change_password(PASSWORD, other)
            assert await client.subscriptions() == []
        with pytest.raises(WrongPassword):
            async with Client(broker=broker, name=name, password=PASSWORD, pace=QUICK):
                pass
        async with Client(broker=broker, name=name, password=other, pace=QUICK) as client:
            await client.delete_account()
        with pytest.raises(WrongPassword):
            async with Client(broker=broker, name=name, password=other, pace=QUICK):
                pass

    run(work())


def test_ended_session_restarted_with_a_password(press: Press, broker: str) -> None:
    async def work() -> None:
        name = a_name()
        async with a_client(broker, name) as client:
            subscription = await client.subscribe("of_kind", "sessions")
            results = client.results(subscription)
            print_numbers(press, "sessions", 1, 1)
            await take(results, 1)
            tokens = client.tokens
            await client.logout()  # closes the WebSocket, too
            print_numbers(press, "sessions", 2, 2)
            assert [one.position for one in await take(results, 1)] == [2]
            assert client.tokens != tokens
        async with Client(broker=broker, name=name, tokens=tokens, password=PASSWORD, pace=QUICK) as client:
            assert len(await client.subscriptions()) == 1
        client = Client(broker=broker, tokens=tokens, pace=QUICK)
        with pytest.raises(SessionEnded, match="session"):
            await client.subscriptions()
        await client.close()

    run(work())


def test_iteration_ends_when_its_session_cannot_restart(press: Press, broker: str) -> None:
    async def work() -> None:
        async with a_client(broker) as one:
            subscription = await one.subscribe("of_kind", "ended")
            async with Client(broker=broker, tokens=one.tokens, pace=QUICK) as other:
                reading = asyncio.create_task(take(other.results(subscription), 1))
                await asyncio.sleep(0.2)
                await other.logout()
                with pytest.raises(SessionEnded):
                    await reading

    run(work())


def test_iterations_end_when_the_client_closes(broker: str) -> None:
    async def work() -> None:
        async with a_client(broker) as client:
            subscription = await client.subscribe("of_kind", "closing")

            async def read() -> int:
                return len([one async for one in client.results(subscription)])

            reading = asyncio.create_task(read())
            await asyncio.sleep(0.2)
        assert await reading == 0
        with pytest.raises(UsageError, match="closed"):
            await client.channels()

    run(work())


def test_errors_are_one_line(broker: str) -> None:
    async def work() -> None:
        name = a_name()
        async with a_client(broker, name) as client:
            assert {one.name: one.parameters for one in await client.channels()}["of_kind"] == {"kind": "string"}
            for error, match, asked in (
                (ResourceNotFound, "no channel 'floods'", client.subscribe("floods")),
                (RequestRejected, "parameter 'kind' is missing", client.subscribe("of_kind")),
                (UsageError, "by name", client.subscribe("of_kind", "fire", kind="fire")),
                (UsageError, "at least one subscription", anext(client.results())),
            ):
                with pytest.raises(error, match=match) as raised:
                    await asked
                assert "\n" not in str(raised.value)
            subscription = await client.subscribe("of_kind", "dropped")
            await client.unsubscribe(subscription)
            await client.unsubscribe(subscription)
            with pytest.raises(ResourceNotFound):
                await take(client.results(subscription), 1)
        with pytest.raises(WrongPassword):
            await Client(broker=broker, name=name, password="not the password").__aenter__()
        with pytest.raises(UsageError, match="address"):
            Client(name="ana", password=PASSWORD)
        with pytest.raises(UsageError, match="password"):
            Client(broker=broker, name="ana")

    run(work())


def test_acknowledgements_shared_by_clients_of_one_subscriber(press: Press, broker: str) -> None:
    async def work() -> None:
        name = a_name()
        async with a_client(broker, name) as one, a_client(broker, name) as other:
            subscription = await one.subscribe("of_kind", "shared", since="earliest")
            assert await other.subscribe("of_kind", "shared") == subscription
            print_numbers(press, "shared", 1, 3)
            assert [r.position for r in await take(one.results(subscription), 3)] == [1, 2, 3]
            assert [r.position for r in await take(other.results(subscription), 3)] == [1, 2, 3]

    run(work())
