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
from newsstand.overlay.messages import Publication
from newsstand.overlay.outcomes import Out
from newsstand.overlay.replication import ReplicatingBroker


class Keeper:
    """A broker that keeps topics; what it has to do is written down."""

    def __init__(self, ledger: Ledger) -> None:
        self.storage = SqliteStorage(ledger, 1000)
        self.node = ReplicatingBroker("edge", self.storage)
        self.outs: list[Out] = []
        self.is_linked = True
        self.asked: list[str] = []
        self.when_asked: Callable[[str], None] = lambda topic: None
        self.when_doing: Callable[[Out], None] = lambda out: None
        self.keeping = Keeping(
            self.node,
            self.storage,
            ledger,
            Past(self.node, self._do, lambda topic: True),
            self._do,
            is_linked=lambda: self.is_linked,
            elsewhere=self._elsewhere,
            late=lambda publication: None,
            hand_over=lambda publication: None,
            handed_over=self._handed_over,
        )

    def _do(self, outs: Sequence[Out]) -> None:
        self.outs += outs
        for out in outs:
            self.when_doing(out)

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
        assert made.asked == ["fires"]
        assert made.node.kept == ["storms"], "it is still subscribed to"
        await made.until(lambda: made.node.advertisements.own == {"storms"})

    keeper(story)
