"""Result caches: each count of each vector, the same as by brute force, and guarantees to a broker."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.caching import result_oracle
from support.caching.result_tables import Row, table
from support.profiles import examples

from newsstand.caching import RESULT_POLICIES, CachedResult, RemovedObject, ResultCaches, Tail, result_policy
from newsstand.caching.results.cache import Retrieval
from newsstand.errors import BadOption, UnknownPolicy
from newsstand.lab.results.events import KINDS, BrokerEvents, events_of, read_events
from newsstand.lab.results.replay import Measure, ReplaySetting, replay

FOLDER = Path(__file__).parents[1] / "vectors" / "bad2018"
VECTORS: dict[str, dict[str, Any]] = {
    vector["file"]: vector for vector in json.loads((FOLDER / "expected.json").read_text())["tables"]
}
POLICIES = ["nc", "lru", "lsc", "lscz", "lsd", "exp", "ttl"]
EVICTING = ["lru", "lsc", "lscz", "lsd", "exp"]


@cache
def events_in(vector: str) -> BrokerEvents:
    return read_events(FOLDER / vector)


def rows_of(events: BrokerEvents) -> list[Row]:
    numbers = (events.subscriber, events.subscription, events.size)
    kinds = [KINDS[kind] for kind in events.kind]
    return list(zip(events.time_ms.tolist(), kinds, *(column.tolist() for column in numbers), strict=True))


def same_as_oracle(rows: list[Row], measured: dict[str, Measure], **options: Any) -> None:
    counts, sum_rho_T = result_oracle.replay(rows, measured["policy"], measured["cache_bytes"], **options)
    names = {name for name, value in measured.items() if isinstance(value, int)} - {"cache_bytes"}
    assert {name: measured[name] for name in names if measured[name]} == {
        name: count for name, count in counts.items() if name != "put"
    }
    assert measured["sum_rho_T"] == pytest.approx([float(value) for value in sum_rho_T], rel=1e-12)
    if counts["put"]:
        assert measured["mean_ttl_insert_s"] == counts["ttl_insert_ms"] / (1000 * counts["put"])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("vector", VECTORS)
class TestVectors:
    def test_result_caches_agree_with_vectors(self, vector: str, policy: str) -> None:
        parameters = VECTORS[vector]["params"]
        runs = [run for run in VECTORS[vector]["runs"] if run["policy"] == policy]
        assert runs
        for run in runs:
            setting = ReplaySetting(policy, run["cache_bytes"], run["evict"], run["expiry"], **parameters)
            measured = replay(events_in(vector), setting)
            assert set(measured) == set(run)
            for name, value in run.items():
                inexact = isinstance(value, (float, list))
                wanted = pytest.approx(value, rel=1e-9, abs=1e-9) if inexact else value
                assert measured[name] == wanted, f"{name} at {run['cache_bytes']} bytes, {run['evict']}"

    def test_result_oracle_agrees_with_vectors(self, vector: str, policy: str) -> None:
        parameters = VECTORS[vector]["params"]
        for run in VECTORS[vector]["runs"]:
            if run["policy"] == policy:
                same_as_oracle(
                    rows_of(events_in(vector)),
                    run,
                    end=parameters["end_ms"],
                    W=parameters["window_ms"],
                    K=parameters["windows"],
                    cap=parameters["cap_ms"],
                    evict=run["evict"],
                    expiry=run["expiry"],
                )


def agree(rows: list[Row], policy: str, budget: int, evict: str, expiry: str, W: int, K: int, cap: int) -> None:
    end = (rows[-1][0] if rows else 0) + W // 2
    setting = ReplaySetting(
        policy, budget, end_ms=end, window_ms=W, windows=K, cap_ms=cap, evict=evict, expiry=expiry
    )
    measured = replay(events_of(rows), setting)
    same_as_oracle(rows, measured, end=end, W=W, K=K, cap=cap, evict=evict, expiry=expiry)


SWITCHES = list(itertools.product(["put", "after"], ["cache", "object"]))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(120))
@given(
    choices=st.sampled_from([8, 80, 400]).flatmap(lambda size: st.binary(min_size=size, max_size=size)),
    scale=st.sampled_from([1, 3]),
    budget=st.sampled_from([0, 3, 12, 40_000, 70_000, 200_000]),
    switches=st.sampled_from(SWITCHES),
    window=st.sampled_from([1, 5, 10, 16]),
    windows=st.sampled_from([1, 2, 3]),
    cap=st.sampled_from([0, 5, 12, 1000]),
)
def test_result_caches_agree_with_brute_force(
    policy: str,
    choices: bytes,
    scale: int,
    budget: int,
    switches: tuple[str, str],
    window: int,
    windows: int,
    cap: int,
) -> None:
    agree(table(choices, scale), policy, budget, *switches, window, windows, cap)


@pytest.mark.parametrize("policy", POLICIES)
def test_result_caches_agree_with_brute_force_on_crowded_tables(policy: str) -> None:
    for seed in range(60):
        chosen = random.Random(seed)
        rows = table(chosen.randbytes(4 * chosen.randrange(50, 250)), chosen.choice([1, 3]))
        budget = chosen.choice([1, 5, 20, 10_000, 40_000, 100_000, 300_000])
        window, cap = chosen.choice([2, 7, 10, 30]), chosen.choice([3, 15, 40, 10_000])
        agree(rows, policy, budget, *chosen.choice(SWITCHES), window, chosen.choice([1, 2, 4]), cap)


class Hit(NamedTuple):
    """What the caches return of an object."""

    position: int
    size: int
    value: object


class Model(RuleBasedStateMachine):
    """A broker's calls in any order, acknowledgements in parts, changes of policy and budget, against sets."""

    CACHES = st.sampled_from(["fires", "floods", "quakes"])
    PEOPLE = st.sampled_from(["ann", "bob", "cleo"])
    BUDGETS = st.sampled_from([0, 6, 20, 100])

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.position = 0
        self.acked: dict[tuple[str, str], int] = {}
        self.cached: dict[str, list[tuple[Hit, int, set[str]]]] = {}
        self.accessed: dict[str, int] = {}
        self.cohorts: dict[str, set[str]] = {}
        self.making_room = False
        self.caches = ResultCaches[str, int]("lsc", 20, window_ms=20, cap_ms=15, on_removed=self.removed)

    def removed(self, gone: RemovedObject[str]) -> None:
        (position, size, _), inserted, waiting = self.cached[gone.cache][0]
        assert (position, size, inserted) == (gone.position, gone.size, gone.inserted_ms)
        assert inserted <= gone.at_ms <= self.now
        assert bool(waiting) == (gone.reason == "dropped")
        if self.making_room:
            score = RESULT_POLICIES[self.caches.policy.name].score
            assert score is not None
            assert (
                gone.cache
                == min((score(self.tail(name)), name) for name, objects in self.cached.items() if objects)[1]
            )
        del self.cached[gone.cache][0]

    def tail(self, name: str) -> Tail:
        (_, size, _), inserted, waiting = self.cached[name][0]
        return Tail(size, len(waiting), inserted, self.accessed[name], inserted + self.caches.ttl(name))

    def make_room(self) -> None:
        self.making_room = True
        self.caches.make_room(self.now)
        self.making_room = False
        if self.caches.policy.name in EVICTING:
            assert self.caches.bytes <= self.caches.budget

    @rule(ms=st.integers(0, 12))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        self.caches.advance(self.now)
        instant = self.caches.next_instant
        assert instant is None or instant > self.now

    @rule(name=CACHES, who=PEOPLE, back=st.none() | st.integers(-1, 4))
    def attach(self, name: str, who: str, back: int | None) -> None:
        acked = None if back is None else max(0, self.position - back)
        if not self.caches.attach(name, who, self.now, acked):
            assert (name, who) in self.acked
            return
        if acked is None:
            acked = self.caches.newest(name)
        self.acked[name, who] = acked
        for (position, _, _), _, waiting in self.cached.get(name, []):
            if position > acked:
                waiting.add(who)

    @rule(name=CACHES, who=PEOPLE)
    def detach(self, name: str, who: str) -> None:
        self.leave(name, who, self.position + 9)
        self.cohorts.get(name, set()).discard(who)
        assert self.caches.detach(name, who, self.now) == (self.acked.pop((name, who), None) is not None)

    @rule(name=CACHES, people=st.sets(PEOPLE), back=st.integers(-1, 3))
    def acknowledge(self, name: str, people: set[str], back: int) -> None:
        upto = self.position - back
        for who in people:
            if upto > self.acked.get((name, who), upto):
                self.acked[name, who] = upto
                self.leave(name, who, upto)
                self.cohorts.get(name, set()).discard(who)
        for who in people:
            self.caches.acknowledge(name, who, upto, self.now)

    @precondition(lambda self: self.acked)
    @rule(data=st.data())
    def join_cohort(self, data: st.DataObject) -> None:
        name, who = data.draw(st.sampled_from(sorted(self.acked)))
        cohort = self.cohorts.setdefault(name, set())
        after = self.acked[name, who]
        upto = self.acked[name, min(cohort)] if cohort else max(after, self.position)
        if after > upto:
            with pytest.raises(ValueError, match="where the cohort"):
                self.caches.join_cohort(name, who, upto, self.now)
            return
        cohort.add(who)
        self.retrieve(name, {who}, upto, lambda: self.caches.join_cohort(name, who, upto, self.now))

    @rule(name=CACHES)
    def the_cohort_retrieves(self, name: str) -> None:
        cohort = self.cohorts.get(name)
        if not cohort:
            return

        def push() -> Retrieval | None:
            pushed = self.caches.retrieve_cohort(name, self.position, self.now)
            assert pushed is None or pushed[0] == len(cohort)
            return None if pushed is None else pushed[1]

        self.retrieve(name, cohort, self.position, push)

    def retrieve(self, name: str, people: set[str], upto: int, act: Callable[[], Retrieval | None]) -> None:
        after = self.acked[name, min(people)]
        held = [hit.position for hit, _, _ in self.cached.get(name, []) if hit.position <= upto]
        wanted = Retrieval(after, max(after, held[0] - 1) if held else upto, upto) if after < upto else None
        if wanted is not None:
            self.accessed[name] = self.now
            for who in people:
                self.acked[name, who] = upto
                self.leave(name, who, upto)
        assert act() == wanted

    @precondition(lambda self: self.acked)
    @rule(data=st.data())
    def leave_the_cohort(self, data: st.DataObject) -> None:
        name, who = data.draw(st.sampled_from(sorted(self.acked)))
        self.cohorts.get(name, set()).discard(who)
        self.caches.leave_cohort(name, who)

    def leave(self, name: str, who: str, upto: int) -> None:
        for (position, _, _), _, waiting in self.cached.get(name, []):
            if position <= upto:
                waiting.discard(who)

    @rule(name=CACHES, size=st.integers(1, 9), makes_room=st.booleans())
    def put(self, name: str, size: int, makes_room: bool) -> None:
        self.position += 1
        waiting = {who for (of, who), acked in self.acked.items() if of == name and acked < self.position}
        kept = self.caches.put(name, self.position, size, self.position, self.now)
        assert kept == (bool(waiting) and self.caches.policy.name != "nc")
        if kept:
            hit = Hit(self.position, size, self.position)
            self.cached.setdefault(name, []).append((hit, self.now, waiting))
            self.accessed[name] = self.now
        if makes_room:
            self.make_room()

    @rule(name=CACHES)
    def touch(self, name: str) -> None:
        self.caches.touch(name, self.now)
        self.accessed[name] = self.now

    @rule(budget=BUDGETS)
    def resize(self, budget: int) -> None:
        self.making_room = True
        self.caches.resize(budget, self.now)
        self.making_room = False

    @rule(policy=st.sampled_from(POLICIES))
    def switch(self, policy: str) -> None:
        self.caches.advance(self.now)
        before = self.caches.objects
        fits = self.caches.bytes <= self.caches.budget
        self.caches.switch(policy, self.now)
        if policy == "nc":
            assert self.caches.objects == 0
        elif policy in EVICTING:
            assert self.caches.bytes <= self.caches.budget
            assert not fits or self.caches.objects == before

    @rule(name=CACHES, after=st.integers(0, 9), until=st.integers(0, 9))
    def get(self, name: str, after: int, until: int) -> None:
        after, until = self.position - after, self.position - until
        hits = [hit for hit, _, _ in self.cached.get(name, []) if after < hit.position <= until]
        assert hits_of(self.caches.get(name, after, until)) == hits

    @invariant()
    def holds_what_somebody_waits_for(self) -> None:
        held = [entry for objects in self.cached.values() for entry in objects]
        assert all(waiting for _, _, waiting in held)
        assert self.caches.objects == len(held)
        assert self.caches.bytes == sum(hit.size for hit, _, _ in held)
        for name, objects in self.cached.items():
            ends = (objects[0][0].position, objects[-1][0].position) if objects else None
            assert self.caches.held(name) == ends

    @invariant()
    def everybody_is_where_they_were(self) -> None:
        for (name, who), acked in self.acked.items():
            assert self.caches.acked(name, who) == acked


