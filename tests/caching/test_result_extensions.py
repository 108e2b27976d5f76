"""Result policies beyond the paper: the same as by brute force, compiled or not, and never above the budget."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.caching import result_oracle
from support.caching.result_tables import Row, table
from support.profiles import examples

from newsstand.broker.results.broker import PositionRange, ResultBroker
from newsstand.caching import BEYOND, RESULT_POLICIES, AdaptiveCaches, ResultCaches
from newsstand.caching.results.cache import Retrieval
from newsstand.errors import BadOption
from newsstand.lab.results.compiled import arrange_events, replay_arranged, replay_compiled
from newsstand.lab.results.events import events_of
from newsstand.lab.results.replay import ReplaySetting, ResultReplay, replay, replay_all

COMPILED = [name for name in BEYOND if not RESULT_POLICIES[name].follows]


def cohorted(seed: int) -> list[Row]:
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

    def __init__(self, policy: str, *rest: Any) -> None:
        super().__init__("ttl", *rest)

    def make_room(self) -> None:
        while self.total() > self.B:
            due = [(max(self.expires(s), self.now), i) for i, s in self.subscriptions.items() if s.cached]
            s = self.subscriptions[min(due)[1]]
            self.remove(s, s.cached[0], "dropped")
        super().make_room()


class AnyObject(result_oracle.Broker):
    """The lowest f / size over all objects goes, among equal ones that of the smallest cache, then the oldest."""

    def remove(self, s: result_oracle.Subscription, o: result_oracle.Object, reason: str) -> None:
        s.cached.insert(0, s.cached.pop(s.cached.index(o)))
        super().remove(s, o, reason)

    def make_room(self) -> None:
        while self.total() > self.B:
            _, i, o = min(
                ((len(o.waiting) / o.size, i, o) for i, s in sorted(self.subscriptions.items()) for o in s.cached),
                key=lambda scored: scored[:2],
            )
            self.remove(self.subscriptions[i], o, "dropped")
        super().make_room()


def agree(rows: list[Row], policy: str, budget: int, evict: str, expiry: str, W: int, cap: int) -> None:
    end = (rows[-1][0] if rows else 0) + W // 2
    brute_force = AnyObject if policy == "lscz-any" else BoundedTtl
    oracle = brute_force(policy, budget, end, W, 1, cap, evict, expiry)
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


@pytest.mark.parametrize("policy", ["ttl-bounded", "lscz-any"])
@settings(max_examples=examples(120))
@given(
    choices=st.sampled_from([8, 80, 400]).flatmap(lambda size: st.binary(min_size=size, max_size=size)),
    scale=st.sampled_from([1, 3]),
    budget=st.sampled_from([0, 3, 12, 40_000, 70_000, 200_000]),
    evict=st.sampled_from(["put", "after"]),
    expiry=st.sampled_from(["cache", "object"]),
    window=st.sampled_from([1, 5, 10, 16]),
    cap=st.sampled_from([0, 5, 12, 1000]),
)
def test_extensions_agree_with_brute_force(
    policy: str, choices: bytes, scale: int, budget: int, evict: str, expiry: str, window: int, cap: int
) -> None:
    agree(table(choices, scale), policy, budget, evict, expiry, window, cap)


@pytest.mark.parametrize("policy", COMPILED)
@settings(max_examples=examples(100))
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
def test_extensions_compiled_agree_with_core(
    policy: str, choices: bytes, scale: int, setting: ReplaySetting
) -> None:
    events = events_of(table(choices, scale))
    setting = replace(setting, policy=policy)
    measured = replay(events, setting)
    assert replay_compiled(events, setting) == measured
    assert int(str(measured["max_bytes"])) <= setting.cache_bytes


@pytest.mark.parametrize("policy", COMPILED)
def test_extensions_compiled_agree_on_abandoned_subscription(policy: str) -> None:
    rows = [(0, "subscribe", 1, 7, 0), (1000, "unsubscribe", 1, 7, 0), (11_000, "subscribe", 1, 7, 0)]
    rows += [(12_000, "result", 0, 7, 4000), (25_000, "result", 0, 7, 4000), (39_000, "login", 1, 0, 0)]
    setting = ReplaySetting(policy, 5000, window_ms=10_000)
    assert replay_compiled(events_of(rows), setting) == replay(events_of(rows), setting)


@pytest.mark.parametrize("policy", COMPILED)
@pytest.mark.parametrize("seed", range(6))
def test_extensions_compiled_agree_in_cohort(policy: str, seed: int) -> None:
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
    events = events_of(cohorted(seed))
    measured = replay(events, setting)
    assert measured["hits"]
    assert replay_compiled(events, setting) == measured


def test_bounded_ttl_equals_ttl_with_room() -> None:
    events = events_of(cohorted(1))
    ttl, bounded = (
        replay(events, ReplaySetting(policy, 10**9, window_ms=200, cap_ms=50)) for policy in ("ttl", "ttl-bounded")
    )
    assert ttl["dropped_objects"]
    assert ttl | {"policy": "ttl-bounded"} == bounded


def test_average_growth_forgets_quarter_per_window() -> None:
    rows: list[Row] = [(0, "subscribe", 0, 0, 0)]
    rows += [(1000 * window + 1, "result", 0, 0, size) for window, size in enumerate([400, 800, 80])]
    measured = replay(events_of(rows), ReplaySetting("ttl-ewma", 100_000, end_ms=3000, window_ms=1000))
    # 400, then 400 + (800 - 400) / 4 = 500, then 500 + (80 - 500) / 4 = 395; T = B W / average, rounded down.
    times = [100_000 * 1000 // average for average in (400, 500, 395)]
    assert measured["sum_rho_T"] == [
        time * average / 1000 for time, average in zip(times, (400, 500, 395), strict=True)
    ]


class TestGaps:
    """Objects that leave while older ones stay."""

    def caches(self) -> ResultCaches[str, str]:
        caches = ResultCaches[str, str]("lscz-any", 25)
        caches.attach("floods", "ann", now=0, acked=0)
        for position, size in enumerate([5, 20, 5, 20, 5], start=1):
            caches.put("floods", position, size, f"{position}", now=position)
            caches.make_room(now=position)
        return caches

    def test_lscz_any_evicts_large_objects_first(self) -> None:
        caches = self.caches()
        assert [hit.position for hit in caches.get("floods", 0, 5)] == [1, 3, 5]
        assert caches.gaps("floods", 0, 5) == (2, 4)
        assert caches.gaps("floods", 2, 3) == ()
        assert (caches.bytes, caches.objects) == (15, 3)

    def test_retrieval_lists_gaps(self) -> None:
        caches = self.caches()
        assert caches.join_cohort("floods", "ann", 5, now=9) == Retrieval(0, 0, 5, (2, 4))
        assert caches.objects == 0

    def test_gaps_behind_tail_are_forgotten(self) -> None:
        caches = self.caches()
        caches.acknowledge("floods", "ann", 2, now=9)
        assert caches.held("floods") == (3, 5)
        assert caches.gaps("floods", 0, 5) == (4,)
        caches.acknowledge("floods", "ann", 3, now=9)
        assert caches.held("floods") == (5, 5)
        assert caches.gaps("floods", 0, 5) == ()

    def test_reader_fetches_gaps_from_cluster(self) -> None:
        broker = ResultBroker(ResultCaches[str, str]("lscz-any", 25))
        broker.follow("ann", "floods", position=0, head=0, now=0)
        for position, size in enumerate([5, 20, 5, 20, 5], start=1):
            broker.advance("floods", position, now=position)
            broker.put("floods", [(position, size, "")], now=position)
        reading = broker.read("ann", "floods", limit=9, now=9)
        assert [hit.position for hit in reading.hits] == [1, 3, 5]
        assert reading.missing == (PositionRange(1, 2), PositionRange(3, 4))

    def test_grace_protects_new_objects(self) -> None:
        caches = ResultCaches[str, str]("lscz-any", 25, grace_ms=100)
        caches.attach("floods", "ann", now=0, acked=0)
        for position, size, now in ((1, 5, 0), (2, 20, 10), (3, 5, 50)):
            caches.put("floods", position, size, "", now=now)
            caches.make_room(now=now)
        # All are new: there is no choice but the oldest.
        assert [hit.position for hit in caches.get("floods", 0, 9)] == [2, 3]
        caches.put("floods", 4, 5, "", now=110)
        caches.make_room(now=110)
        assert [hit.position for hit in caches.get("floods", 0, 9)] == [3, 4]

    @settings(max_examples=examples(150))
    @given(
        steps=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(0, 2), st.integers(0, 5))),
        grace=st.sampled_from([0, 2, 9]),
    )
    def test_victim_has_lowest_score_after_any_events(
        self, steps: list[tuple[int, int, int, int]], grace: int
    ) -> None:
        """By brute force over what is there: sizes and acknowledged positions are all that it looks at."""
        gone: list[tuple[int, int]] = []
        caches = ResultCaches[int, None](
            "lscz-any",
            100,
            grace_ms=grace,
            window_ms=7,
            on_removed=lambda one: gone.append((one.cache, one.position)) if one.reason == "dropped" else None,
        )
        put: dict[tuple[int, int], tuple[int, int]] = {}
        acked: dict[tuple[int, int], int] = {}
        head = [0, 0, 0]
        for now, (kind, who, which, number) in enumerate(steps):
            caches.advance(now)
            if kind == 0 and caches.attach(which, who, now, head[which] - min(number, head[which])):
                acked[which, who] = head[which] - min(number, head[which])
            elif kind == 1 and caches.detach(which, who, now):
                del acked[which, who]
            elif kind == 2 and (which, who) in acked:
                acked[which, who] = max(acked[which, who], min(head[which], acked[which, who] + number))
                caches.acknowledge(which, who, acked[which, who], now)
            elif kind == 3:
                caches.switch(("lsc", "lscz-any")[number % 2], now)
            elif kind > 3:
                head[which] += 1
                size = (1, 7, 20, 30, 45, 60)[number]
                if caches.put(which, head[which], size, None, now):
                    put[which, head[which]] = size, now
            gone.clear()
            held = [(of, hit.position) for of in range(3) for hit in caches.get(of, 0, 99)]
            caches.make_room(now)
            if caches.policy.name == "lscz-any":

                def rank(one: tuple[int, int], now: int = now) -> tuple[float, int, int]:
                    size, at = put[one]
                    waiting = sum(at < one[1] for (of, _), at in acked.items() if of == one[0])
                    return (math.inf if at > now - grace else waiting / size, *one)

                assert gone == sorted(held, key=rank)[: len(gone)]
            assert caches.bytes <= 100

    def test_gaps_stay_when_policy_changes(self) -> None:
        caches = self.caches()
        caches.switch("lru", now=8)
        assert caches.join_cohort("floods", "ann", 5, now=9) == Retrieval(0, 0, 5, (2, 4))


def mixed(small: int, large: int) -> list[Row]:
    """Two subscribers of many caches, one mostly away; sizes alternate, in most caches small and large ones."""
    rows: list[Row] = [(0, "subscribe", who, which, 0) for which in range(40) for who in (0, 1)]
    rows.append((0, "login", 0, 0, 0))
    for time in range(1, 4000):
        size = large if (time // 40) % 2 else small
        rows.append((10 * time, "result", 0, time % 40, size))
        if time % 200 == 0:
            rows += [(10 * time, "login", 1, 0, 0), (10 * time, "logout", 1, 0, 0)]
    return rows


class TestAdaptive:
    def test_adaptive_follows_policy_with_most_hits(self) -> None:
        events = events_of(mixed(1, 100))
        hits = {
            policy: int(str(replay(events, ReplaySetting(policy, 3000, "after", window_ms=5000))["hits"]))
            for policy in ("lsc", "lscz-any", "ttl-bounded", "adaptive")
        }
        assert hits["lscz-any"] > 1.05 * hits["lsc"]
        assert hits["lsc"] < hits["adaptive"] <= hits["lscz-any"]

    def test_adaptive_reports_followed_policy_and_keeps_name(self) -> None:
        replayed = ResultReplay(ReplaySetting("adaptive", 3000, "after", window_ms=5000))
        measured = replayed.run(events_of(mixed(1, 100)))
        caches = replayed.results
        assert isinstance(caches, AdaptiveCaches)
        assert (caches.policy.name, caches.followed) == ("adaptive", "lscz-any")
        assert int(str(measured["max_bytes"])) <= 3000

    def test_shadows_have_share_of_sampled_caches(self) -> None:
        caches = AdaptiveCaches[int, str]("adaptive", 8_000_000, window_ms=5000)
        for number, share in enumerate([8_000_000, 4_000_000, 2_666_666, 2_000_000, 3_200_000], start=1):
            caches.attach(number, "ann", now=0)
            shadows = list(caches.shadows.values())
            assert [shadow.budget for shadow in shadows] == [share] * 3
            # The link fills the budget of all caches, not a share, in that time.
            assert [shadow.ttl(1) for shadow in shadows] == [caches.ttl(1)] * 3 == [800] * 3
        caches.switch("lsc", now=1)
        caches.switch("adaptive", now=2)
        assert [shadow.budget for shadow in caches.shadows.values()] == [3_200_000] * 3

    def test_adaptive_switch_attaches_present_subscribers(self) -> None:
        caches = AdaptiveCaches[int, str]("lru", 3000, window_ms=5000, start_ms=0)
        for which in range(40):
            caches.attach(which, "ann", now=0)
            caches.attach(which, "bob", now=0)
        caches.switch("adaptive", now=100)
        assert caches.followed == "lsc"
        for time in range(101, 12_000):
            caches.advance(time)
            which, position = time % 40, time
            caches.put(which, position, 100 if (time // 40) % 2 else 1, "", now=time)
            caches.acknowledge(which, "bob", position, now=time)
            caches.make_room(now=time)
            if time % 2000 == 0:
                for of in range(40):
                    caches.acknowledge(of, "ann", time, now=time)
        assert caches.followed == "lscz-any"
        held = caches.objects
        caches.switch("lsc", now=12_000)
        assert (caches.followed, caches.objects) == (None, held)

    def test_adaptive_is_replayed_by_core(self) -> None:
        events = events_of(cohorted(2))
        setting = ReplaySetting("adaptive", 100_000, "after", window_ms=200)
        wanted = replay(events, setting)
        assert replay_compiled(events, setting) == wanted
        assert list(replay_all(events, [setting], "compiled")) == [wanted]
        with pytest.raises(BadOption, match="policy 'adaptive' follows others and is not compiled"):
            replay_arranged(arrange_events(events), setting, events.end_ms)

    @settings(max_examples=examples(60))
    @given(choices=st.binary(min_size=400, max_size=400), budget=st.sampled_from([3, 12, 40_000, 70_000]))
    def test_budget_holds_after_any_events(self, choices: bytes, budget: int) -> None:
        measured = replay(events_of(table(choices, 1)), ReplaySetting("adaptive", budget, window_ms=10))
        assert int(str(measured["max_bytes"])) <= budget


def test_extensions_are_listed_after_paper_policies() -> None:
    assert tuple(RESULT_POLICIES)[7:] == BEYOND
    assert all(RESULT_POLICIES[name].title for name in BEYOND)
