"""A broker of the overlay in one process, with neighbours that only listen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from lone_topics import lone_topics, running

from newsstand.broker import topics
from newsstand.broker.metrics import Metrics
from newsstand.broker.topic_outbox import MOST
from newsstand.broker.topics import REMEMBERED
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import (
    Advertise,
    Message,
    Publication,
    Publish,
    Seek,
    Stored,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)


class Ear:
    """A client that keeps what it gets."""

    def __init__(self) -> None:
        self.heard: list[Publication] = []

    def deliver(self, publication: Publication, written: bytes) -> None:
        self.heard.append(publication)


class Broker:
    """A broker whose links only write down what they are to send."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.metrics = Metrics()
        self.sent: list[tuple[str, Message]] = []
        self.when_sent: Callable[[str, Message], None] = lambda neighbour, message: None
        self.topics = lone_topics(folder, self.metrics)
        monkeypatch.setattr(self.topics.links, "send", self._send)

    def metric(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"newsstand_broker_{name}")

    def _send(self, neighbour: str, message: Message) -> None:
        self.sent.append((neighbour, message))
        self.when_sent(neighbour, message)


Story = Callable[[Callable[[Broker], Awaitable[None]]], None]


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    async def told(story: Callable[[Broker], Awaitable[None]]) -> None:
        made = Broker(tmp_path, monkeypatch)
        async with running(made.topics):
            await story(made)

    return lambda story: asyncio.run(told(story))


def test_all_that_an_outbox_may_send_again_is_known() -> None:
    assert REMEMBERED >= 2 * MOST


def test_thousands_that_come_again_after_a_cut_are_delivered_once(broker: Story) -> None:
    storms = [Publication("b", number, "storms") for number in range(1, 6001)]

    async def story(made: Broker) -> None:
        ear = Ear()
        made.topics.subscribe(ear, Filter.of_topic("storms"))
        made.topics._linked("b")
        made.topics._received("b", [Publish(storm) for storm in storms])
        made.topics._received("b", [Publish(storm, attempt=1) for storm in storms])
        assert ear.heard == storms

    broker(story)


def test_what_a_link_that_ends_brings_about_comes_after_what_was_to_be_sent(broker: Story) -> None:
    storms = Filter.of_topic("storms")

    async def story(made: Broker) -> None:
        ear = Ear()
        for neighbour in ("b", "c", "d"):
            made.topics._linked(neighbour)
        made.sent.clear()

        def cut(neighbour: str, message: Message) -> None:
            if neighbour == "c":
                made.when_sent = lambda neighbour, message: None
                made.topics.unsubscribe(ear, storms)

        made.when_sent = cut
        made.topics.subscribe(ear, storms)
        told = [message for neighbour, message in made.sent if neighbour == "d"]
        assert told == [Subscribe(storms), Unsubscribe(storms)]

    broker(story)


async def two_that_wait(made: Broker) -> None:
    """Two of a topic whose storage has gone, and one of another."""
    made.topics._linked("b")
    made.topics._received("b", [Advertise(("fires", "storms"), (("b", 1),))])
    for topic in ("storms", "storms", "fires"):
        assert (await made.topics.publish(topic, {}, b"1")).stored
    made.topics._received("b", [Unadvertise(("storms",), ())])
    assert made.metric("topic_outbox") == 3


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.01)


def test_what_waits_for_storages_that_are_unheard_of_is_given_up(
    broker: Story, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(made: Broker) -> None:
        await two_that_wait(made)
        await asyncio.sleep(0.6)
        assert made.metric("topic_outbox") == 3, "not at once"
        monkeypatch.setattr(topics, "UNHEARD_S", 0.1)
        await until(lambda: made.metric("topic_outbox") == 1)
        assert made.metric("topic_given_up_total") == 2
        assert "storms has no storage any more: 2 publications were given up" in caplog.text
        assert not (await made.topics.publish("storms", {}, b"1")).stored
        await made.topics._ledger.written()
        assert made.topics._ledger.read("SELECT count(*) FROM outbox") == [(1,)]

    broker(story)


def test_what_waits_for_a_topic_that_the_coordinator_wants_nowhere_is_given_up(broker: Story) -> None:
    async def story(made: Broker) -> None:
        await two_that_wait(made)
        made.topics._unlinked("b")
        made.topics.alone(["storms"])
        await until(lambda: made.topics.whole == ["storms"])
        made.topics._outbox.add(Publication("edge", 1, "storms"), 0.0)
        made.topics.alone([])
        await until(lambda: made.topics._keeping.topics == 0)
        assert made.topics._outbox.topics == ["fires"]
        assert (made.metric("topic_given_up_total") or 0) > 0

    broker(story)


def test_a_full_disk_keeps_nothing_of_neighbours_and_gives_no_receipt_until_it_has_room(
    broker: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("newsstand.broker.topic_ledger.AGAIN_S", 0.5)
    storms = [Publication("b", number, "storms") for number in range(1, 4)]

    def receipts(made: Broker) -> list[int]:
        return [message.number for _, message in made.sent if isinstance(message, Stored)]

    async def story(made: Broker) -> None:
        made.topics.alone(["storms"])
        await until(lambda: made.topics.whole == ["storms"])
        made.topics._linked("b")
        ledger = made.topics._ledger
        ledger._writer.execute("PRAGMA query_only = 1")
        made.topics._received("b", [Publish(storms[0], path=("b",))])
        await until(lambda: ledger.fault is not None)
        made.topics._received("b", [Publish(storm, path=("b",)) for storm in storms[1:]])
        assert [one.number for one in made.topics._storage._pending.values()] == [1]
        await asyncio.sleep(0.4)
        ledger._writer.execute("PRAGMA query_only = 0")
        made.sent.clear()
        await until(lambda: ledger.fault is None)
        await until(lambda: receipts(made) == [1])
        await until(lambda: any(isinstance(message, Seek) for _, message in made.sent))
        made.topics._received("b", [Publish(storm, attempt=1, path=("b",)) for storm in storms[1:]])
        await until(lambda: receipts(made) == [1, 2, 3])
        assert ledger.read("SELECT number FROM publications ORDER BY number") == [(1,), (2,), (3,)]

    broker(story)
