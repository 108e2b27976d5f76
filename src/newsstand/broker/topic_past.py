"""What storages have of the past, page by page, in the order of time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import Path, Position, Publication
from newsstand.overlay.open_requests import Answer
from newsstand.overlay.outcomes import Out
from newsstand.overlay.replication import ReplicatingBroker

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
    """Topics of which not everything has come, or that nobody stores."""


@dataclass(slots=True)
class _Asked:
    last: asyncio.Future[Answer]
    publications: list[Publication] = field(default_factory=list)


class Past:
    """Asks, and puts together what comes."""

    def __init__(
        self,
        node: ReplicatingBroker,
        do: Callable[[Sequence[Out]], None],
        has_storage: Callable[[str], bool],
    ) -> None:
        """`has_storage`: whether a topic has one, although there may be no way to it at the moment."""
        self._node = node
        self._do = do
        self._has_storage = has_storage
        self._asked: dict[int, _Asked] = {}

    async def page(self, wanted: Filter, after: Position | None, limit: int) -> Page:
        """Up to `limit` publications that match, of all topics, from nearest storages."""
        until = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            page = await self._page(lambda: self._node.request(PAST, wanted, after=after, limit=limit), limit)
            lost = [topic for topic in page.missing if self._has_storage(topic)]
            if not lost or asyncio.get_running_loop().time() > until:
                return page
            await asyncio.sleep(PAUSE_S)

    async def page_of(self, way: Path, topic: str, after: Position | None, limit: int) -> Page:
        """The same of one topic, from one storage."""
        return await self._page(lambda: self._node.request_from(way, PAST, topic, after=after, limit=limit), limit)

    def answered(self, answer: Answer) -> None:
        """Something has come."""
        asked = self._asked.get(answer.number)
        if asked is None:
            return
        asked.publications += answer.publications
        if answer.finished and not asked.last.done():
            asked.last.set_result(answer)

    async def _page(self, ask: Callable[[], tuple[int, list[Out]]], limit: int) -> Page:
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
        found = sorted(asked.publications, key=attrgetter("position"))
        goes_on = bool(last.more) or len(found) > limit
        found = found[:limit]
        return Page(found, found[-1].position if goes_on and found else None, last.missing)
