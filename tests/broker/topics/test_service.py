"""A broker of the overlay in one process, with neighbours that only receive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.broker.lone_topics import lone_topics, running, unwritable

from newsstand.broker.metrics import Metrics
from newsstand.broker.topics.replicas import KnownStorageLimits
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import (
    Advertise,
    Message,
    Publication,
    Publish,
    Seek,
    StorageReceipt,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)

EVERYTHING = Filter.parse("true")


class Ear:
    """A client that records its deliveries."""

    def __init__(self) -> None:
        self.heard: list[Publication] = []

    def deliver(self, publication: Publication, encoded: bytes) -> None:
        self.heard.append(publication)


class Broker:
    """A broker whose links only record what they send."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
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
    async def run(story: Callable[[Broker], Awaitable[None]]) -> None:
        made = Broker(tmp_path, monkeypatch)
        async with running(made.topics):
            await story(made)

    return lambda story: asyncio.run(run(story))


def test_publications_repeated_after_a_cut_delivered_once(broker: Story) -> None:
    storms = [Publication("b", number, "storms") for number in range(1, 6001)]

    async def story(made: Broker) -> None:
        ear = Ear()
        made.topics.subscribe(ear, Filter.of_topic("storms"))
        made.topics.link_up("b")
        made.topics.receive("b", [Publish(storm) for storm in storms])
        made.topics.receive("b", [Publish(storm, attempt=1) for storm in storms])
        assert ear.heard == storms

    broker(story)


def test_effects_performed_in_order_when_nested(broker: Story) -> None:
    storms = Filter.of_topic("storms")

    async def story(made: Broker) -> None:
        ear = Ear()
        for neighbour in ("b", "c", "d"):
            made.topics.link_up(neighbour)
        made.sent.clear()

        def cut(neighbour: str, message: Message) -> None:
            if neighbour == "c":
                made.when_sent = lambda neighbour, message: None
                made.topics.unsubscribe(ear, storms)

        made.when_sent = cut
        made.topics.subscribe(ear, storms)
        messages = [message for neighbour, message in made.sent if neighbour == "d"]
        assert messages == [Subscribe(storms), Unsubscribe(storms)]

    broker(story)


async def two_that_wait(made: Broker) -> None:
    """Publish two messages of a topic whose storage is lost, and one of another topic."""
    made.topics.link_up("b")
    made.topics.receive("b", [Advertise(("fires", "storms"), (("b", 1),))])
    for topic in ("storms", "storms", "fires"):
        assert (await made.topics.publish(topic, {}, b"1")).stored
    made.topics.receive("b", [Unadvertise(("storms",), ())])
    assert made.metric("topic_outbox") == 3


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.01)


def test_pending_publications_dropped_after_storage_timeout(
    broker: Story, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(made: Broker) -> None:
        await two_that_wait(made)
        await asyncio.sleep(0.6)
        assert made.metric("topic_outbox") == 3, "not at once"
        made.topics.storages.limits = KnownStorageLimits(forget_s=0.1)
        await until(lambda: made.metric("topic_outbox") == 1)
        assert made.metric("topic_abandoned_total") == 2
        assert "topic storms has no storage any more: 2 publications dropped" in caplog.text
        assert not (await made.topics.publish("storms", {}, b"1")).stored
        await made.topics.database.commits.flushed()
        assert made.topics.database.read("SELECT count(*) FROM outbox") == [(1,)]

    broker(story)


def test_pending_publications_dropped_when_topic_is_unassigned(broker: Story) -> None:
    async def story(made: Broker) -> None:
        await two_that_wait(made)
        made.topics.link_down("b")
        made.topics.configure_standalone(["storms"])
        await until(lambda: made.topics.complete_topics == ["storms"])
        made.topics.publisher.outbox.add(Publication("edge", 1, "storms"), 0.0)
        made.topics.configure_standalone([])
        await until(lambda: made.topics.replicas.topics == 0)
        assert made.topics.publisher.outbox.topics == ["fires"]
        assert (made.metric("topic_abandoned_total") or 0) > 0

    broker(story)


def test_storage_sends_no_receipts_while_disk_is_full(broker: Story) -> None:
    storms = [Publication("b", number, "storms") for number in range(1, 4)]

    def receipts(made: Broker) -> list[int]:
        return [message.number for _, message in made.sent if isinstance(message, StorageReceipt)]

    async def story(made: Broker) -> None:
        made.topics.configure_standalone(["storms"])
        await until(lambda: made.topics.complete_topics == ["storms"])
        made.topics.link_up("b")
        database = made.topics.database
        database.commits.retry_s = 0.5
        with unwritable(made.folder):
            made.topics.receive("b", [Publish(storms[0], path=("b",))])
            await until(lambda: database.commits.fault is not None)
            made.topics.receive("b", [Publish(storm, path=("b",)) for storm in storms[1:]])
            assert [one.number for one in made.topics.storage.matching(EVERYTHING, ["storms"])] == [1]
            await asyncio.sleep(0.4)
        made.sent.clear()
        await until(lambda: database.commits.fault is None)
        await until(lambda: receipts(made) == [1])
        await until(lambda: any(isinstance(message, Seek) for _, message in made.sent))
        made.topics.receive("b", [Publish(storm, attempt=1, path=("b",)) for storm in storms[1:]])
        await until(lambda: receipts(made) == [1, 2, 3])
        assert database.read("SELECT number FROM publications ORDER BY number") == [(1,), (2,), (3,)]

    broker(story)
