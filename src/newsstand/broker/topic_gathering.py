"""What clients of a broker read of caches: a few requests at once, the same ones shared, each gathered once.

A request goes through the tree and brings up to a mebibyte. So a client has a few of them open, its further ones
wait; who asks for the same at the same moment gets the same; and what a page has no room for is kept for the pages
that follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from newsstand.overlay.filters import Filter
from newsstand.overlay.message_cache import weight
from newsstand.overlay.messages import Position, Publication

MOST_OF_ONE = 4
"""Requests of one client that are open, and reads of which something is kept."""
MOST_OPEN = 64
"""Requests that are open together."""
KEPT_S = 60.0
MOST_KEPT = 256
MOST_KEPT_BYTES = 16 * 1024 * 1024


class Gathered(NamedTuple):
    """What caches have, in order of time, and whether that is all."""

    publications: Sequence[Publication]
    whole: bool


@dataclass(slots=True)
class _Going:
    task: asyncio.Task[Gathered]
    waiting: int = 0


@dataclass(slots=True)
class _Turns:
    room: asyncio.Semaphore
    users: int = 0


class _Kept(NamedTuple):
    gathered: Gathered
    bytes: int
    until: float


Ask = Callable[[Hashable, Filter, Position | None], Awaitable[Gathered]]
Next = tuple[Hashable, Filter, Position]


class CacheReads:
    """Who asks, and what is kept for those who read on."""

    def __init__(self, ask: Ask) -> None:
        """`ask` has caches asked for what a client wants after a place."""
        self._ask = ask
        self._going: dict[tuple[Filter, Position | None], _Going] = {}
        self._turns: dict[Hashable, _Turns] = {}
        self._room = asyncio.Semaphore(MOST_OPEN)
        self._kept: dict[Next, _Kept] = {}

    async def read(self, by: Hashable, wanted: Filter, after: Position | None) -> Gathered:
        """What caches have after a place; if a page of the same client's ended there, what was left then."""
        if after is not None:
            kept = self._kept.get((by, wanted, after))
            if kept is not None and kept.until > asyncio.get_running_loop().time():
                return kept.gathered
        key = wanted, after
        going = self._going.get(key)
        if going is None:
            going = self._going[key] = _Going(asyncio.create_task(self._gather(by, wanted, after)))
        going.waiting += 1
        try:
            return await asyncio.shield(going.task)
        finally:
            going.waiting -= 1
            if not going.waiting:
                going.task.cancel()  # nobody is left who wants it, unless it is done
                if self._going.get(key) is going:
                    del self._going[key]

    def keep(self, by: Hashable, wanted: Filter, following: Position, gathered: Gathered) -> None:
        """A page ends at a place: what comes after it is kept for a while."""
        rest = [one for one in gathered.publications if one.position > following]
        until = asyncio.get_running_loop().time() + KEPT_S
        key = by, wanted, following
        self._kept.pop(key, None)
        self._kept[key] = _Kept(Gathered(rest, gathered.whole), sum(map(weight, rest)), until)
        own = [one for one in self._kept if one[0] == by]
        for old in own[:-MOST_OF_ONE]:
            del self._kept[old]
        while len(self._kept) > MOST_KEPT or sum(one.bytes for one in self._kept.values()) > MOST_KEPT_BYTES:
            del self._kept[next(iter(self._kept))]

    def tick(self) -> None:
        """To be called from time to time: what was kept long enough is forgotten."""
        now = asyncio.get_running_loop().time()
        for key in [key for key, kept in self._kept.items() if kept.until <= now]:
            del self._kept[key]

    async def _gather(self, by: Hashable, wanted: Filter, after: Position | None) -> Gathered:
        async with self._turn(by), self._room:
            return await self._ask(by, wanted, after)

    @asynccontextmanager
    async def _turn(self, by: Hashable) -> AsyncIterator[None]:
        """Wait until a client has room for one more."""
        turns = self._turns.setdefault(by, _Turns(asyncio.Semaphore(MOST_OF_ONE)))
        turns.users += 1
        try:
            async with turns.room:
                yield
        finally:
            turns.users -= 1
            if not turns.users:
                del self._turns[by]
