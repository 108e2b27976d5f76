"""Access-time baselines and offline bounds: worked by hand, live against compiled, against oracles."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from newsstand.caching import POLICIES, Page, page_cache
from newsstand.caching.kernels.pages import HIT, MISS, REJECTED, STORED
from newsstand.caching.kernels.pages.compiled import compiled
from newsstand.errors import BadInput

ONLINE = [name for name, policy in POLICIES.items() if not (policy.uses_push or policy.offline)]
OFFLINE = ["belady-size", "pfoo-l", "pfoo-l-push"]


class Proxy(NamedTuple):
    """What one proxy sees: a page's number for a request, its complement for a push."""

    events: list[int]
    sizes: list[int]
    subscriptions: list[int]
    capacity: int


def replay(name: str, proxy: Proxy) -> list[int]:
    outcome = np.full(len(proxy.events), 255, np.uint8)
    events = np.array(proxy.events, np.int32)
    sizes, subscriptions = np.array(proxy.sizes, np.int64), np.array(proxy.subscriptions, np.int64)
    compiled(POLICIES[name])(events, sizes, subscriptions, proxy.capacity, 2.0, outcome)
    return outcome.tolist()


def live(name: str, proxy: Proxy) -> list[int]:
    """The outcomes of the page cache, which keeps its own books right at every event."""
    held: dict[Page, int] = {}
    cache = page_cache(name, proxy.capacity, on_evict=held.__delitem__)
    outcome = []
    for event in proxy.events:
        page = event if event >= 0 else ~event
        was_held = page in held
        if event < 0:
            outcome.append(STORED if cache.push(page, proxy.sizes[page], proxy.subscriptions[page]) else REJECTED)
        else:
            hit = cache.request(page, proxy.sizes[page], proxy.subscriptions[page])
            assert hit == was_held
            outcome.append(HIT if hit else MISS)
        if page in cache:
            held[page] = proxy.sizes[page]
        assert len(cache) == len(held)
        assert cache.used == sum(held.values()) <= cache.capacity
    return outcome


def hits(outcome: Iterable[int]) -> int:
    return list(outcome).count(HIT)


@st.composite
def proxies(draw: st.DrawFn, pages: int = 8, events: int = 60, capacity: int = 50) -> Proxy:
    count = draw(st.integers(0, pages))
    size = st.integers(1, 12) | st.integers(1, 40)
    return Proxy(
        draw(st.lists(st.integers(-count, count - 1), max_size=events)) if count else [],
        draw(st.lists(size, min_size=count, max_size=count)),
        draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)),
        draw(st.integers(0, capacity)),
    )


def skewed(seed: int, pages: int, length: int, largest: int, capacity: int) -> Proxy:
    """A longer trace in which popularity drifts, one event in five a push."""
    rng = random.Random(seed)
    asked = [int(pages * rng.random() ** 3 + now * pages / length / 2) % pages for now in range(length)]
    events = [~page if rng.random() < 0.2 else page for page in asked]
    sizes = [rng.randint(1, largest) for _ in range(pages)]
    return Proxy(events, sizes, [rng.randint(0, 4) for _ in range(pages)], capacity)


def victims(name: str, capacity: int, requests: Iterable[tuple[str, int]]) -> tuple[str, list[Page]]:
    """Which requests hit (`+`) and miss (`-`), and the pages evicted, in order."""
    gone: list[Page] = []
    cache = page_cache(name, capacity, on_evict=gone.append)
    return "".join("+" if cache.request(page, size) else "-" for page, size in requests), gone


def unit(pages: str) -> list[tuple[str, int]]:
    return [(page, 1) for page in pages]


def test_sieve_spares_visited_page_once_and_continues_from_there() -> None:
    assert victims("sieve", 3, unit("ABCADBACA")) == ("---+--+-+", ["B", "C", "D"])


def test_sieve_starts_over_at_oldest_after_evicting_newest() -> None:
    assert victims("sieve", 2, unit("ABACD")) == ("--+--", ["B", "A"])


def test_sieve_evicts_until_page_fits_and_rejects_page_larger_than_cache() -> None:
    assert victims("sieve", 4, [("A", 1), ("B", 2), ("A", 1), ("C", 3), ("D", 5), ("A", 1)]) == (
        "--+--+",
        ["B"],
    )


