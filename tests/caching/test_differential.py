"""Live cache, kernel and oracle take the same decisions on any trace."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.caching import page_oracle
from support.caching.replays import ProxyTimeline, arrange, by_proxy, live, replay
from support.caching.traces import Publication, Request, Subscription, Trace
from support.profiles import examples

from newsstand.caching import POLICIES

PROXY = 7
MOMENTS = 21
SIZES = [1, 2, 3, 4, 5, 6]
BETAS = [0.5, 1.0, 2.0, 0.7, 4.0]
CROWDED = 120


def tables(times: list[int], sizes: list[int], counts: list[int], requests: list[tuple[int, int]]) -> Trace:
    """A trace of one proxy, from what is known of each page, and from the time and page of each request."""
    return Trace(
        [Publication(*row) for row in zip(range(len(times)), times, sizes, strict=True)],
        [Request(time, PROXY, page) for time, page in requests],
        [Subscription(PROXY, page, count) for page, count in enumerate(counts)],
    )


def arranged(trace: Trace) -> ProxyTimeline:
    (seen,) = by_proxy(arrange(trace))
    return seen


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Few pages, few sizes, few moments: values tie, events coincide, requests come before publications.

    Columns are drawn as bytes of a chosen length, so that long traces are as likely as short ones.
    """
    pages, requests = draw(st.sampled_from([1, 4, 12])), draw(st.sampled_from([0, 8, 64]))
    sizes = draw(st.sampled_from([SIZES[:1], [2, 4], SIZES[:3], SIZES]))
    time, size, count = (draw(st.binary(min_size=pages, max_size=pages)) for _ in range(3))
    asked = draw(st.binary(min_size=requests, max_size=requests))
    return tables(
        [byte % MOMENTS for byte in time],
        [sizes[byte % len(sizes)] for byte in size],
        [byte % 4 for byte in count],
        [(byte // 12, byte % pages) for byte in asked],
    )


@pytest.mark.parametrize("policy", page_oracle.POLICIES)
@settings(max_examples=examples(100))
@given(trace=traces(), capacity=st.integers(0, 20) | st.just(12 * max(SIZES)), beta=st.sampled_from(BETAS))
def test_oracle_cache_and_kernel_agree_on_every_event(
    policy: str, trace: Trace, capacity: int, beta: float
) -> None:
    events = trace.events(PROXY)
    steps = page_oracle.replay(policy, events, capacity, beta)
    assert live(policy, events, capacity, beta) == steps
    assert replay(policy, arranged(trace), capacity, beta) == [step.outcome for step in steps]


def test_oracle_has_all_policies_with_scoring_functions() -> None:
    assert {name for name, policy in POLICIES.items() if policy.score is not None} == set(page_oracle.TABLE)


@cache
def crowded(seed: int) -> tuple[Trace, ProxyTimeline, int, float]:
    """A trace in which hardly an event goes without ties and evictions, a capacity and a beta."""
    random = np.random.default_rng(seed)
    pages, requests = int(random.integers(8, 25)), int(random.integers(20, 80))
    trace = tables(
        random.integers(0, MOMENTS, pages).tolist(),
        random.choice(SIZES[: random.integers(1, 7)], pages).tolist(),
        random.integers(0, 4, pages).tolist(),
        [(int(random.integers(0, MOMENTS)), int(pages * random.random() ** 2)) for _ in range(requests)],
    )
    return trace, arranged(trace), int(random.integers(0, 25)), float(random.choice(BETAS))


@pytest.mark.parametrize("policy", page_oracle.POLICIES)
def test_oracle_cache_and_kernel_agree_on_crowded_traces(policy: str) -> None:
    for seed in range(CROWDED):
        trace, seen, capacity, beta = crowded(seed)
        events = trace.events(PROXY)
        steps = page_oracle.replay(policy, events, capacity, beta)
        assert live(policy, events, capacity, beta) == steps, f"seed {seed}"
        assert replay(policy, seen, capacity, beta) == [step.outcome for step in steps], f"seed {seed}"


@cache
def news(seed: int, pages: int, events: int) -> Trace:
    """A longer trace: most requests are for recent pages; sizes and times are whole numbers, so as to tie."""
    random = np.random.default_rng(seed)
    end = events // 4
    published = np.sort(random.integers(0, end, pages))
    sizes = np.maximum(1, random.lognormal(2.0, 1.0, pages)).astype(np.int64)
    counts = random.integers(0, 5, pages)
    times = random.integers(0, end, events - np.count_nonzero(counts))
    age = random.exponential(pages / 20, len(times)).astype(np.int64)
    asked = np.clip(np.searchsorted(published, times) + 3 - age, 0, pages - 1)
    requests = list(zip(times.tolist(), asked.tolist(), strict=True))
    return tables(published.tolist(), sizes.tolist(), counts.tolist(), requests)


@pytest.mark.parametrize("policy", page_oracle.POLICIES)
def test_cache_and_kernel_agree_on_long_trace(policy: str) -> None:
    trace = news(seed=2003, pages=1000, events=10_000)
    events = trace.events(PROXY)
    assert len(events) == 10_000
    outcomes = [step.outcome for step in live(policy, events, capacity=800)]
    assert replay(policy, arranged(trace), capacity=800) == outcomes
    assert min(outcomes.count("hit"), outcomes.count("miss")) > 1000
