"""Where publications are kept for those who come later (Sourlas et al. 2011, section 4.1).

`Storage` is the contract, `MemoryStorage` the default. What is kept has one order, by time, origin and number,
so a reader who knows the position of what it has read last can go on at any storage of the topic.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Protocol

from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import Position, Publication, PublicationId

_position = attrgetter("position")


class Storage(Protocol):
    """Keeps publications, each once however often it comes."""

    @property
    def is_able(self) -> bool:
        """Whether it can keep anything at the moment; if not, it is brought nothing, and nobody gets a receipt."""
        ...

    def keep(self, publication: Publication) -> bool:
        """Keep a publication; False if it is there already, or older than all that there is room for."""
        ...

    def matching(
        self, wanted: Filter, topics: Collection[str], after: Position | None = None, limit: int = 0
    ) -> Sequence[Publication]:
        """What matches and is of these topics, in order, after a position, at most `limit` unless it is 0."""
        ...

    def forget(self, topic: str) -> None:
        """Drop all that is kept of a topic."""
        ...


class MemoryStorage:
    """A storage in memory, with room for `most` publications a topic; the oldest leaves first."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._kept: dict[str, list[Publication]] = {}
        self._ids: dict[str, set[PublicationId]] = {}

    @property
    def is_able(self) -> bool:
        return True

    def keep(self, publication: Publication) -> bool:
        ids = self._ids.setdefault(publication.topic, set())
        kept = self._kept.setdefault(publication.topic, [])
        full = self._most is not None and len(kept) >= self._most
        if publication.id in ids or (full and (not kept or publication.position < kept[0].position)):
            return False
        insort(kept, publication, key=_position)
        ids.add(publication.id)
        if full:
            ids.remove(kept.pop(0).id)
        return True

    def matching(
        self, wanted: Filter, topics: Collection[str], after: Position | None = None, limit: int = 0
    ) -> Sequence[Publication]:
        found = [one for topic in set(topics) for one in self._found(wanted, topic, after, limit)]
        found.sort(key=_position)
        return found[:limit] if limit else found

    def _found(self, wanted: Filter, topic: str, after: Position | None, limit: int) -> Iterator[Publication]:
        kept = self._kept.get(topic, [])
        first = 0 if after is None else bisect_right(kept, after, key=_position)
        found = (one for one in islice(kept, first, None) if wanted.matches(one))
        return islice(found, limit or None)

    def forget(self, topic: str) -> None:
        self._kept.pop(topic, None)
        self._ids.pop(topic, None)

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))