def test_s3_fifo_uses_all_its_queues() -> None:
    # Capacity 10: A fills the small queue, B to J the main one. K sends A to the ghost, so A returns to main.
    assert victims("s3-fifo", 10, unit("ABCDEFGHIJ" + "KA")) == ("-" * 12, ["A", "K"])
    # Main is over its share, so B leaves for L; C is hit; M takes L's place, is hit twice and, when N comes,
    # goes to main, where the hit spares C and D leaves.
    assert victims("s3-fifo", 10, unit("ABCDEFGHIJ" + "KA" + "LCMMMN")) == (
        "-" * 12 + "-+-++-",
        ["A", "K", "B", "L", "D"],
    )


def test_s3_fifo_caches_page_larger_than_its_small_queue() -> None:
    assert victims("s3-fifo", 10, [("A", 10), ("A", 10), ("B", 11), ("A", 10)]) == ("-+-+", [])


def test_w_tinylfu_requires_candidate_more_frequent_than_all_victims() -> None:
    # Capacity 10: no window, 8 protected. A is protected; C must be asked for twice, D five times.
    half = [(page, 5) for page in "ABACC"]
    assert victims("w-tinylfu", 10, [*half, *[("D", 10)] * 6]) == ("--+-------+", ["B", "C", "A"])


def test_w_tinylfu_ages_its_counters() -> None:
    # After ten additions A counts 5; after five more, A and B count 2 each; the next is B's third.
    assert victims("w-tinylfu", 1, unit("A" * 10 + "B" * 7)) == ("-" + "+" * 9 + "-" * 6 + "+", ["A"])


def test_w_tinylfu_takes_candidates_from_window() -> None:
    # Capacity 200: a window of 2. X fills the main cache; B loses against it, A wins.
    asked = [("X", 198), *unit("ABACD")]
    assert victims("w-tinylfu", 200, asked) == ("---+--", ["B", "X"])


@pytest.mark.parametrize("name", ONLINE)
@settings(max_examples=examples(150))
@given(proxy=proxies() | proxies(capacity=400))
def test_access_time_policies_agree_with_kernels_on_every_event(name: str, proxy: Proxy) -> None:
    assert replay(name, proxy) == live(name, proxy)


@pytest.mark.parametrize("name", ONLINE)
@pytest.mark.parametrize("largest", [1, 9, 120])
@pytest.mark.parametrize("capacity", [5, 150, 1000])
def test_access_time_policies_agree_with_kernels_on_long_traces(name: str, largest: int, capacity: int) -> None:
    for seed in range(3):
        proxy = skewed(seed, pages=150, length=2500, largest=largest, capacity=capacity)
        assert replay(name, proxy) == live(name, proxy)


@pytest.mark.parametrize("name", [*ONLINE, "belady-size", "pfoo-l"])
@settings(max_examples=examples(50))
@given(proxy=proxies())
def test_access_time_policies_ignore_pushes(name: str, proxy: Proxy) -> None:
    outcome = replay(name, proxy)
    requests = [page for page in proxy.events if page >= 0]
    assert all((o == REJECTED) == (event < 0) for o, event in zip(outcome, proxy.events, strict=True))
    assert [o for o in outcome if o != REJECTED] == replay(name, proxy._replace(events=requests))


@pytest.mark.parametrize("name", OFFLINE)
def test_offline_policy_cannot_run_live(name: str) -> None:
    assert POLICIES[name].offline
    with pytest.raises(BadInput, match="knows the future"):
        page_cache(name, 10)


def splitmix(counter: int) -> int:
    z = (counter + 1) * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return (z ^ z >> 31) >> 32


