"""How a broker starts and stops storing topics, with scripted neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from newsstand.broker.metrics import Metrics, TopicMetrics
from newsstand.broker.topics.database import SqliteStorage, TopicDatabase
from newsstand.broker.topics.history import HistoryReader
from newsstand.broker.topics.publisher import TopicPublisher
from newsstand.broker.topics.replicas import TopicReplicaLimits, TopicReplicas
from newsstand.overlay.broker.caching import CachingBroker
from newsstand.overlay.broker.effects import Effect, RequestAnswer, SeekResult, Send
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import (
    MOST_TOPICS,
    Advertise,
    Message,
    Publication,
    Seek,
    SeekReply,
    StorageRequest,
    StorageResponse,
)

EVERYTHING = Filter.parse("true")


class Keeper:
    """A broker that stores topics and records its effects."""

    def __init__(self, database: TopicDatabase) -> None:
        self.storage = SqliteStorage(database, 1000)
        self.node = CachingBroker("edge", self.storage)
        self.outs: list[Effect] = []
        self.is_linked = True
        self.asked: list[str] = []
        self.nowhere: list[str] = []
        self.when_asked: Callable[[str], None] = lambda topic: None
        self.when_doing: Callable[[Effect], None] = lambda out: None
        self.past = HistoryReader(self.node, self._do, lambda topic: True, self._elsewhere)
        self.keeping = TopicReplicas(
            self.node,
            self.storage,
            database,
            self.past,
            TopicPublisher(self.node, database, self._do, lambda: 1000, TopicMetrics(Metrics())),
            self._do,
            are_links_up=lambda: self.is_linked,
            is_assigned_elsewhere=self._elsewhere,
            on_unstored=self.nowhere.append,
            limits=TopicReplicaLimits(0.01, 0.02, 0.05, 0.01),
        )

    def _do(self, outs: Sequence[Effect]) -> None:
        self.outs += outs
        for out in outs:
            self.when_doing(out)

    def receive(self, message: Message) -> None:
        """Receive a message of the neighbour."""
        for out in self.node.receive("b", message):
            if isinstance(out, SeekResult):
                self.keeping.receive(out)
            elif isinstance(out, RequestAnswer):
                self.past.receive(out)

    async def _elsewhere(self, topic: str) -> bool:
        self.asked.append(topic)
        self.when_asked(topic)
        return False

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_so():
                await asyncio.sleep(0.005)


Story = Callable[[Callable[[Keeper], Awaitable[None]]], None]


@pytest.fixture
def keeper(tmp_path: Path) -> Story:
    async def run(story: Callable[[Keeper], Awaitable[None]]) -> None:
        database = TopicDatabase(tmp_path / "topics.sqlite")
        made = Keeper(database)
        running = asyncio.create_task(made.keeping.run())
        try:
            await story(made)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await database.commits.drained()
            database.close()

    return lambda story: asyncio.run(run(story))


def test_replica_assigned_again_while_draining_stays(keeper: Story) -> None:
    async def story(made: Keeper) -> None:
        made.keeping.configure(["fires", "storms"])
        await made.until(lambda: made.keeping.complete == ["fires", "storms"])
        made.when_asked = lambda topic: made.keeping.configure(["storms"])
        made.keeping.configure([])
        await made.until(lambda: made.keeping.topics == 1)
        await asyncio.sleep(0.1)
        assert (made.asked, made.nowhere) == (["fires"], ["fires"])
        assert made.node.stored_topics == ["storms"], "it is still subscribed to"
        await made.until(lambda: made.node.advertisements.own == {"storms"})

    keeper(story)


def answer(made: Keeper, past: Sequence[Publication]) -> Callable[[Effect], None]:
    """Answer as a neighbour that stores the requested topics."""

    def answered(out: Effect) -> None:
        match out:
            case Send("b", Seek(number, topics)):
                made.receive(SeekReply(number, topics, ("b",), ("edge",)))
            case Send("b", StorageRequest(number, _, topics)):
                some = tuple(one for one in past if one.topic in topics)
                made.receive(StorageResponse(number, topics, ("edge",), "end", some, len(some)))

    return answered


def test_replicas_catch_up_with_more_topics_than_one_message_holds(keeper: Story) -> None:
    topics = [f"t{number:04d}" for number in range(MOST_TOPICS + 10)]
    past = [Publication("b", number, topic) for number, topic in enumerate(topics, 1)]

    async def story(made: Keeper) -> None:
        made.node.link_up("b")
        made.when_doing = answer(made, past)
        made.keeping.configure(topics)
        await made.until(lambda: len(made.keeping.complete) == len(topics))
        for one in past:
            assert one in made.storage.matching(EVERYTHING, [one.topic]), f"{one.topic} is whole"

    keeper(story)


def test_replica_incomplete_without_links(keeper: Story) -> None:
    async def story(made: Keeper) -> None:
        made.is_linked = False
        made.keeping.configure(["storms"])
        await asyncio.sleep(0.3)
        assert made.keeping.complete == []
        assert made.node.advertisements.own == frozenset()
        made.is_linked = True
        await made.until(lambda: made.keeping.complete == ["storms"])

    keeper(story)


def test_replica_incomplete_before_other_storage_replies(keeper: Story) -> None:
    past = [Publication("b", 1, "storms")]

    async def story(made: Keeper) -> None:
        made.node.link_up("b")
        made.receive(Advertise(("storms",), (("b", 1),)))
        made.keeping.configure(["fires", "storms"])
        await made.until(lambda: made.keeping.complete == ["fires"])
        await asyncio.sleep(0.1)
        assert made.keeping.complete == ["fires"], "nobody else is known to keep that"
        made.when_doing = answer(made, past)
        await made.until(lambda: made.keeping.complete == ["fires", "storms"])
        assert list(made.storage.matching(EVERYTHING, ["storms"])) == past

    keeper(story)
