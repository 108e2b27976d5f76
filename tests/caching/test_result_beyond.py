"""Result policies beyond the paper: the same as by brute force, compiled or not, and never above the budget."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import result_oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from newsstand.caching import BEYOND, RESULT_POLICIES
from newsstand.lab.broker_events import events_of
from newsstand.lab.result_kernel import replay_compiled
from newsstand.lab.result_replay import ReplaySetting, replay

Row = tuple[int, str, int, int, int]

KINDS = ["result"] * 9 + ["login"] * 3 + ["logout"] * 3 + ["subscribe"] * 4 + ["unsubscribe"]
STEPS = [0, 0, 0, 1, 1, 2, 5, 10]
SIZES = [1, 2, 3, 10, 10_000, 30_000]


def table(choices: bytes, scale: int) -> list[Row]:
    """Few subscribers, caches, sizes and moments: scores tie, and rows fall on the instants of others."""
    rows, time = [], 0
    for kind, who, which, step in zip(*[iter(choices)] * 4, strict=False):
        time += STEPS[step % len(STEPS)] * scale
        rows.append((time, KINDS[kind % len(KINDS)], who % 4, which % 3, SIZES[(who // 4) % len(SIZES)]))
    return rows


def crowded(seed: int) -> list[Row]:
    """Twenty subscribers of six caches, which most of them join at first."""
    chosen, time = random.Random(seed), 0
    rows: list[Row] = [
        (0, "subscribe", who, which, 0) for who in range(20) for which in chosen.sample(range(6), 3)
    ]
    for _ in range(600):
        time += chosen.choice([0, 0, 1, 3, 20])
        kind = chosen.choices(["result", "login", "logout", "subscribe", "unsubscribe"], [9, 3, 3, 1, 1])[0]
        rows.append((time, kind, chosen.randrange(20), chosen.randrange(6), chosen.randrange(1, 50_000)))
    return rows


class BoundedTtl(result_oracle.Broker):
    """TTL by brute force; where there is no room, the next to expire goes."""

    average: dict[int, int]

    def __init__(self, policy: str, *rest: Any) -> None:
        super().__init__("ttl", *rest)
        self.averages = policy == "ttl-ewma"
        self.average = {}

    def make_room(self) -> None:
        while self.total() > self.B:
            due = [(max(self.expires(s), self.now), i) for i, s in self.subscriptions.items() if s.cached]
            s = self.subscriptions[min(due)[1]]
            self.remove(s, s.cached[0], "dropped")
        super().make_room()

    def recompute(self) -> None:
        if not self.averages:
            return super().recompute()
        for i, s in self.subscriptions.items():
            if not s.attached and not any((*s.A[-self.K - 1 :], *s.C[-self.K - 1 :])):
                self.average.pop(i, None)  # forgotten, as one that never was
            x = s.A[-1] - s.C[-1]
            before = self.average.get(i)
            self.average[i] = x if before is None else before + (x - before) // 4
            s.A[-1], s.C[-1] = max(0, self.average[i]), max(0, -self.average[i])
        K, self.K = self.K, 1
        super().recompute()
        self.K = K
        return None


def agree(rows: list[Row], policy: str, budget: int, evict: str, expiry: str, W: int, cap: int) -> None:
    end = (rows[-1][0] if rows else 0) + W // 2
    oracle = BoundedTtl(policy, budget, end, W, 1, cap, evict, expiry)
    for time, kind, k, i, size in rows:
        oracle.advance(time)
        oracle.event(kind, k, i, size)
    oracle.advance(end)
    setting = ReplaySetting(policy, budget, evict, expiry, end, W, 1, cap)  # type: ignore[arg-type]
    measured = replay(events_of(rows), setting)
    assert {name: measured[name] for name in oracle.n if name != "put"} == {
        name: count for name, count in oracle.n.items() if name != "put"
    }
    assert measured["sum_rho_T"] == pytest.approx([float(value) for value in oracle.sum_rho_T], rel=1e-12)


@settings(deadline=None, max_examples=150)
@given(
    choices=st.sampled_from([8, 80, 400]).flatmap(lambda size: st.binary(min_size=size, max_size=size)),
    scale=st.sampled_from([1, 3]),
    budget=st.sampled_from([0, 3, 12, 40_000, 70_000, 200_000]),
    evict=st.sampled_from(["put", "after"]),
    expiry=st.sampled_from(["cache", "object"]),
    window=st.sampled_from([1, 5, 10, 16]),
    cap=st.sampled_from([0, 5, 12, 1000]),
)
def test_no_table_tells_ttl_bounded_from_brute_force(
    choices: bytes, scale: int, budget: int, evict: str, expiry: str, window: int, cap: int
) -> None:
    agree(table(choices, scale), "ttl-bounded", budget, evict, expiry, window, cap)


@pytest.mark.parametrize("policy", BEYOND)
@settings(deadline=None, max_examples=100)
@given(
    choices=st.sampled_from([0, 8, 80, 400]).flatmap(lambda size: st.binary(min_size=size, max_size=size)),
    scale=st.sampled_from([1, 3]),
    setting=st.builds(
        ReplaySetting,
        policy=st.just("lsc"),
        cache_bytes=st.sampled_from([0, 3, 12, 40_000, 70_000, 200_000]),
        evict=st.sampled_from(["put", "after"]),
        expiry=st.sampled_from(["cache", "object"]),
        window_ms=st.sampled_from([1, 5, 10, 16]),
        windows=st.sampled_from([1, 2, 3, 1000]),
        cap_ms=st.sampled_from([0, 5, 12, 1000]),
    ),
)
def test_the_kernel_comes_to_every_count_of_the_core(
    policy: str, choices: bytes, scale: int, setting: ReplaySetting
) -> None:
    events = events_of(table(choices, scale))
    setting = replace(setting, policy=policy)
    measured = replay(events, setting)
    assert replay_compiled(events, setting) == measured
    assert int(str(measured["max_bytes"])) <= setting.cache_bytes


@pytest.mark.parametrize("policy", BEYOND)
@pytest.mark.parametrize("seed", range(6))
def test_so_it_does_in_a_crowd(policy: str, seed: int) -> None:
    chosen = random.Random(seed)
    setting = ReplaySetting(
        policy,
        chosen.choice([10_000, 100_000, 1_000_000]),
        chosen.choice(["put", "after"]),
        chosen.choice(["cache", "object"]),
        window_ms=chosen.choice([30, 200, 5000]),
        windows=chosen.choice([1, 2, 4]),
        cap_ms=chosen.choice([15, 400, 10_000]),
    )
    events = events_of(crowded(seed))
    measured = replay(events, setting)
    assert measured["hits"]
    assert replay_compiled(events, setting) == measured


def test_where_there_is_room_a_bound_changes_nothing() -> None:
    events = events_of(crowded(1))
    ttl, bounded = (
        replay(events, ReplaySetting(policy, 10**9, window_ms=200, cap_ms=50)) for policy in ("ttl", "ttl-bounded")
    )
    assert ttl["dropped_objects"]
    assert ttl | {"policy": "ttl-bounded"} == bounded


def test_they_are_listed_after_those_of_the_paper() -> None:
    assert tuple(RESULT_POLICIES)[7:] == BEYOND
    assert all(RESULT_POLICIES[name].title for name in BEYOND)
