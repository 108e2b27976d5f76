"""Rules of every live page cache, and chen2003's listings worked by hand."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from newsstand.caching import POLICIES, Page, PageCache, page_cache
from newsstand.errors import UnknownPolicy

LIVE = [name for name, policy in POLICIES.items() if not policy.offline]


def visits(seed: int = 1, length: int = 1500) -> Iterator[tuple[str, int, int, bool]]:
    """A page, its size, its subscriptions, and whether it is pushed or requested."""
    chance = random.Random(seed)
    sizes = [chance.randint(1, 40) for _ in range(60)]
    subscriptions = [chance.randint(0, 5) for _ in range(60)]
    for now in range(length):
        page = (int(60 * chance.random() ** 2) + now // 50) % 60
        yield f"page {page}", sizes[page], subscriptions[page], chance.random() < 0.3


def visit(cache: PageCache, page: str, size: int, subscriptions: int, is_push: bool) -> bool:
    return (cache.push if is_push else cache.request)(page, size, subscriptions)


@pytest.mark.parametrize("policy", LIVE)
class TestEveryPageCache:
    def test_page_cache_starts_empty(self, policy: str) -> None:
        cache = page_cache(policy, 100)
        assert (len(cache), cache.used, "page" in cache) == (0, 0, False)

    def test_page_cache_stores_at_push_or_first_request(self, policy: str) -> None:
        cache = page_cache(policy, 100)
        pushes = POLICIES[policy].uses_push
        assert cache.push("page", 10, 3) is pushes
        assert cache.request("page", 10, 3) is pushes
        assert cache.request("page", 10, 3) is True
        assert (len(cache), cache.used, "page" in cache) == (1, 10, True)

    def test_page_cache_hits_cached_pages_only(self, policy: str) -> None:
        cache = page_cache(policy, 200)
        for page, size, subscriptions, is_push in visits():
            held = page in cache
            if is_push:
                cache.push(page, size, subscriptions)
            else:
                assert cache.request(page, size, subscriptions) is held

    def test_page_cache_push_returns_whether_page_is_stored(self, policy: str) -> None:
        cache = page_cache(policy, 200)
        for page, size, subscriptions, is_push in visits():
            held = page in cache
            if is_push:
                assert cache.push(page, size, subscriptions) is (page in cache and not held)
            else:
                cache.request(page, size, subscriptions)

    def test_page_cache_keeps_capacity_and_reports_evictions_once(self, policy: str) -> None:
        held: dict[Page, int] = {}
        gone: list[Page] = []

        def leave(page: Page) -> None:
            assert page not in cache
            del held[page]
            gone.append(page)

        cache = page_cache(policy, 200, on_evict=leave)
        for page, size, subscriptions, is_push in visits():
            visit(cache, page, size, subscriptions, is_push)
            if page in cache:
                held[page] = size
            assert all(page in cache for page in held)
            assert len(cache) == len(held)
            assert cache.used == sum(held.values()) <= 200
        assert gone

    def test_page_cache_ignores_push_of_cached_page(self, policy: str) -> None:
        gone: list[Page] = []
        gone_from_twin: list[Page] = []
        cache = page_cache(policy, 200, on_evict=gone.append)
        twin = page_cache(policy, 200, on_evict=gone_from_twin.append)
        for page, size, subscriptions, is_push in visits():
            assert visit(cache, page, size, subscriptions, is_push) == visit(
                twin, page, size, subscriptions, is_push
            )
            if page in twin:
                assert twin.push(page, size, subscriptions + 1) is False
        assert gone == gone_from_twin
        assert gone

    def test_page_cache_rejects_page_larger_than_capacity(self, policy: str) -> None:
        gone: list[Page] = []
        cache = page_cache(policy, 100, on_evict=gone.append)
        for small in ("first", "second"):
            cache.push(small, 10, 1)
            cache.request(small, 10, 1)
        for _ in range(30):
            assert cache.push("huge", 101, 1000) is False
            assert cache.request("huge", 101, 1000) is False
        assert "huge" not in cache
        assert not gone
        assert (len(cache), cache.used) == (2, 20)

    def test_page_cache_without_capacity_is_empty(self, policy: str) -> None:
        cache = page_cache(policy, 0)
        for page, size, subscriptions, is_push in visits(length=200):
            assert visit(cache, page, size, subscriptions, is_push) is False
        assert (len(cache), cache.used) == (0, 0)

    def test_page_cache_takes_hashable_pages(self, policy: str) -> None:
        cache = page_cache(policy, 4)
        for _ in range(3):
            for page in ("a", 1, ("b", 2), None, frozenset("c")):
                cache.push(page, 2, 1)
                cache.request(page, 2, 1)
        assert cache.used <= 4

    def test_page_cache_forgets_uncached_pages(self, policy: str) -> None:
        cache = page_cache(policy, 200)
        for page, size, subscriptions, is_push in visits():
            held = page in cache
            cache.forget(page)
            assert (page in cache) is held
            visit(cache, page, size, subscriptions, is_push)
            assert cache.used <= 200


def test_page_cache_rejects_unknown_policy() -> None:
    with pytest.raises(UnknownPolicy, match="unknown policy 'mru'; known: gdstar, sub, "):
        page_cache("mru", 100)


def small_cache(policy: str, capacity: int = 12) -> tuple[PageCache, list[Page]]:
    """A small cache with beta 1, and the list of what left it."""
    gone: list[Page] = []
    return page_cache(policy, capacity, beta=1.0, on_evict=gone.append), gone


def test_gdstar_evicts_fewest_accesses_per_byte() -> None:
    cache, gone = small_cache("gdstar")
    hits = [cache.request(page, size) for page, size in [("A", 6), ("A", 6), ("B", 4), ("C", 4)]]
    assert hits == [False, True, False, False]
    assert gone == ["B"]  # 1/4, whereas A has 2/6


def test_gdstar_ages_popularity() -> None:
    cache, gone = small_cache("gdstar")
    for page in "AABCD":
        cache.request(page, 6)
    assert gone == ["B", "A"]  # L = 1/6 lifts C to the 2/6 of A, which is the older value


def test_gdstar_ignores_pushes() -> None:
    cache, _ = small_cache("gdstar")
    assert not cache.push("A", 6, subscriptions=100)
    assert "A" not in cache


def test_sub_keeps_most_subscriptions_per_byte_despite_requests() -> None:
    cache, gone = small_cache("sub")
    assert [cache.push("A", 6, 3), cache.push("B", 6, 6)] == [True, True]
    assert [cache.request("A", 6, 3) for _ in range(9)] == [True] * 9
    assert cache.push("C", 6, 4)
    assert gone == ["A"]
    assert [cache.request("A", 6, 3) for _ in range(9)] == [False] * 9


def test_sub_rejects_page_unless_lower_ones_make_all_its_room() -> None:
    cache, gone = small_cache("sub")
    assert [cache.push("A", 6, 3), cache.push("B", 6, 6)] == [True, True]
    assert not cache.push("equal to A", 6, 3)
    assert not cache.push("over A but as large as both", 12, 9)
    assert not gone


def test_sub_evicts_from_lowest_up_and_no_more_than_necessary() -> None:
    cache, gone = small_cache("sub")
    assert all(cache.push(page, 4, count) for page, count in [("C", 3), ("A", 1), ("B", 2)])
    assert cache.push("D", 8, 8)
    assert gone == ["A", "B"]


def test_sg2_evicts_page_that_its_subscribers_have_read() -> None:
    cache, gone = small_cache("sg2")
    assert [cache.push("A", 6, 2), cache.push("B", 6, 1)] == [True, True]
    assert [cache.request("A", 6, 2), cache.request("A", 6, 2)] == [True, True]
    assert cache.push("C", 6, 1)
    assert gone == ["A"]


def test_sg2_counts_requests_that_it_could_not_serve() -> None:
    cache, _ = small_cache("sg2")
    assert cache.push("A", 12, 3)
    assert not cache.request("B", 12, 4)
    assert "B" not in cache
    assert not cache.push("B", 12, 4)  # 3/12 against 3/12, because one of the four has come and gone


def test_sg2_accepts_by_recency_page_that_sr_rejects() -> None:
    recent, gone = small_cache("sg2")
    steady, _ = small_cache("sr")
    for cache in (recent, steady):
        assert [cache.push("A", 6, 2), cache.push("B", 6, 4), cache.push("C", 6, 3)] == [True] * 3
    assert (recent.push("D", 6, 3), gone) == (True, ["A", "B"])  # L = 2/6, so D has 5/6 against the 4/6 of B
    assert not steady.push("D", 6, 3)


def test_dc_lap_leaves_page_in_push_cache_that_fits_nowhere_else() -> None:
    cache, gone = small_cache("dc-lap", capacity=16)
    for page in "ABC":
        cache.request(page, 4)  # C replaces A in the access cache, and B is stale
    assert cache.push("D", 12, 1)  # with the room of B the push cache has three quarters
    assert gone == ["A", "B"]
    assert [cache.request("D", 12), cache.request("C", 4), cache.request("D", 12)] == [True] * 3
    assert cache.push("E", 12, 2)
    assert gone == ["A", "B", "D"]


def test_page_cache_forget_drops_requests() -> None:
    cache, _ = small_cache("sr")
    assert not cache.request("A", 12, 2)  # one request, evicted by
    assert cache.push("B", 12, 3)
    assert not cache.push("A", 12, 4)  # 3/12 against 3/12
    cache.forget("A")
    assert cache.push("A", 12, 4)  # 4/12


def test_page_cache_forget_ignores_cached_page() -> None:
    cache, gone = small_cache("sr")
    assert cache.push("A", 12, 4)
    assert [cache.request("A", 12, 4), cache.request("A", 12, 4)] == [True, True]
    cache.forget("A")
    assert cache.request("A", 12, 4)
    assert cache.push("B", 12, 2)  # 2/12 against 1/12
    assert gone == ["A"]


def test_balance_overflows_to_infinity() -> None:
    cache = page_cache("gdstar", capacity=2, beta=0.0005)
    assert [cache.request("A", 1), cache.request("A", 1), cache.request("A", 1)] == [False, True, True]
