"""What storages and caches have of the past, page by page, in the order of time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from newsstand.broker.topic_gathering import CacheReads, Gathered
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import Path, Position, Publication
from newsstand.overlay.open_requests import Answer
from newsstand.overlay.opportunistic import CachingBroker
from newsstand.overlay.outcomes import Out

PATIENCE_S = 10.0
"""How long a storage may take to answer; and how long it is asked again while the tree changes."""
PAUSE_S = 0.25
PAST = "past"
"""The client of the overlay's that asks."""


class Page(NamedTuple):
    """Publications in order; `next` is the place to go on from, None at the end."""

    publications: list[Publication]
    next: Position | None
    missing: tuple[str, ...]
    """Topics of which not everything has come, or that nobody stores or may have cached."""
    cached: tuple[str, ...] = ()
    """Topics that nobody stores: of these the page has what caches happen to have. None of them is missing."""
    whole: bool = True
    """Whether all caches have answered, and nothing was cut off of what they have."""


@dataclass(slots=True)
class _Asked:
    last: asyncio.Future[Answer]
    publications: list[Publication] = field(default_factory=list)


class Past:
    """Asks, and puts together what comes."""

    def __init__(
        self,
        node: CachingBroker,
        do: Callable[[Sequence[Out]], None],
        has_storage: Callable[[str], bool],
        lost: Callable[[Iterable[str]], Awaitable[set[str]]],
    ) -> None:
        """`has_storage`: whether a topic has one, although there may be no way to it at the moment.

        `lost`: those of some topics that ought to have one, although none is known.
        """
        self._node = node
        self._do = do
        self._has_storage = has_storage
        self._lost = lost
        self.caches = CacheReads(self._gathered)
        self._asked: dict[int, _Asked] = {}

    async def page(self, wanted: Filter, after: Position | None, limit: int, by: Hashable = PAST) -> Page:
        """Up to `limit` publications that match, of all topics, from nearest storages, else from caches."""
        found, last, missing = await self._stored(wanted, after, limit)
        if not self._node.cache.slots:
            return _page(found, last, limit)
        nowhere = {topic for topic in last.missing if topic not in missing}
        if not nowhere and wanted.topics is not None:
            return _page(found, last, limit)
        gathered = await self.caches.read(by, wanted, after)
        if wanted.topics is None:
            topics = {one.topic for one in gathered.publications}
            lost = await self._lost(topics)
            nowhere.update(topic for topic in topics if topic not in lost and not self._has_storage(topic))
        found += [one for one in gathered.publications if one.topic in nowhere]
        page = _page(found, last, limit)
        if page.next is not None:
            self.caches.keep(by, wanted, page.next, gathered)
        return page._replace(missing=tuple(sorted(missing)), cached=tuple(sorted(nowhere)), whole=gathered.whole)

    async def _stored(
        self, wanted: Filter, after: Position | None, limit: int
    ) -> tuple[list[Publication], Answer, set[str]]:
        """What storages have; those that do not answer are asked again for a while. With topics that lack one."""
        until = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            found, last = await self._found(lambda: self._node.request(PAST, wanted, after=after, limit=limit))
            known = {topic for topic in last.missing if self._node.advertisements.nearest(topic) is not None}
            missing = known | await self._lost(topic for topic in last.missing if topic not in known)
            if not missing or asyncio.get_running_loop().time() > until:
                return found, last, missing
            await asyncio.sleep(PAUSE_S)

    async def _gathered(self, by: Hashable, wanted: Filter, after: Position | None) -> Gathered:
        """What caches have."""
        found, last = await self._found(lambda: self._node.request_cached(by, wanted, after=after))
        return Gathered(found, last.whole)

    async def page_of(self, way: Path, topic: str, after: Position | None, limit: int) -> Page:
        """The same of one topic, from one storage."""
        found, last = await self._found(
            lambda: self._node.request_from(way, PAST, topic, after=after, limit=limit)
        )
        return _page(found, last, limit)

    def answered(self, answer: Answer) -> None:
        """Something has come."""
        asked = self._asked.get(answer.number)
        if asked is None:
            return
        asked.publications += answer.publications
        if answer.finished and not asked.last.done():
            asked.last.set_result(answer)

    async def _found(self, ask: Callable[[], tuple[int, list[Out]]]) -> tuple[list[Publication], Answer]:
        """All that has come for a request, and the last answer."""
        number, outs = ask()
        asked = self._asked[number] = _Asked(asyncio.get_running_loop().create_future())
        try:
            self._do(outs)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    last = await asyncio.shield(asked.last)
            except TimeoutError:
                self._do(self._node.give_up(number))
                last = await asked.last
        finally:
            del self._asked[number]
            if not asked.last.done():
                self._do(self._node.give_up(number))
        return asked.publications, last


def _page(found: Sequence[Publication], last: Answer, limit: int) -> Page:
    """The first of what was found; whoever knows of more has sent as many as the page takes."""
    found = sorted(found, key=attrgetter("position"))
    goes_on = bool(last.more) or len(found) > limit
    found = found[:limit]
    return Page(found, found[-1].position if goes_on and found else None, last.missing)