def hits_of(found: Iterable[CachedResult[Any]]) -> list[Hit]:
    return [Hit(one.position, one.size, one.value) for one in found]


Model.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=60)
TestABrokersCalls = Model.TestCase


def caches(
    policy: str, budget: int = 100, **options: Any
) -> tuple[ResultCaches[str, str], list[RemovedObject[str]]]:
    """Caches "a" and "b", with a subscriber each, and the list of what leaves."""
    gone: list[RemovedObject[str]] = []
    made = ResultCaches[str, str](policy, budget, on_removed=gone.append, **options)
    made.attach("a", "ann", 0)
    made.attach("b", "bob", 0)
    return made, gone


def test_late_retrieval_finds_newest_objects() -> None:
    made, _ = caches("lru", 25)
    for position in (1, 2, 3):
        made.put("a", position, 10, f"result {position}", now=position)
    made.make_room(now=3)
    assert hits_of(made.get("a", after=0, until=3)) == [Hit(2, 10, "result 2"), Hit(3, 10, "result 3")]
    assert made.get("a", after=0, until=1) == []
    assert made.held("a") == (2, 3)


def test_subscriber_may_return_to_earlier_position() -> None:
    made, gone = caches("lsc")
    for position in (1, 2, 3):
        made.put("a", position, 10, "", now=position)
    made.attach("a", "cleo", now=4, acked=1)
    made.acknowledge("a", "ann", upto=3, now=5)
    assert [(left.position, left.reason) for left in gone] == [(1, "consumed")]
    made.detach("a", "cleo", now=6)
    assert [(left.position, left.reason) for left in gone[1:]] == [(2, "abandoned"), (3, "abandoned")]


