"""Copies of popular pages that the origin has pushed here (Gwertzman and Seltzer 1995), live.

Which pages stay and when one has to be checked is for the push-cache to say (`planning.push_cache`). Here are
their bytes: fetched from the origin when the push-cache takes an offer, and when a check finds a newer version.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from newsstand.broker.page_content import Content, is_fixed
from newsstand.errors import BadInput, NewsstandError, NotFound
from newsstand.model import is_page_path
from newsstand.planning.push_cache import CacheCounts, PushCache, Verdict
from newsstand.planning.push_offers import Offer
from newsstand.planning.push_room import Room

logger = logging.getLogger(__name__)
CLUSTER = 1
"""The number of the only origin that pushes to a broker: its data cluster, which may use all of the room."""
AT_ONCE = 4
"""Pages of one push that are fetched at the same time."""


class PushedPage(msgspec.Struct, frozen=True):
    """A page that the origin offers: how large it is, since when it is so, and the requests expected here."""

    path: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    modified_ms: int = 0
    requests: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Pushed(msgspec.Struct, frozen=True):
    """A push: pages, the most popular first."""

    pages: list[PushedPage]


@dataclass(frozen=True)
class Kept:
    """What became of a push: the paths of its pages that are here now, and of others that no longer are."""

    kept: list[str]
    left: list[str]


Fetch = Callable[[str, str], Awaitable[Content | None]]
"""Fetches the page of a path from the origin; None if it is still of this version."""


def read_pushed(body: bytes) -> Pushed:
    """A push out of the body of a request."""
    try:
        pushed = msgspec.json.decode(body, type=Pushed)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"body: {error}") from error
    for number, page in enumerate(pushed.pages):
        if not is_page_path(page.path):
            raise BadInput(f"body: pages.{number}.path: {page.path[:80]!r} is not the path of a page")
    return pushed


class Copies:
    """The pages that were pushed here; used from the event loop's thread only."""

    def __init__(self, room: int, fetch: Fetch, now_s: Callable[[], float]) -> None:
        self._cache: PushCache[str] = PushCache(Room(size=room), origin_share=1.0)
        self._fetch = fetch
        self._now_s = now_s
        self._contents: dict[str, Content] = {}
        self._checks: dict[str, asyncio.Task[Content | None]] = {}
        self._pushing = asyncio.Lock()
        self.changed = asyncio.Event()
        """Set when a push has changed what is here."""

    @property
    def counts(self) -> CacheCounts:
        return self._cache.counts

    @property
    def bytes(self) -> int:
        """Bytes of the pages that are here."""
        return sum(len(content.data) for content in self._contents.values())

    def __len__(self) -> int:
        return len(self._contents)

    def __contains__(self, path: object) -> bool:
        return path in self._contents

    @property
    def paths(self) -> list[str]:
        """All pages that are here."""
        return list(self._contents)

    async def pushed(self, pages: Sequence[PushedPage]) -> Kept:
        """The origin offers pages: take those that are worth it, and say which when they have come."""
        async with self._pushing:
            offers = [Offer(one.path, one.size, one.modified_ms / 1000, one.requests) for one in pages]
            before = set(self._contents)
            taken = self._cache.push(CLUSTER, offers, self._now_s())
            self._let_go()
            turn = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(self._bring(path, turn) for path in taken.kept))
            kept = [path for path in taken.kept if path in self._contents]
            if before != self._contents.keys():
                self.changed.set()
            return Kept(kept, sorted(before - self._contents.keys()))

    async def get(self, path: str) -> Content | None:
        """A copy for a reader, checked if it may be stale; None if there is none."""
        if path not in self._contents:
            return None
        verdict = self._cache.request(CLUSTER, path, self._now_s())
        if verdict is Verdict.CHECK:
            if is_fixed(path):
                self._cache.confirm(CLUSTER, path, self._now_s())
            else:
                return await asyncio.shield(self._checks.get(path) or self._start_check(path))
        return self._contents.get(path)

    def _start_check(self, path: str) -> asyncio.Task[Content | None]:
        self._checks[path] = task = asyncio.create_task(self._check(path))
        task.add_done_callback(lambda _: self._checks.pop(path, None))
        return task

    async def _check(self, path: str) -> Content | None:
        """Ask the origin whether a copy is still good; what it has now. An origin that is away changes nothing."""
        copy = self._contents[path]
        asked = self._now_s()
        try:
            newer = await self._fetch(path, copy.version)
        except NotFound:
            self._drop(path)
            return None
        except NewsstandError as error:
            logger.warning("page %s could not be checked and is served as it is: %s", path, error)
            return copy
        if newer is None:
            # As of when it was asked: what changed meanwhile is for the next check to find.
            self._cache.confirm(CLUSTER, path, asked)
            return copy
        self._renew(path, newer, asked)
        return newer

    async def _bring(self, path: str, turn: asyncio.Semaphore) -> None:
        """Fetch a page that the push-cache has taken, or its newer version; without its bytes it is not here."""
        held = self._contents.get(path)
        if held is not None and is_fixed(path):
            return
        asked = self._now_s()
        try:
            async with turn:
                content = await self._fetch(path, "" if held is None else held.version)
        except NewsstandError as error:
            logger.warning("page %s was pushed and could not be fetched: %s", path, error)
            self._drop(path)
            return
        if content is not None:
            self._renew(path, content, asked)

    def _renew(self, path: str, content: Content, asked: float) -> None:
        """The origin has given this content; it may be larger than it was said to be, and then has to fit."""
        self._contents[path] = content
        modified = content.modified_ms / 1000 or asked  # of unknown age is new: it is checked often
        self._cache.renew(CLUSTER, Offer(path, len(content.data), modified), asked)
        self._let_go()

    def _drop(self, path: str) -> None:
        self._cache.drop(CLUSTER, path)
        self._contents.pop(path, None)

    def _let_go(self) -> None:
        for path in [path for path in self._contents if (CLUSTER, path) not in self._cache]:
            del self._contents[path]
