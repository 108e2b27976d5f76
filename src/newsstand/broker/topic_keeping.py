"""The topics that a broker keeps: how it begins, catches up with the other storages of a topic, and hands over.

Whoever begins to keep a topic subscribes first, then looks for all others that keep it and copies what they have,
and advertises itself only then. Links keep the order of messages, so whatever went past this broker before it had
subscribed is at the other storage before the copying begins. When a link begins anywhere, storages compare again:
each takes what it lacks, and sends what the other lacks as *late*, which only storages take.

Whoever no longer has to keep a topic stops, gives to the others what only it has, and deletes the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from newsstand.broker.storage_sqlite import SqliteStorage
from newsstand.broker.topic_ledger import Ledger
from newsstand.broker.topic_past import Past
from newsstand.errors import NewsstandError
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import MOST_TOPICS, Path, Position, Publication
from newsstand.overlay.outcomes import Located, Out
from newsstand.overlay.replication import ReplicatingBroker

logger = logging.getLogger(__name__)
PAGE = 500
CALM_S = 0.2
"""Changes of the tree come in bunches: how long to wait for more of them."""
SEEK_S = 0.5
"""How long answers to a search are waited for."""
LINK_S = 10.0
"""How long links that should be there are waited for at a time. A neighbour that is gone for good is soon none."""
AGAIN_S = 0.5


class Keeping:
    """Keeps topics, and knows of which it has everything that there is.

    `is_linked`: whether all links are there that should be. `elsewhere`: whether a topic is wanted at other
    brokers. `hand_over` sends a publication until another storage has it, which `handed_over` tells.
    `stored_nowhere` hears of topics that were dropped here and that no other broker has to keep.
    """

    def __init__(
        self,
        node: ReplicatingBroker,
        storage: SqliteStorage,
        ledger: Ledger,
        past: Past,
        do: Callable[[Sequence[Out]], None],
        *,
        is_linked: Callable[[], bool],
        elsewhere: Callable[[str], Awaitable[bool]],
        late: Callable[[Publication], None],
        hand_over: Callable[[Publication], None],
        handed_over: Callable[[Iterable[Publication]], Awaitable[bool]],
        stored_nowhere: Callable[[str], None],
    ) -> None:
        self._node = node
        self._storage = storage
        self._ledger = ledger
        self._past = past
        self._do = do
        self._is_linked = is_linked
        self._elsewhere = elsewhere
        self._late = late
        self._hand_over = hand_over
        self._handed_over = handed_over
        self._stored_nowhere = stored_nowhere
        self._wanted: set[str] = set()
        self._whole: set[str] = set()
        self._behind: set[str] = set()
        self._leaving: set[str] = set()
        self._changes = 0
        self._located: dict[int, list[Located]] = {}
        self._wake = asyncio.Event()

    def take_up(self) -> None:
        """Go on with the topics of before a restart; the coordinator has yet to confirm them."""
        for (topic,) in self._ledger.read("SELECT topic FROM kept ORDER BY topic"):
            self._begin(str(topic))

    @property
    def whole(self) -> list[str]:
        """The topics of which this broker has everything, in order."""
        return sorted(self._whole)

    @property
    def topics(self) -> int:
        """How many topics are kept, or are about to be."""
        return len(self._wanted | self._leaving)

    def keeps(self, topic: str) -> bool:
        """Whether a topic is kept, or is about to be."""
        return topic in self._wanted or topic in self._leaving

    def is_leaving(self, topic: str) -> bool:
        """Whether a topic is still being handed over to other storages."""
        return topic in self._leaving

    def told(self, topics: Iterable[str]) -> None:
        """Keep these topics, and no others."""
        topics = set(topics)
        for topic in sorted(topics - self._wanted):
            self._begin(topic)
        for topic in sorted(self._wanted - topics):
            self._wanted.discard(topic)
            self._whole.discard(topic)
            self._behind.discard(topic)
            self._leaving.add(topic)
            self._wake.set()

    def changed(self) -> None:
        """A link has begun somewhere: something may have been missed."""
        self._changes += 1
        self._behind |= self._wanted
        self._wake.set()

    def located(self, located: Located) -> None:
        """Another storage was found."""
        self._located.get(located.number, []).append(located)

    async def run(self) -> None:
        """Do what is to be done, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(CALM_S)
            try:
                done = await self._catch_up() and await self._leave()
            except NewsstandError as error:
                logger.warning("topics are not kept as they should be yet: %s", error)
                done = False
            except Exception:
                logger.exception("topics are not kept as they should be")
                done = False
            if not done:
                self._wake.set()
                await asyncio.sleep(AGAIN_S)

    def _begin(self, topic: str) -> None:
        self._leaving.discard(topic)
        self._wanted.add(topic)
        self._behind.add(topic)
        self._ledger.write("INSERT OR IGNORE INTO kept VALUES (?)", topic)
        self._do(self._node.keep(topic))
        self._wake.set()

    async def _catch_up(self) -> bool:
        """Have everything that there is; whether it has come to its end."""
        if not self._behind:
            return True
        if not await self._linked():
            return False
        topics = sorted(self._behind)
        for first in range(0, len(topics), MOST_TOPICS):
            await self._catch_up_with(topics[first : first + MOST_TOPICS])
        return not self._behind

    async def _catch_up_with(self, topics: Sequence[str]) -> None:
        """Have everything that there is of some topics; those of which that is not sure stay behind."""
        changes = self._changes
        others = await self._others(topics)
        there = {topic for topic in topics if await self._has_all(topic, others.get(topic, []))}
        if changes != self._changes:
            return
        self._behind -= there
        there &= self._wanted
        self._whole |= there
        self._do(self._node.advertise(self._node.advertisements.own | there))

    async def _has_all(self, topic: str, ways: Sequence[Path]) -> bool:
        """Whether everything was exchanged with the others that keep a topic, of which none may have answered."""
        if not ways and self._node.advertisements.is_heard(topic):
            return False
        for way in ways:
            if await self._exchange(topic, way, self._late) is None:
                return False
        return True

    async def _linked(self) -> bool:
        """Wait a while for links that should be there; whether they are."""
        until = asyncio.get_running_loop().time() + LINK_S
        while not self._is_linked() and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(CALM_S / 4)
        return self._is_linked()

    async def _others(self, topics: Sequence[str]) -> dict[str, list[Path]]:
        """For each topic the ways to the other brokers that keep it."""
        if not self._node.links:
            return {}
        number, outs = self._node.seek(topics)
        found = self._located[number] = []
        try:
            self._do(outs)
            await asyncio.sleep(SEEK_S)
        finally:
            del self._located[number]
        ways: dict[str, list[Path]] = {}
        for one in found:
            for topic in one.topics:
                ways.setdefault(topic, []).append(one.way)
        return ways

    async def _exchange(
        self, topic: str, way: Path, give: Callable[[Publication], None]
    ) -> list[Publication] | None:
        """Take from another storage what is lacking here, and give it what it lacks: that; None if it is lost."""
        after: Position | None = None
        given: list[Publication] = []
        was_whole = topic in self._whole
        while True:
            page = await self._past.page_of(way, topic, after, PAGE)
            if page.missing or not self._storage.is_able:
                return None
            ours = await self._ours(topic, after, page.next)
            known = {one.id for one in ours}
            for one in page.publications:
                if topic in self._wanted and one.id not in known:
                    self._storage.keep(one)
                    if was_whole:
                        self._late(one)  # a third storage may lack it, too
            theirs = {one.id for one in page.publications}
            for one in ours:
                if one.id not in theirs:
                    give(one)
                    given.append(one)
            if page.next is None:
                return given
            after = page.next

    async def _ours(self, topic: str, after: Position | None, until: Position | None) -> list[Publication]:
        """What is stored here after a place, up to another."""
        ours: list[Publication] = []
        while True:
            some = await asyncio.to_thread(self._storage.matching, Filter.of_topic(topic), [topic], after, PAGE)
            ours += (one for one in some if until is None or one.position <= until)
            if len(some) < PAGE or (until is not None and some[-1].position > until):
                return ours
            after = some[-1].position

    async def _leave(self) -> bool:
        """Drop what is not to be kept; whether all of it is gone."""
        for topic in sorted(self._leaving):
            if topic not in self._leaving:
                continue  # wanted again meanwhile
            self._do(self._node.let_go(topic))
            elsewhere = await self._elsewhere(topic)
            if elsewhere and not await self._give_away(topic):
                continue
            if topic in self._leaving:
                self._leaving.discard(topic)
                self._storage.forget(topic)
                self._ledger.write("DELETE FROM kept WHERE topic = ?", topic)
                if not elsewhere:
                    self._stored_nowhere(topic)
        return not self._leaving

    async def _give_away(self, topic: str) -> bool:
        """Let another storage have everything; False if that could not be made sure of."""
        for way in (await self._others([topic])).get(topic, []):
            given = await self._exchange(topic, way, self._hand_over)
            if given is not None and await self._handed_over(given):
                return True
        return False
