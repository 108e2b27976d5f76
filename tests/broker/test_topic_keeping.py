"""How a broker begins to keep topics and stops, with neighbours that are told what to say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import pytest

from newsstand.broker import topic_keeping
from newsstand.broker.storage_sqlite import SqliteStorage
from newsstand.broker.topic_keeping import Keeping
from newsstand.broker.topic_ledger import Ledger
from newsstand.broker.topic_past import Past
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import MOST_TOPICS, Advertise, Found, Message, Publication, Request, Response, Seek
from newsstand.overlay.open_requests import Answer
from newsstand.overlay.opportunistic import CachingBroker
from newsstand.overlay.outcomes import Located, Out, Send

EVERYTHING = Filter.parse("true")


class Keeper:
    """A broker that keeps topics; what it has to do is written down."""

    def __init__(self, ledger: Ledger) -> None:
        self.storage = SqliteStorage(ledger, 1000)
        self.node = CachingBroker("edge", self.storage)
        self.outs: list[Out] = []
        self.is_linked = True
        self.asked: list[str] = []
        self.nowhere: list[str] = []
        self.when_asked: Callable[[str], None] = lambda topic: None
        self.when_doing: Callable[[Out], None] = lambda out: None
        self.past = Past(self.node, self._do, lambda topic: True, self._elsewhere)
        self.keeping = Keeping(
            self.node,
            self.storage,
            ledger,
            self.past,
            self._do,
            is_linked=lambda: self.is_linked,
            elsewhere=self._elsewhere,
            late=lambda publication: None,
            hand_over=lambda publication: None,
            handed_over=self._handed_over,
            stored_nowhere=self.nowhere.append,
        )

    def _do(self, outs: Sequence[Out]) -> None:
        self.outs += outs
        for out in outs:
            self.when_doing(out)

    def receive(self, message: Message) -> None:
        """Something has come from the neighbour."""
        for out in self.node.receive("b", message):
            if isinstance(out, Located):
                self.keeping.located(out)
            elif isinstance(out, Answer):
                self.past.answered(out)

    async def _elsewhere(self, topic: str) -> bool:
        self.asked.append(topic)
        self.when_asked(topic)
        return False

    async def _handed_over(self, publications: Iterable[Publication]) -> bool:
        return True

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_so():
                await asyncio.sleep(0.005)


Story = Callable[[Callable[[Keeper], Awaitable[None]]], None]


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    for name, seconds in (("CALM_S", 0.01), ("SEEK_S", 0.02), ("LINK_S", 0.05), ("AGAIN_S", 0.01)):
        monkeypatch.setattr(topic_keeping, name, seconds)

    async def told(story: Callable[[Keeper], Awaitable[None]]) -> None:
        ledger = Ledger(tmp_path / "topics.sqlite")
        made = Keeper(ledger)
        running = asyncio.create_task(made.keeping.run())
        try:
            await story(made)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await ledger.drained()
            ledger.close()

    return lambda story: asyncio.run(told(story))


def test_a_topic_that_is_wanted_again_while_others_are_left_stays(keeper: Story) -> None:
    async def story(made: Keeper) -> None:
        made.keeping.told(["fires", "storms"])
        await made.until(lambda: made.keeping.whole == ["fires", "storms"])
        made.when_asked = lambda topic: made.keeping.told(["storms"])
        made.keeping.told([])
        await made.until(lambda: made.keeping.topics == 1)
        await asyncio.sleep(0.1)
        assert (made.asked, made.nowhere) == (["fires"], ["fires"])
        assert made.node.kept == ["storms"], "it is still subscribed to"
        await made.until(lambda: made.node.advertisements.own == {"storms"})

    keeper(story)


def answer(made: Keeper, past: Sequence[Publication]) -> Callable[[Out], None]:
    """A neighbour that keeps whatever it is asked for."""

    def answered(out: Out) -> None:
        match out:
            case Send("b", Seek(number, topics)):
                made.receive(Found(number, topics, ("b",), ("edge",)))
            case Send("b", Request(number, _, topics)):
                some = tuple(one for one in past if one.topic in topics)
                made.receive(Response(number, topics, ("edge",), "end", some, len(some)))

    return answered


def test_more_topics_than_one_message_can_name_are_all_caught_up_with(keeper: Story) -> None:
    topics = [f"t{number:04d}" for number in range(MOST_TOPICS + 10)]
    past = [Publication("b", number, topic) for number, topic in enumerate(topics, 1)]

    async def story(made: Keeper) -> None:
        made.node.link_up("b")
        made.when_doing = answer(made, past)
        made.keeping.told(topics)
        await made.until(lambda: len(made.keeping.whole) == len(topics))
        for one in past:
            assert one in made.storage.matching(EVERYTHING, [one.topic]), f"{one.topic} is whole"

    keeper(story)


def test_a_broker_whose_links_are_missing_is_not_whole(keeper: Story) -> None:
    async def story(made: Keeper) -> None:
        made.is_linked = False
        made.keeping.told(["storms"])
        await asyncio.sleep(0.3)
        assert made.keeping.whole == []
        assert made.node.advertisements.own == frozenset()
        made.is_linked = True
        await made.until(lambda: made.keeping.whole == ["storms"])

    keeper(story)


def test_a_broker_that_knows_of_a_storage_is_not_whole_before_that_has_answered(keeper: Story) -> None:
    past = [Publication("b", 1, "storms")]

    async def story(made: Keeper) -> None:
        made.node.link_up("b")
        made.receive(Advertise(("storms",), (("b", 1),)))
        made.keeping.told(["fires", "storms"])
        await made.until(lambda: made.keeping.whole == ["fires"])
        await asyncio.sleep(0.1)
        assert made.keeping.whole == ["fires"], "nobody else is known to keep that"
        made.when_doing = answer(made, past)
        await made.until(lambda: made.keeping.whole == ["fires", "storms"])
        assert list(made.storage.matching(EVERYTHING, ["storms"])) == past

    keeper(story)
