"""The match cache: which pushed pages it stores, and who fetches a page."""

from __future__ import annotations

import asyncio

import pytest
from support.event_loops import run

from newsstand.broker.cluster_client.client import (
    ClusterUnavailable,
)
from newsstand.broker.pages.content import PageContent
from newsstand.broker.pages.match_cache import MatchCache
from newsstand.caching import POLICIES, live_page_policies
from newsstand.errors import BadInput, BadOption, NewsstandError, NotFound


class Origin:
    """Where pages come from."""

    def __init__(self, **sizes: int) -> None:
        self.sizes = sizes
        self.fetched: list[str] = []
        self.let = asyncio.Event()
        self.let.set()
        self.fault: NewsstandError | None = None

    async def __call__(self, page: str) -> PageContent:
        self.fetched.append(page)
        await self.let.wait()
        if self.fault is not None:
            raise self.fault
        if page not in self.sizes:
            raise NotFound(f"there is no page '{page}'")
        return PageContent(page.encode()[:1] * self.sizes[page], "text/plain")


async def quiet() -> None:
    await asyncio.sleep(0.005)


def test_match_cache_serves_a_wanted_page_that_was_pushed() -> None:
    async def story() -> None:
        origin = Origin(a=10)
        received = []
        match_cache = MatchCache("sg2", 100, origin, on_push=lambda *offered: received.append(offered))
        match_cache.offer("a", 10, 3)
        match_cache.offer("a", 10, 3)
        await quiet()
        content, hit = await match_cache.get("a")
        assert (content.data, hit) == (b"a" * 10, True)
        assert (origin.fetched, match_cache.bytes, len(match_cache), match_cache.counts.pushed) == (
            ["a"],
            10,
            1,
            1,
        )
        assert received == [("a", 10, 3, True)]

    run(story)


def test_needed_fetches_nothing_that_would_not_be_stored_and_always_does() -> None:
    async def story() -> None:
        origin = Origin(large=500, small=10)
        match_cache = MatchCache("sg2", 100, origin)
        match_cache.offer("large", 500, 3)
        match_cache.offer("empty", 0, 3)
        await quiet()
        assert (origin.fetched, match_cache.counts.push_rejected) == ([], 1)
        match_cache.reconfigure("sg2", 100, "always")
        match_cache.offer("large", 500, 3)
        match_cache.offer("small", 10, 3)
        await quiet()
        assert origin.fetched == ["large", "small"]
        assert (match_cache.counts.pushed, match_cache.counts.push_rejected, len(match_cache)) == (2, 2, 1)

    run(story)


def test_concurrent_readers_of_a_page_fetch_it_once() -> None:
    async def story() -> None:
        origin = Origin(a=10)
        origin.let.clear()
        match_cache = MatchCache("gdstar", 100, origin)
        readers = [asyncio.create_task(match_cache.get("a")) for _ in range(5)]
        await quiet()
        readers.pop().cancel()
        match_cache.offer("a", 10, 1)
        origin.let.set()
        got = await asyncio.gather(*readers)
        assert {hit for _, hit in got} == {False}
        assert (await match_cache.get("a"))[1] is True
        assert (origin.fetched, match_cache.counts.misses, match_cache.counts.hits) == (["a"], 4, 1)

    run(story)


def test_reader_waits_for_running_push() -> None:
    async def story() -> None:
        origin = Origin(a=10)
        origin.let.clear()
        match_cache = MatchCache("sg2", 100, origin)
        match_cache.offer("a", 10, 1)
        reader = asyncio.create_task(match_cache.get("a"))
        await quiet()
        origin.let.set()
        await reader
        assert origin.fetched == ["a"]
        assert (await match_cache.get("a"))[1] is True

    run(story)


def test_evicted_page_is_no_longer_cached() -> None:
    async def story() -> None:
        origin = Origin(a=60, b=60)
        match_cache = MatchCache("lru", 100, origin)
        for page in "ab":
            await match_cache.get(page)
        assert (len(match_cache), match_cache.bytes) == (1, 60)
        assert (await match_cache.get("a"))[1] is False

    run(story)


def test_page_fetched_again_after_failure() -> None:
    async def story() -> None:
        origin = Origin(a=10)
        origin.fault = ClusterUnavailable("not now")
        match_cache = MatchCache("sg2", 100, origin)
        match_cache.offer("a", 10, 2)
        await quiet()
        with pytest.raises(ClusterUnavailable):
            await match_cache.get("a")
        origin.fault = None
        assert (await match_cache.get("a"))[1] is False
        assert (await match_cache.get("a"))[1] is True
        with pytest.raises(NotFound):
            await match_cache.get("b")

    run(story)


def test_page_too_large_for_memory_takes_no_room() -> None:
    async def story() -> None:
        origin = Origin(b=60)
        match_cache = MatchCache("sg2", 100, origin, largest=70)
        match_cache.offer("a", 80, 9)
        await quiet()
        assert (origin.fetched, match_cache.counts.push_rejected) == ([], 1)
        match_cache.offer("b", 60, 1)
        await quiet()
        assert (await match_cache.get("b"))[1] is True

    run(story)


@pytest.mark.parametrize("policy", live_page_policies())
def test_switch_to_any_policy_keeps_what_fits(policy: str) -> None:
    async def story() -> None:
        origin = Origin(a=10, b=20, c=30)
        match_cache = MatchCache("sg2", 100, origin)
        for page, size in origin.sizes.items():
            match_cache.offer(page, size, 2)
        await quiet()
        match_cache.reconfigure(policy, 45, "needed")
        assert match_cache.bytes <= 45
        for _ in range(2):
            for page, size in origin.sizes.items():
                content, _ = await match_cache.get(page)
                assert len(content.data) == size
        assert match_cache.bytes <= 45

    run(story)


def test_invalid_arrangement_changes_nothing() -> None:
    async def story() -> None:
        match_cache = MatchCache("sg2", 100, Origin())
        future = next(name for name in POLICIES if name not in live_page_policies())
        for policy, capacity, push in ((future, 1, "needed"), ("nonsense", 1, "needed"), ("sg2", -1, "needed")):
            with pytest.raises(BadInput):
                match_cache.reconfigure(policy, capacity, push)  # type: ignore[arg-type]
        with pytest.raises(BadOption):
            match_cache.reconfigure("sg2", 1, "sometimes")  # type: ignore[arg-type]
        assert (match_cache.policy, match_cache.capacity, match_cache.push) == ("sg2", 100, "needed")

    run(story)