def test_subscriber_ahead_after_restart_does_not_wait() -> None:
    made = ResultCaches[str, str]("lsc", 100)
    made.attach("a", "ann", now=0, acked=60)
    made.attach("a", "bob", now=0, acked=57)
    assert made.put("a", 58, 10, "", now=1)
    made.acknowledge("a", "bob", upto=58, now=2)
    assert made.objects == 0


def test_result_without_subscribers_is_not_cached() -> None:
    made, _ = caches("lru")
    assert not made.put("c", 1, 10, "", now=1)
    made.acknowledge("a", "ann", upto=5, now=1)
    assert not made.put("a", 5, 10, "", now=2)
    assert made.bytes == 0


def test_acknowledgement_after_detach_is_ignored() -> None:
    made, gone = caches("lru")
    made.put("a", 1, 10, "", now=1)
    assert not made.attach("a", "ann", now=2, acked=1)
    made.acknowledge("a", "nobody", upto=1, now=2)
    made.acknowledge("a", "ann", upto=0, now=2)
    assert not made.detach("a", "nobody", now=2)
    made.touch("nothing", now=2)
    assert made.objects == 1
    assert not gone


def test_delivery_counts_as_access() -> None:
    made, gone = caches("lru", 20)
    made.attach("a", "cleo", now=0)
    made.put("a", 1, 10, "", now=1)
    made.put("b", 1, 10, "", now=2)
    made.acknowledge("a", "ann", upto=1, now=3)
    made.put("b", 2, 10, "", now=4)
    made.touch("a", now=5)
    made.make_room(now=5)
    assert [left.cache for left in gone] == ["b"]