def belady_size(proxy: Proxy) -> list[int]:
    """The plain reading: a list for a cache, the last entry fills a gap, the future is searched."""
    entries: list[int] = []
    evictions = 0
    outcome = []

    def drop(page: int) -> None:
        entries[entries.index(page)] = entries[-1]
        entries.pop()

    def worst(future: list[int]) -> int:
        n, sample = len(entries), entries
        if n > 128:
            sample = [entries[splitmix(128 * evictions + draw) * n >> 32] for draw in range(128)]
        distance = {page: future.index(page) + 1 for page in sample}
        return max(sample, key=lambda page: (proxy.sizes[page] * distance[page], distance[page]))

    for now, page in enumerate(proxy.events):
        future = proxy.events[now + 1 :]
        outcome.append(HIT if page in entries else MISS)
        if page in entries:
            if page not in future:
                drop(page)
        elif page in future and proxy.sizes[page] <= proxy.capacity:
            while sum(proxy.sizes[entry] for entry in entries) + proxy.sizes[page] > proxy.capacity:
                drop(worst(future))
                evictions += 1
            entries.append(page)
    return outcome


@settings(max_examples=examples(100))
@given(proxy=proxies())
def test_belady_size_agrees_with_plain_reading(proxy: Proxy) -> None:
    proxy = proxy._replace(events=[page for page in proxy.events if page >= 0])
    assert replay("belady-size", proxy) == belady_size(proxy)


def test_belady_size_samples_when_there_are_many_entries() -> None:
    proxy = skewed(5, pages=400, length=2500, largest=9, capacity=1000)
    proxy = proxy._replace(events=[page for page in proxy.events if page >= 0])
    assert replay("belady-size", proxy) == belady_size(proxy)


def test_pfoo_takes_cheapest_intervals() -> None:
    proxy = Proxy([0, ~1, 1, 0, 2, 2, 1, 0], [2, 1, 3], [0, 1, 0], 2)
    # Page 2 is too large.
    # In events: page 1 costs 1 x 1 and 1 x 4, page 0 costs 2 x 3 and 2 x 4, of a budget of 2 x 8.
    assert replay("pfoo-l-push", proxy) == [MISS, STORED, HIT, HIT, MISS, MISS, HIT, MISS]
    # In requests: page 1 costs 1 x 4, page 0 costs 2 x 2 and 2 x 4, of a budget of 2 x 7.
    assert replay("pfoo-l", proxy) == [MISS, REJECTED, MISS, HIT, MISS, MISS, HIT, MISS]


def best_possible(proxy: Proxy, *, pushes: bool) -> int:
    """The most hits that any sequence of decisions attains, by trying them all."""
    best = {frozenset[int](): 0}
    for event in proxy.events:
        page = event if event >= 0 else ~event
        after: dict[frozenset[int], int] = {}
        for cached, so_far in best.items():
            count = so_far + (event >= 0 and page in cached)
            offered = cached | {page} if event >= 0 or pushes else cached
            for keep in range(len(offered) + 1):
                for kept in map(frozenset, itertools.combinations(offered, keep)):
                    if sum(proxy.sizes[p] for p in kept) <= proxy.capacity:
                        after[kept] = max(after.get(kept, 0), count)
        best = after
    return max(best.values())


@settings(max_examples=examples(150))
@given(proxy=proxies(pages=5, events=14, capacity=30))
def test_pfoo_is_at_least_best_possible(proxy: Proxy) -> None:
    assert hits(replay("pfoo-l", proxy)) >= best_possible(proxy, pushes=False)
    assert hits(replay("pfoo-l-push", proxy)) >= best_possible(proxy, pushes=True)


@pytest.mark.parametrize("name", [name for name in POLICIES if not name.startswith("pfoo")])
def test_pfoo_is_beaten_by_no_policy(name: str) -> None:
    policy = POLICIES[name]
    decide: Callable[[str, Proxy], list[int]] = replay if policy.offline else live
    for seed, capacity in itertools.product(range(3), [0, 3, 60, 300]):
        proxy = skewed(seed, pages=80, length=800, largest=20, capacity=capacity)
        attained = hits(decide(name, proxy))
        assert attained <= hits(replay("pfoo-l-push", proxy))
        assert policy.uses_push or attained <= hits(replay("pfoo-l", proxy))


@pytest.mark.parametrize("name", ["pfoo-l", "pfoo-l-push"])
@settings(max_examples=examples(50))
@given(proxy=proxies())
def test_pfoo_survives_budgets_beyond_64_bits(name: str, proxy: Proxy) -> None:
    scale = 2**55
    huge = proxy._replace(sizes=[size * scale for size in proxy.sizes], capacity=proxy.capacity * scale)
    assert replay(name, huge) == replay(name, proxy)
