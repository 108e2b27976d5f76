"""Topics that were heard to have storages, so that their past is not taken for one that caches may have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from newsstand.errors import NewsstandError

MOST_TOPICS = 100_000


class Advertised:
    """The topics that were advertised last."""

    def __init__(self, elsewhere: Callable[[str], Awaitable[bool]]) -> None:
        """`elsewhere`: whether a topic is wanted at other brokers, as the coordinator says."""
        self._elsewhere = elsewhere
        self._topics: dict[str, None] = {}

    def hear(self, topics: Iterable[str]) -> None:
        """These have storages."""
        for topic in topics:
            self._topics.pop(topic, None)
            self._topics[topic] = None
        while len(self._topics) > MOST_TOPICS:
            del self._topics[next(iter(self._topics))]

    async def is_lost(self, topic: str) -> bool:
        """Whether a topic of which no storage is known at the moment ought to have one."""
        if topic not in self._topics:
            return False
        try:
            is_wanted = await self._elsewhere(topic)
        except NewsstandError:  # who cannot be asked may want it
            return True
        if not is_wanted:
            self._topics.pop(topic, None)
        return is_wanted
