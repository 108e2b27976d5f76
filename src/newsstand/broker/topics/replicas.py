"""Storages of topics: the known storages of other brokers, and the replicas of this broker.

A new storage of a topic subscribes first, then finds all other storages, copies what they have, and only then
advertises itself. Links keep the order of messages, so whatever passed this broker before it had subscribed is at
the other storage before the copy begins. When a link begins anywhere, storages compare again: each takes what it
lacks, and sends what the other lacks as *late*, which only storages take.

A storage that is no longer assigned stops, hands over to the others what only it has, and deletes the rest.

Topics with a storage are known across restarts, reachable or not: caches must not answer for their history.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from newsstand.broker.topics.database import SqliteStorage, TopicDatabase
from newsstand.broker.topics.history import HistoryReader
from newsstand.broker.topics.publisher import TopicPublisher
from newsstand.errors import NewsstandError
from newsstand.overlay.broker.effects import Effect, SeekResult
from newsstand.overlay.broker.replicating import ReplicatingBroker
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import MOST_TOPICS, MessagePosition, Path, Publication

logger = logging.getLogger(__name__)

FindAssigned = Callable[[Collection[str]], Awaitable[set[str]]]
"""Returns which of some topics the coordinator has assigned to other brokers."""


@dataclass(frozen=True, slots=True)
class KnownStorageLimits:
    """Limits of what a broker knows about storages of other brokers."""

    topics: int = 100_000
    forget_s: float = 3600.0
    """A topic without a reachable storage for so long counts as one without storages."""
    placement_ttl_s: float = 5.0
    """How long an answer of the coordinator is valid, and a failure to get one."""
    placement_s: float = 3.0
    """How long the coordinator may take to answer."""


@dataclass(eq=False, repr=False)
class KnownStorages:
    """The topics that were advertised last, with the time when a storage was reachable; also on disk."""

    database: TopicDatabase
    find_assigned: FindAssigned
    is_reachable: Callable[[str], bool]
    is_stored_here: Callable[[str], bool]
    is_pending: Callable[[str], bool]
    """Whether publications of a topic wait for its storages, so that it is not forgotten."""
    limits: KnownStorageLimits = KnownStorageLimits()

    def __post_init__(self) -> None:
        now = time.monotonic()
        self._reached: dict[str, float] = {
            str(topic): now for (topic,) in self.database.read("SELECT topic FROM stored_elsewhere")
        }
        self._placements: dict[str, tuple[bool, float]] = {}
        """Whether a topic is assigned to other brokers, and until when that is valid."""
        self._querying = asyncio.Lock()

    def __contains__(self, topic: str) -> bool:
        return topic in self._reached

    def add(self, topics: Iterable[str]) -> None:
        """Record that storages of topics are reachable now."""
        now = time.monotonic()
        for topic in topics:
            if self._reached.pop(topic, None) is None:
                self.database.write("INSERT OR IGNORE INTO stored_elsewhere VALUES (?)", topic)
            self._reached[topic] = now
            self._placements.pop(topic, None)
        while len(self._reached) > self.limits.topics:
            self.forget(next(iter(self._reached)))

    def is_outdated(self, topic: str) -> bool:
        """Return whether no storage of a topic was reachable for too long."""
        now = time.monotonic()
        return now - self._reached.get(topic, now) > self.limits.forget_s

    def forget(self, topic: str) -> None:
        """Record that a topic has no storages any more."""
        if self._reached.pop(topic, None) is not None:
            self.database.write("DELETE FROM stored_elsewhere WHERE topic = ?", topic)

    async def find_unreachable(self, topics: Iterable[str]) -> set[str]:
        """Return those topics that have storages of which none is reachable; forget the others."""
        unreachable = {topic for topic in topics if not self.is_reachable(topic)}
        known = {topic for topic in unreachable if topic in self._reached}
        stored_here = {topic for topic in known if self.is_stored_here(topic)}
        missing = stored_here | await self._assigned(known - stored_here)
        for topic in unreachable - missing:
            if not self.is_pending(topic) and not self.is_stored_here(topic):
                self.forget(topic)
        return missing

    async def _assigned(self, topics: set[str]) -> set[str]:
        """Return the topics assigned to other brokers; all if the coordinator does not answer."""
        async with self._querying:
            now = time.monotonic()
            self._placements = {topic: one for topic, one in self._placements.items() if one[1] > now}
            unknown = sorted(topic for topic in topics if topic not in self._placements)
            if unknown:
                try:
                    async with asyncio.timeout(self.limits.placement_s):
                        assigned = await self.find_assigned(unknown)
                except (NewsstandError, TimeoutError):
                    assigned = set(unknown)
                until = time.monotonic() + self.limits.placement_ttl_s
                self._placements.update((topic, (topic in assigned, until)) for topic in unknown)
            return {topic for topic in topics if self._placements[topic][0]}


@dataclass(frozen=True, slots=True)
class TopicReplicaLimits:
    """Waits of `TopicReplicas`, and the size of its exchanges."""

    settle_s: float = 0.2
    """Changes of the tree come in bursts: the wait for more of them."""
    seek_s: float = 0.5
    """The wait for replies to a search."""
    links_s: float = 10.0
    """The wait for links that should exist. A neighbour that has failed is soon removed from the tree."""
    retry_s: float = 0.5
    page: int = 500
    """Publications of one page of an exchange."""


@dataclass(eq=False, repr=False)
class TopicReplicas:
    """Stores topics, and knows of which it has the complete history."""

    node: ReplicatingBroker
    storage: SqliteStorage
    database: TopicDatabase
    history: HistoryReader
    publisher: TopicPublisher
    perform: Callable[[Sequence[Effect]], None]
    are_links_up: Callable[[], bool]
    """Whether all links exist that should."""
    is_assigned_elsewhere: Callable[[str], Awaitable[bool]]
    """Whether a topic is assigned to other brokers."""
    on_unstored: Callable[[str], None]
    """Called for topics that were dropped here and that no other broker stores."""
    limits: TopicReplicaLimits = TopicReplicaLimits()

    def __post_init__(self) -> None:
        self._assigned: set[str] = set()
        """The topics that this broker has to store."""
        self._complete: set[str] = set()
        """Those of them whose complete history is here."""
        self._behind: set[str] = set()
        """Those of them that have to be compared with other storages."""
        self._draining: set[str] = set()
        """Topics that are assigned no longer, until they are handed over."""
        self._changes = 0
        """Changes of the tree so far: a comparison during which one happens is repeated."""
        self._seeks: dict[int, list[SeekResult]] = {}
        """The replies to each search that is under way."""
        self._wake = asyncio.Event()

    def restore(self) -> None:
        """Continue with the topics stored before a restart; the coordinator has yet to confirm them."""
        for (topic,) in self.database.read("SELECT topic FROM stored_topics ORDER BY topic"):
            self._join(str(topic))

    @property
    def complete(self) -> list[str]:
        """The topics of which this broker has the complete history, in order."""
        return sorted(self._complete)

    @property
    def topics(self) -> int:
        """The number of topics that are stored, or are about to be."""
        return len(self._assigned | self._draining)

    def stores(self, topic: str) -> bool:
        """Return whether a topic is stored, or is about to be."""
        return topic in self._assigned or topic in self._draining

    def is_draining(self, topic: str) -> bool:
        """Return whether a topic is still being handed over to other storages."""
        return topic in self._draining

    def configure(self, topics: Iterable[str]) -> None:
        """Store these topics, and no others."""
        topics = set(topics)
        for topic in sorted(topics - self._assigned):
            self._join(topic)
        for topic in sorted(self._assigned - topics):
            self._assigned.discard(topic)
            self._complete.discard(topic)
            self._behind.discard(topic)
            self._draining.add(topic)
            self._wake.set()

    def compare_again(self) -> None:
        """Compare with other storages, after a change of the tree in which messages may have been lost."""
        self._changes += 1
        self._behind |= self._assigned
        self._wake.set()

    def receive(self, found: SeekResult) -> None:
        self._seeks.get(found.number, []).append(found)

    async def run(self) -> None:
        """Catch up and drain, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(self.limits.settle_s)
            try:
                done = await self._catch_up() and await self._drain()
            except NewsstandError as error:
                logger.warning("replication of topics failed, trying again: %s", error)
                done = False
            except Exception:
                logger.exception("replication of topics failed, trying again")
                done = False
            if not done:
                self._wake.set()
                await asyncio.sleep(self.limits.retry_s)

    def _join(self, topic: str) -> None:
        self._draining.discard(topic)
        self._assigned.add(topic)
        self._behind.add(topic)
        self.database.write("INSERT OR IGNORE INTO stored_topics VALUES (?)", topic)
        self.perform(self.node.start_storing(topic))
        self._wake.set()

    async def _catch_up(self) -> bool:
        """Complete the history of all topics; return whether that is done."""
        if not self._behind:
            return True
        if not await self._wait_for_links():
            return False
        topics = sorted(self._behind)
        for first in range(0, len(topics), MOST_TOPICS):
            await self._catch_up_with(topics[first : first + MOST_TOPICS])
        return not self._behind

    async def _catch_up_with(self, topics: Sequence[str]) -> None:
        """Complete the history of some topics; those for which that is uncertain stay behind."""
        changes = self._changes
        routes = await self._find_others(topics)
        complete = {topic for topic in topics if await self._exchange_with_all(topic, routes.get(topic, []))}
        if changes != self._changes:
            return
        self._behind -= complete
        complete &= self._assigned
        self._complete |= complete
        self.perform(self.node.advertise(self.node.advertisements.own | complete))

    async def _exchange_with_all(self, topic: str, routes: Sequence[Path]) -> bool:
        """Exchange with all other storages of a topic; return whether the history is complete."""
        if not routes and self.node.advertisements.is_advertised(topic):
            return False  # there is another storage, and it has not replied
        for route in routes:
            if await self._exchange(topic, route, self.publisher.send_late) is None:
                return False
        return True

    async def _wait_for_links(self) -> bool:
        until = asyncio.get_running_loop().time() + self.limits.links_s
        while not self.are_links_up() and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(self.limits.settle_s / 4)
        return self.are_links_up()

    async def _find_others(self, topics: Sequence[str]) -> dict[str, list[Path]]:
        """Return for each topic the routes to its other storages."""
        if not self.node.links:
            return {}
        number, effects = self.node.seek(topics)
        found = self._seeks[number] = []
        try:
            self.perform(effects)
            await asyncio.sleep(self.limits.seek_s)
        finally:
            del self._seeks[number]
        routes: dict[str, list[Path]] = {}
        for one in found:
            for topic in one.topics:
                routes.setdefault(topic, []).append(one.route)
        return routes

    async def _exchange(
        self, topic: str, route: Path, send: Callable[[Publication], None]
    ) -> list[Publication] | None:
        """Copy what is missing here and `send` what the other storage lacks; return that, None if it is lost."""
        after: MessagePosition | None = None
        sent: list[Publication] = []
        was_complete = topic in self._complete
        while True:
            page = await self.history.page_of(route, topic, after, self.limits.page)
            if page.unavailable or not self.storage.is_writable:
                return None
            ours = await self._stored_between(topic, after, page.next)
            known = {one.id for one in ours}
            for one in page.publications:
                if topic in self._assigned and one.id not in known:
                    self.storage.keep(one)
                    if was_complete:
                        self.publisher.send_late(one)  # a third storage may lack it, too
            theirs = {one.id for one in page.publications}
            for one in ours:
                if one.id not in theirs:
                    send(one)
                    sent.append(one)
            if page.next is None:
                return sent
            after = page.next

    async def _stored_between(
        self, topic: str, after: MessagePosition | None, until: MessagePosition | None
    ) -> list[Publication]:
        """Return what is stored here after one position, up to another."""
        stored: list[Publication] = []
        while True:
            some = await asyncio.to_thread(
                self.storage.matching, Filter.of_topic(topic), [topic], after, self.limits.page
            )
            stored += (one for one in some if until is None or one.position <= until)
            if len(some) < self.limits.page or (until is not None and some[-1].position > until):
                return stored
            after = some[-1].position

    async def _drain(self) -> bool:
        """Drop topics that are no longer assigned; return whether all are dropped."""
        for topic in sorted(self._draining):
            if topic not in self._draining:
                continue  # assigned again meanwhile
            self.perform(self.node.stop_storing(topic))
            is_elsewhere = await self.is_assigned_elsewhere(topic)
            if is_elsewhere and not await self._hand_over(topic):
                continue
            if topic in self._draining:
                self._draining.discard(topic)
                self.storage.forget(topic)
                self.database.write("DELETE FROM stored_topics WHERE topic = ?", topic)
                if not is_elsewhere:
                    self.on_unstored(topic)
        return not self._draining

    async def _hand_over(self, topic: str) -> bool:
        """Make sure that another storage has everything; return False if that is uncertain."""
        for route in (await self._find_others([topic])).get(topic, []):
            sent = await self._exchange(topic, route, self.publisher.hand_over)
            if sent is not None and await self.publisher.wait_for_receipts(sent):
                return True
        return False