def test_object_larger_than_budget_is_evicted() -> None:
    made, gone = caches("lsc", 15)
    made.put("a", 1, 10, "", now=1)
    made.put("b", 1, 16, "", now=2)
    made.make_room(now=2)
    assert [left.cache for left in gone] == ["a", "b"]


def test_ttl_expires_in_time_and_returns_next_instant() -> None:
    made, gone = caches("ttl", 100_000, window_ms=1000)
    assert made.ttl("a") == 10
    made.put("a", 1, 10, "", now=5)
    made.put("a", 2, 10, "", now=8)
    assert made.next_instant == 15
    made.advance(now=30)
    assert [(left.position, left.at_ms, left.reason) for left in gone] == [(1, 15, "dropped"), (2, 18, "dropped")]
    assert made.next_instant == 1000


def test_expired_stamp_waits_until_object_is_tail() -> None:
    made, gone = caches("ttl", 100_000, window_ms=20, cap_ms=1000, expiry="object")
    made.advance(now=20)
    made.put("a", 1, 400_000, "stays until 1030", now=30)
    made.advance(now=40)
    assert made.ttl("a") == 2
    made.put("a", 2, 10, "stays until 43", now=41)
    made.advance(now=53)
    assert not gone
    made.acknowledge("a", "ann", upto=1, now=53)
    made.advance(now=60)
    assert [(left.position, left.at_ms, left.reason) for left in gone] == [(1, 53, "consumed"), (2, 53, "dropped")]


