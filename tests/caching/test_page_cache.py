"""What every live page cache owes its proxy, and chen2003's listings worked by hand."""

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
    def test_starts_empty(self, policy: str) -> None:
        cache = page_cache(policy, 100)
        assert (len(cache), cache.used, "page" in cache) == (0, 0, False)

    def test_stores_at_the_push_or_else_at_the_first_request(self, policy: str) -> None:
        cache = page_cache(policy, 100)
        pushes = POLICIES[policy].uses_push
        assert cache.push("page", 10, 3) is pushes
        assert cache.request("page", 10, 3) is pushes
        assert cache.request("page", 10, 3) is True
        assert (len(cache), cache.used, "page" in cache) == (1, 10, True)

    def test_hits_what_it_holds_and_nothing_else(self, policy: str) -> None:
        cache = page_cache(policy, 200)
        for page, size, subscriptions, is_push in visits():
            held = page in cache
            if is_push:
                cache.push(page, size, subscriptions)
            else:
                assert cache.request(page, size, subscriptions) is held

    def test_says_of_a_push_whether_it_stored_the_page(self, policy: str) -> None:
        cache = page_cache(policy, 200)
        for page, size, subscriptions, is_push in visits():
            held = page in cache
            if is_push:
                assert cache.push(page, size, subscriptions) is (page in cache and not held)
            else:
                cache.request(page, size, subscriptions)

    def test_keeps_within_its_capacity_and_tells_of_each_page_that_leaves_once(self, policy: str) -> None:
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

    def test_is_not_changed_by_a_push_of_a_page_it_holds(self, policy: str) -> None:
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

    def test_never_stores_a_page_larger_than_itself_and_evicts_nothing_for_it(self, policy: str) -> None:
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

    def test_stores_nothing_in_no_room(self, policy: str) -> None:
        cache = page_cache(policy, 0)
        for page, size, subscriptions, is_push in visits(length=200):
            assert visit(cache, page, size, subscriptions, is_push) is False
        assert (len(cache), cache.used) == (0, 0)

    def test_takes_anything_hashable_for_a_page(self, policy: str) -> None:
        cache = page_cache(policy, 4)
        for _ in range(3):
            for page in ("a", 1, ("b", 2), None, frozenset("c")):
                cache.push(page, 2, 1)
                cache.request(page, 2, 1)
        assert cache.used <= 4

    def test_goes_on_after_forgetting_pages_that_it_does_not_hold(self, policy: str) -> None:
        cache = page_cache(policy, 200)
        for page, size, subscriptions, is_push in visits():
            held = page in cache
            cache.forget(page)
            assert (page in cache) is held
            visit(cache, page, size, subscriptions, is_push)
            assert cache.used <= 200


def test_an_unknown_policy_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(UnknownPolicy, match="unknown policy 'mru'; known: gdstar, sub, "):
        page_cache("mru", 100)


def shelf(policy: str, capacity: int = 12) -> tuple[PageCache, list[Page]]:
    """A small cache with beta 1, and the list of what left it."""
    gone: list[Page] = []
    return page_cache(policy, capacity, beta=1.0, on_evict=gone.append), gone


def test_gdstar_evicts_the_fewest_accesses_per_byte() -> None:
    cache, gone = shelf("gdstar")
    hits = [cache.request(page, size) for page, size in [("A", 6), ("A", 6), ("B", 4), ("C", 4)]]
    assert hits == [False, True, False, False]
    assert gone == ["B"]  # 1/4, whereas A has 2/6


def test_gdstar_lets_old_popularity_fade() -> None:
    cache, gone = shelf("gdstar")
    for page in "AABCD":
        cache.request(page, 6)
    assert gone == ["B", "A"]  # L = 1/6 lifts C to the 2/6 of A, which is the older value


def test_gdstar_ignores_pushes() -> None:
    cache, _ = shelf("gdstar")
    assert not cache.push("A", 6, subscriptions=100)
    assert "A" not in cache


