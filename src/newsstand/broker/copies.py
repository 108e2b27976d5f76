"""Copies of popular pages that the origin has pushed here (Gwertzman and Seltzer 1995), live.

Which pages stay and when one has to be checked is for the push-cache to say (`planning.push_cache`). Here are
their bytes: fetched from the origin when the push-cache takes an offer, and when a check finds a newer version.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from newsstand.broker.page_content import Content, TooLarge, is_fixed
from newsstand.errors import BadInput, NewsstandError, NotFound
from newsstand.model import is_page_path
from newsstand.planning.push_cache import CacheCounts, PushCache, Verdict
from newsstand.planning.push_offers import Offer, Taken
from newsstand.planning.push_room import Room

logger = logging.getLogger(__name__)
CLUSTER = 1
"""The number of the only origin that pushes to a broker: its data cluster, which may use all of the room."""
AGAIN_S = 5.0
"""How long copies are served without another try, after a check that failed."""
PUSH_S = 40.0
"""How long the pages of one push are waited for: the origin waits for the answer no longer than a minute."""


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

    def __init__(
        self, room: int, largest: int, fetch: Fetch, now_s: Callable[[], float], *, push_s: float = PUSH_S
    ) -> None:
        """A page of more than `largest` bytes is not taken: `fetch` would refuse it."""
        self._largest = largest
        self._cache: PushCache[str] = PushCache(Room(size=room), origin_share=1.0)
        self._fetch = fetch
        self._now_s = now_s
        self._push_s = push_s
        self._contents: dict[str, Content] = {}
        self._checks: dict[str, asyncio.Task[Content | None]] = {}
        self._asked_in_vain: dict[str, float] = {}
        """When a check of a copy has failed last."""
        self._pushing = asyncio.Lock()
        self.changed = asyncio.Event()
        """Set when a push has changed what is here."""

    @property
    def counts(self) -> CacheCounts:
        return self._cache.counts

    @property
    def bytes(self) -> int:
        """Bytes of the pages that are here."""
        return self._cache.used.size

    def __len__(self) -> int:
        return len(self._contents)

    def __contains__(self, path: object) -> bool:
        return path in self._contents

    @property
    def paths(self) -> list[str]:
        """All pages that are here."""
        return list(self._contents)

    async def pushed(self, pages: Sequence[PushedPage]) -> Kept:
        """The origin offers pages: fetch those that are worth it, then take them, and say which are here.

        Nothing makes room for a page before it has come.
        """
        async with self._pushing:
            offers = [
                Offer(one.path, one.size, one.modified_ms / 1000, one.requests)
                for one in pages
                if one.size <= self._largest
            ]
            before, begun = set(self._contents), self._now_s()
            wanted = set(self._cache.would_keep(CLUSTER, offers, begun))
            self.counts.refused += len(pages) - len(wanted)
            come = await self._bring_all([one for one in offers if one.page in wanted])
            fetched = {offer.page: (offer, content) for offer, content in come}
            taken = self._cache.push(CLUSTER, [offer for offer, _ in fetched.values()], begun)
            self._contents |= {path: fetched[path][1] for path in taken.kept}
            self._let_go(taken)
            if before != self._contents.keys():
                self.changed.set()
            return Kept(list(taken.kept), sorted(before - self._contents.keys()))

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
        if asked < self._asked_in_vain.get(path, -math.inf) + AGAIN_S:
            return copy
        try:
            newer = await self._fetch(path, copy.version)
        except (NotFound, TooLarge):
            self._drop(path)
            return None
        except NewsstandError as error:
            logger.warning("page %s could not be checked and is served as it is: %s", path, error)
            self._asked_in_vain[path] = self._now_s()
            return copy
        self._asked_in_vain.pop(path, None)
        if newer is None:
            # As of when it was asked: what changed meanwhile is for the next check to find.
            self._cache.confirm(CLUSTER, path, asked)
            return copy
        held = self._contents.get(path)
        if held is not None and held.modified_ms > newer.modified_ms:  # a push was faster
            return held
        taken = self._cache.renew(CLUSTER, _offer(path, newer, asked), asked)
        if taken.kept:
            self._contents[path] = newer
        else:
            self._contents.pop(path, None)
        self._let_go(taken)
        return newer

    async def _bring_all(self, offers: Sequence[Offer[str]]) -> list[tuple[Offer[str], Content]]:
        """Fetch pages; those that come too late are left out, so that a slow server delays no others."""
        tasks = [asyncio.create_task(self._bring(one)) for one in offers]
        if not tasks:
            return []
        try:
            _, late = await asyncio.wait(tasks, timeout=self._push_s)
        finally:
            for task in tasks:
                task.cancel()
        if late:
            logger.warning(
                "%d of %d pages of a push did not come within %g s", len(late), len(tasks), self._push_s
            )
        return [come for task in tasks if task not in late and (come := task.result()) is not None]

    async def _bring(self, offer: Offer[str]) -> tuple[Offer[str], Content] | None:
        """Fetch a page that is worth it; what is here already is only checked. None if it cannot be had."""
        held = self._contents.get(offer.page)
        if held is not None and is_fixed(offer.page):
            return offer, held
        asked = self._now_s()
        try:
            content = await self._fetch(offer.page, "" if held is None else held.version) or held
        except NewsstandError as error:
            logger.warning("page %s was pushed and could not be fetched: %s", offer.page, error)
            return None
        assert content is not None  # without a version to compare with there is always an answer
        return _offer(offer.page, content, asked, offer.requests), content

    def _drop(self, path: str) -> None:
        self._cache.drop(CLUSTER, path)
        self._contents.pop(path, None)
        self._asked_in_vain.pop(path, None)

    def _let_go(self, taken: Taken[str]) -> None:
        for _, path in taken.left:
            if (CLUSTER, path) not in self._cache:
                self._contents.pop(path, None)
                self._asked_in_vain.pop(path, None)


def _offer(path: str, content: Content, asked: float, requests: float = 0.0) -> Offer[str]:
    """A page as it has come, which may not be as it was said to be. Of unknown age is new, to be checked often."""
    return Offer(path, len(content.data), content.modified_ms / 1000 or asked, requests)