def test_windows_begin_at_start_ms() -> None:
    made = ResultCaches[str, str]("exp", 100, window_ms=1000, start_ms=1_700_000_000_000)
    assert made.next_instant == 1_700_000_001_000


def test_times_to_live_share_budget_by_subscribers() -> None:
    expected: list[tuple[int, float]] = []
    made = ResultCaches[str, str](
        "lru", 1000, window_ms=100, on_recompute=lambda at_ms, size: expected.append((at_ms, size))
    )
    for who in ("ann", "bob", "cleo"):
        made.attach("a", who, now=0)
    made.attach("b", "bob", now=0)
    made.put("a", 1, 100, "", now=10)
    made.put("b", 1, 50, "", now=10)
    made.advance(now=100)
    assert (made.ttl("a"), made.ttl("b")) == (750, 500)
    assert expected == [(100, 1000.0)]


def test_time_to_live_stays_until_window_closes() -> None:
    made, _ = caches("ttl", 100, window_ms=100)
    made.advance(now=100)
    made.detach("a", "ann", now=110)
    made.attach("a", "ann", now=120)
    assert made.ttl("a") == 3_600_000
    made.detach("a", "ann", now=130)
    made.advance(now=200)
    assert made.ttl("a") == 0


def test_policy_switch_keeps_objects() -> None:
    made, gone = caches("ttl", 25, cap_ms=1000, window_ms=10)
    made.advance(now=10)
    for position in (1, 2, 3):
        made.put("a", position, 10, "", now=11)
    made.acknowledge("a", "ann", upto=1, now=12)
    made.put("b", 1, 10, "", now=12)
    del gone[:]
    made.switch("lru", now=13)
    assert [(left.cache, left.position, left.reason) for left in gone] == [("a", 2, "dropped")]
    made.switch("nc", now=14)
    assert made.objects == 0
    assert made.next_instant is None
    assert not made.put("a", 4, 10, "", now=15)
    made.switch("lsc", now=16)
    assert made.next_instant == 26
    assert made.acked("a", "ann") == 1
    assert made.put("a", 5, 10, "", now=17)


def test_smaller_budget_evicts_at_once() -> None:
    made, gone = caches("lsc")
    made.put("a", 1, 10, "", now=1)
    made.put("b", 1, 10, "", now=1)
    made.resize(10, now=2)
    assert [left.cache for left in gone] == ["a"]


def test_result_policy_is_decorated_function() -> None:
    @result_policy("biggest")
    def biggest(tail: Tail) -> float:
        """The biggest tail leaves first."""
        return -tail.size

    try:
        made, gone = caches("biggest", 30)
        made.put("a", 1, 10, "", now=1)
        made.put("b", 1, 21, "", now=1)
        made.make_room(now=1)
        assert [left.cache for left in gone] == ["b"]
    finally:
        del RESULT_POLICIES["biggest"]


def test_result_policies_list_paper_policies_in_order() -> None:
    assert list(RESULT_POLICIES)[: len(POLICIES)] == POLICIES
    assert all(policy.title for policy in RESULT_POLICIES.values())


def test_result_caches_reject_invalid_arguments() -> None:
    with pytest.raises(UnknownPolicy, match="unknown policy 'lfu' of result caches; known: nc, lru"):
        ResultCaches[str, str]("lfu", 100)
    with pytest.raises(BadOption, match="window_ms 0: must be at least 1"):
        ResultCaches[str, str]("lru", 100, window_ms=0)
    with pytest.raises(BadOption, match="at least 0"):
        ResultCaches[str, str]("lru", -1)
    made, _ = caches("lru")
    made.put("a", 3, 10, "", now=1)
    with pytest.raises(ValueError, match="position 3 does not come after 3"):
        made.put("a", 3, 10, "", now=1)
