"""Topics of the client over two linked brokers, and over one that is killed and restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from support.broker.topic_world import World, until, world

from newsstand.client import Client, Message, Pace, RequestRejected, SyncClient, Topics, UsageError

PASSWORD = "correct horse battery"
STORMS = "topic = 'storms' and severity >= 3"
ANYBODY, STORED = "is anybody there?", "is it stored?"
PACE = Pace(first_s=0.05, longest_s=0.3)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("topics"), ("b1", "b2")) as made:
        made.placed(storms=["b2"])
        yield made


def client(pair: World, broker: str, name: str) -> Client:
    return Client(None, name, PASSWORD, broker=pair.url(broker), register=True, pace=PACE)


async def until_stored(topics: Topics, topic: str) -> None:
    while not (await topics.publish(topic, {"severity": 0}, STORED)).stored:
        await asyncio.sleep(0.05)


async def until_heard(topics: Topics, by: Topics) -> None:
    """Publish until a subscriber receives it."""
    hearing = asyncio.ensure_future(anext(aiter(by)))
    while not hearing.done():
        await topics.publish("storms", {"severity": 9}, ANYBODY)
        await asyncio.wait([hearing], timeout=0.1)


async def take(topics: Topics, bodies: list[object]) -> list[Message]:
    """Return the next messages, up to the last of these bodies."""
    taken = []
    async for message in topics:
        if message.body != ANYBODY:
            taken.append(message)
            if message.body == bodies[-1]:
                break
    return taken


async def tell(pair: World) -> None:
    async with (
        client(pair, "b1", "ann") as ann,
        client(pair, "b2", "bob") as bob,
        ann.topics() as from_ann,
        bob.topics() as to_bob,
    ):
        number = await to_bob.subscribe(STORMS)
        await until_stored(from_ann, "storms")
        await until_heard(from_ann, to_bob)
        bodies = [{"text": "Take shelter.", "n": n} for n in range(4)]
        response = [await from_ann.publish("storms", {"severity": n + 2}, body) for n, body in enumerate(bodies)]
        taken = await take(to_bob, bodies)
        assert [one.body for one in taken] == bodies[1:]
        assert [one.id for one in taken] == [one.id for one in response[1:]]
        assert taken[0].attributes == {"severity": 3}
        await to_bob.unsubscribe(number)
        past = [one.body async for one in to_bob.history("topic = 'storms' and severity <= 5")]
        assert [body for body in past if body != STORED] == bodies


async def mistake(pair: World) -> None:
    async with client(pair, "b1", "ann") as ann, ann.topics() as topics:
        with pytest.raises(RequestRejected, match="filter, column 11: expected a value"):
            await topics.subscribe("severity >")
        with pytest.raises(RequestRejected, match="'' is not a valid topic"):
            await topics.publish("")
        with pytest.raises(UsageError, match="a broker accepts at most 65,536"):
            await topics.publish("storms", {}, "x" * 65_536)
        assert topics.interruptions == 0
        nothing = topics.history("topic in ('nothing', 'storms') and severity = 77")
        assert [one async for one in nothing] == []
        assert (nothing.from_cache, nothing.complete) == ({"nothing"}, True), (
            "no storage has it, and no cache; storms has one"
        )
        with pytest.raises(RequestRejected, match="filter, column 1"):
            [one async for one in topics.history("= 3")]
    with pytest.raises(UsageError, match="closed"):
        await topics.publish("storms")


async def outlive(pair: World) -> None:
    async with (
        client(pair, "b1", "ann") as ann,
        client(pair, "b2", "bob") as bob,
        ann.topics() as from_ann,
        bob.topics() as to_bob,
    ):
        await to_bob.subscribe(STORMS)
        await until_heard(from_ann, to_bob)
        port = int(pair.url("b2").rpartition(":")[2])
        pair.kill("b2")
        await asyncio.to_thread(pair.start, "b2", port=port)
        await asyncio.to_thread(pair.until_linked)
        await until_heard(from_ann, to_bob)
        assert to_bob.interruptions >= 1


def test_topic_message_received_as_published(pair: World) -> None:
    asyncio.run(tell(pair))


def test_topic_errors_are_reported(pair: World) -> None:
    asyncio.run(mistake(pair))


def test_topic_subscriptions_outlive_a_broker(pair: World) -> None:
    asyncio.run(outlive(pair))


def test_sync_topics(pair: World) -> None:
    with SyncClient(None, "ann", PASSWORD, broker=pair.url("b1"), register=True) as ann, ann.topics() as topics:
        topics.subscribe("topic = 'sync'")
        assert topics.publish("sync", {"n": 1}, "hello").stored is False
        assert next(iter(topics)).body == "hello"
        until(lambda: topics.publish("storms", {"n": 1}, "hello").stored, "there is a storage")

        def stored() -> list[object]:
            return [one.body for one in topics.history("topic = 'storms' and n = 1")]

        until(lambda: stored()[-1:] == ["hello"], "it is stored")
        past = topics.history("topic = 'sync'")
        assert [one.body for one in past] == ["hello"]
        assert (past.from_cache, past.complete) == ({"sync"}, True)
