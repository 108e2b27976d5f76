"""Every count of every vector, exactly: by the oracle, by the live cache and by the kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from support.caching import page_oracle, vectors
from support.caching.replays import arrange, by_proxy, decide, live
from support.caching.traces import Event, counts, room

from newsstand.caching import POLICIES
from newsstand.lab.pages.replay import COUNTS, new_counts, tally

pytestmark = [
    pytest.mark.parametrize("policy", page_oracle.POLICIES),
    pytest.mark.parametrize("vector", vectors.NAMES),
]
Decide = Callable[[list[Event], int, float], list[str]]


def check(vector: str, policy: str, outcomes: Decide) -> None:
    """Compare the counts of a replay, proxy by proxy, with what the vector expects."""
    trace = vectors.trace(vector)
    seen = {proxy: trace.events(proxy) for proxy in trace.proxies}
    for run in vectors.expected(vector, policy):
        totals = Counter(dict.fromkeys(COUNTS, 0))
        proxies = {}
        for proxy, events in seen.items():
            decided = outcomes(events, room(events, run.capacity), run.beta)
            counted = counts(events, decided, uses_push=POLICIES[policy].uses_push)
            totals.update(counted)
            proxies[proxy] = counted["requests"], counted["hits"]
        assert totals == run.totals, f"at capacity {run.capacity}"
        assert proxies == run.proxies, f"at capacity {run.capacity}"


def test_vectors_agree_with_oracle(vector: str, policy: str) -> None:
    check(
        vector,
        policy,
        lambda events, capacity, beta: [
            step.outcome for step in page_oracle.replay(policy, events, capacity, beta)
        ],
    )


def test_vectors_agree_with_live_cache(vector: str, policy: str) -> None:
    check(
        vector,
        policy,
        lambda events, capacity, beta: [step.outcome for step in live(policy, events, capacity, beta)],
    )


def test_vectors_agree_with_kernel(vector: str, policy: str) -> None:
    timeline = arrange(vectors.trace(vector))
    for run in vectors.expected(vector, policy):
        counts = new_counts(len(timeline))
        for number, seen in enumerate(by_proxy(timeline)):
            capacity = int(run.capacity * int(timeline.requested_bytes[number]))
            outcome = decide(policy, seen, capacity, run.beta)
            tally(seen.events, seen.sizes, outcome, POLICIES[policy].uses_push, counts[number])
        assert dict(zip(COUNTS, counts.sum(axis=0).tolist(), strict=True)) == run.totals
        proxies = {
            int(proxy): tuple(row[:2].tolist()) for proxy, row in zip(timeline.proxies, counts, strict=True)
        }
        assert proxies == run.proxies