def test_sub_keeps_the_most_subscriptions_per_byte_whatever_is_requested() -> None:
    cache, gone = shelf("sub")
    assert [cache.push("A", 6, 3), cache.push("B", 6, 6)] == [True, True]
    assert [cache.request("A", 6, 3) for _ in range(9)] == [True] * 9
    assert cache.push("C", 6, 4)
    assert gone == ["A"]
    assert [cache.request("A", 6, 3) for _ in range(9)] == [False] * 9


def test_sub_refuses_a_page_unless_lower_ones_make_all_its_room() -> None:
    cache, gone = shelf("sub")
    assert [cache.push("A", 6, 3), cache.push("B", 6, 6)] == [True, True]
    assert not cache.push("equal to A", 6, 3)
    assert not cache.push("over A but as large as both", 12, 9)
    assert not gone


def test_sub_evicts_from_the_lowest_up_and_no_more_than_it_must() -> None:
    cache, gone = shelf("sub")
    assert all(cache.push(page, 4, count) for page, count in [("C", 3), ("A", 1), ("B", 2)])
    assert cache.push("D", 8, 8)
    assert gone == ["A", "B"]


def test_sg2_evicts_the_page_that_its_subscribers_have_read() -> None:
    cache, gone = shelf("sg2")
    assert [cache.push("A", 6, 2), cache.push("B", 6, 1)] == [True, True]
    assert [cache.request("A", 6, 2), cache.request("A", 6, 2)] == [True, True]
    assert cache.push("C", 6, 1)
    assert gone == ["A"]


def test_sg2_counts_the_requests_that_it_could_not_serve() -> None:
    cache, _ = shelf("sg2")
    assert cache.push("A", 12, 3)
    assert not cache.request("B", 12, 4)
    assert "B" not in cache
    assert not cache.push("B", 12, 4)  # 3/12 against 3/12, because one of the four has come and gone


def test_sg2_lets_in_by_recency_what_sr_refuses() -> None:
    recent, gone = shelf("sg2")
    steady, _ = shelf("sr")
    for cache in (recent, steady):
        assert [cache.push("A", 6, 2), cache.push("B", 6, 4), cache.push("C", 6, 3)] == [True] * 3
    assert (recent.push("D", 6, 3), gone) == (True, ["A", "B"])  # L = 2/6, so D has 5/6 against the 4/6 of B
    assert not steady.push("D", 6, 3)


def test_dc_lap_leaves_a_page_in_the_push_cache_that_fits_nowhere_else() -> None:
    cache, gone = shelf("dc-lap", capacity=16)
    for page in "ABC":
        cache.request(page, 4)  # C replaces A in the access cache, and B is stale
    assert cache.push("D", 12, 1)  # with the room of B the push cache has three quarters
    assert gone == ["A", "B"]
    assert [cache.request("D", 12), cache.request("C", 4), cache.request("D", 12)] == [True] * 3
    assert cache.push("E", 12, 2)
    assert gone == ["A", "B", "D"]


def test_forgetting_a_page_forgets_its_requests() -> None:
    cache, _ = shelf("sr")
    assert not cache.request("A", 12, 2)  # one request, evicted by
    assert cache.push("B", 12, 3)
    assert not cache.push("A", 12, 4)  # 3/12 against 3/12
    cache.forget("A")
    assert cache.push("A", 12, 4)  # 4/12


def test_a_page_that_is_cached_is_not_forgotten() -> None:
    cache, gone = shelf("sr")
    assert cache.push("A", 12, 4)
    assert [cache.request("A", 12, 4), cache.request("A", 12, 4)] == [True, True]
    cache.forget("A")
    assert cache.request("A", 12, 4)
    assert cache.push("B", 12, 2)  # 2/12 against 1/12
    assert gone == ["A"]


def test_a_tiny_beta_overflows_to_infinity_and_not_into_an_error() -> None:
    cache = page_cache("gdstar", capacity=2, beta=0.0005)
    assert [cache.request("A", 1), cache.request("A", 1), cache.request("A", 1)] == [False, True, True]
