"""Topics that were heard to have storages, also before a restart: their past is not for caches to tell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable

from newsstand.broker.topic_ledger import Ledger
from newsstand.errors import NewsstandError

MOST_TOPICS = 100_000
REMEMBERED_S = 5.0
"""How long what the coordinator has said holds, and that it has said nothing."""
PATIENCE_S = 3.0
"""How long the coordinator may take."""

Elsewhere = Callable[[Collection[str]], Awaitable[set[str]]]


class StoredTopics:
    """The topics that were advertised last, with the time when a storage was known; on disk, too."""

    def __init__(self, ledger: Ledger, elsewhere: Elsewhere, is_kept: Callable[[str], bool]) -> None:
        """`elsewhere`: those of some topics that others have to keep; `is_kept`: whether this broker has to."""
        self._ledger = ledger
        self._elsewhere = elsewhere
        self._is_kept = is_kept
        now = time.monotonic()
        rows = ledger.read("SELECT topic FROM stored_elsewhere")
        self._heard: dict[str, float] = {str(topic): now for (topic,) in rows}
        self._said: dict[str, tuple[bool, float]] = {}
        """Whether a topic is wanted elsewhere, and until when that holds."""
        self._asking = asyncio.Lock()

    def __contains__(self, topic: str) -> bool:
        return topic in self._heard

    def hear(self, topics: Iterable[str]) -> None:
        """These have storages now."""
        now = time.monotonic()
        for topic in topics:
            if self._heard.pop(topic, None) is None:
                self._ledger.write("INSERT OR IGNORE INTO stored_elsewhere VALUES (?)", topic)
            self._heard[topic] = now
            self._said.pop(topic, None)
        while len(self._heard) > MOST_TOPICS:
            self.forget(next(iter(self._heard)))

    def unheard_s(self, topic: str) -> float:
        """How long ago a storage of a topic was known."""
        return time.monotonic() - self._heard.get(topic, time.monotonic())

    def forget(self, topic: str) -> None:
        """A topic has no storages any more."""
        if self._heard.pop(topic, None) is not None:
            self._ledger.write("DELETE FROM stored_elsewhere WHERE topic = ?", topic)

    async def lost(self, topics: Iterable[str]) -> set[str]:
        """Those of some topics that ought to have a storage, although none is known at the moment."""
        known = {topic for topic in topics if topic in self._heard}
        kept = {topic for topic in known if self._is_kept(topic)}
        return kept | await self._wanted(known - kept)

    async def _wanted(self, topics: set[str]) -> set[str]:
        """Those that other brokers have to keep; if nobody can say, all of them."""
        async with self._asking:
            now = time.monotonic()
            self._said = {topic: said for topic, said in self._said.items() if said[1] > now}
            unknown = sorted(topic for topic in topics if topic not in self._said)
            if unknown:
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        wanted = await self._elsewhere(unknown)
                except (NewsstandError, TimeoutError):
                    wanted = set(unknown)
                until = time.monotonic() + REMEMBERED_S
                self._said.update((topic, (topic in wanted, until)) for topic in unknown)
            return {topic for topic in topics if self._said[topic][0]}
