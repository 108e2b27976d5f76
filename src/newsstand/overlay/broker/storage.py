"""Storages of publications for late subscribers (Sourlas et al. 2011, section 4.1).

`Storage` is the contract, `MemoryStorage` the default. Publications are ordered by time, origin and number, so a
reader that knows its last position can continue at any storage of the topic.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Protocol

from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import MessagePosition, Publication, PublicationId

_position = attrgetter("position")


class Storage(Protocol):
    """A storage of publications, each once however often it arrives."""

    @property
    def is_writable(self) -> bool:
        """Whether it can store now; if not, it is offered nothing, and no receipts are sent."""
        ...

    def keep(self, publication: Publication) -> bool:
        """Store a publication; return False if it is stored already, or older than all that fit."""
        ...

    def matching(
        self, wanted: Filter, topics: Collection[str], after: MessagePosition | None = None, limit: int = 0
    ) -> Sequence[Publication]:
        """Return what matches of these topics, in order, after a position, at most `limit` unless it is 0."""
        ...

    def forget(self, topic: str) -> None:
        """Delete all publications of a topic."""
        ...


class MemoryStorage:
    """A storage in memory for up to `most` publications of each topic; the oldest is evicted first."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._publications: dict[str, list[Publication]] = {}
        self._ids: dict[str, set[PublicationId]] = {}

    @property
    def is_writable(self) -> bool:
        return True

    def keep(self, publication: Publication) -> bool:
        ids = self._ids.setdefault(publication.topic, set())
        stored = self._publications.setdefault(publication.topic, [])
        full = self._most is not None and len(stored) >= self._most
        if publication.id in ids or (full and (not stored or publication.position < stored[0].position)):
            return False
        insort(stored, publication, key=_position)
        ids.add(publication.id)
        if full:
            ids.remove(stored.pop(0).id)
        return True

    def matching(
        self, wanted: Filter, topics: Collection[str], after: MessagePosition | None = None, limit: int = 0
    ) -> Sequence[Publication]:
        found = [one for topic in set(topics) for one in self._found(wanted, topic, after, limit)]
        found.sort(key=_position)
        return found[:limit] if limit else found

    def _found(
        self, wanted: Filter, topic: str, after: MessagePosition | None, limit: int
    ) -> Iterator[Publication]:
        stored = self._publications.get(topic, [])
        first = 0 if after is None else bisect_right(stored, after, key=_position)
        found = (one for one in islice(stored, first, None) if wanted.matches(one))
        return islice(found, limit or None)

    def forget(self, topic: str) -> None:
        self._publications.pop(topic, None)
        self._ids.pop(topic, None)

    def __len__(self) -> int:
        return sum(map(len, self._publications.values()))
