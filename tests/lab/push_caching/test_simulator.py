"""Push-caching simulated: small traces worked out by hand, and properties of all."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lab.push_traces import demand, internet
from support.profiles import examples

from newsstand.errors import BadOption
from newsstand.geo.backbone import Internet
from newsstand.lab.push_caching import internet as push_cache_internet
from newsstand.lab.push_caching.demand import PushDemand, Versions
from newsstand.lab.push_caching.simulator import PushCacheSetting, PushOutcome, PushSimulation, simulate_pushing

LONG_AGO = -1e6
HALF_HOUR = 1800.0
WORLD = internet(subnets=[0, 3], servers=[0, 3])
"""The origin and subnet 0 are at one end, a push-cache and subnet 1 at the other: 5 hops across, 2 at one end."""
FAR = [(0.0, 0, 1, 0)] * 3 + [(1.0, 0, 1, 1)] * 2
"""Five requests of subnet 1 in the first half hour: a load of 2.5."""
SETTING = PushCacheSetting(threshold=2, pages=2, servers=1)


def counts(outcome: PushOutcome) -> dict[str, int]:
    """Those that are not 0."""
    return {name: value for name, value in asdict(outcome).items() if value}


# By hand


def test_simulation_pushes_pages_and_redirects_clients() -> None:
    later = [(1800.0, 0, 1, 0), (1900.0, 0, 1, 1), (1950.0, 0, 0, 0)]
    outcome = simulate_pushing(demand([*FAR, *later], [(0, 1000, LONG_AGO), (1, 300, LONG_AGO)]), WORLD, SETTING)
    before = 3 * 1000 * 5 + 2 * 300 * 5
    push = (1000 + 300) * 5
    redirects = 2 * 34 * 5
    after = (1000 + 300) * 2 + 1000 * 2
    assert counts(outcome) == {
        "origins": 1,
        "available": 1,
        "active": 1,
        "requests": 8,
        "hits": 2,
        "origin_answers": 6,
        "redirects": 1,
        "redirected_pages": 2,
        "pushes": 1,
        "pushed_pages": 2,
        "pushed_bytes": 1300,
        "stored_bytes": 1300,
        "most_stored_bytes": 1300,
        "traffic": before + push + redirects + after,
        "primary_traffic": 3600 + 1300 + 68 + 1000,
        "cache_traffic": 1300,
    }
    assert outcome.server_traffic == (5968 + 1300) / 2
    assert outcome.primary_requests == 7


def test_simulation_does_not_push_at_threshold() -> None:
    trace = demand([*FAR, (1800.0, 0, 1, 0)], [(0, 1000, LONG_AGO), (1, 300, LONG_AGO)])
    outcome = simulate_pushing(trace, WORLD, PushCacheSetting(threshold=2.5, pages=2, servers=1))
    assert counts(outcome) == {
        "origins": 1,
        "available": 1,
        "requests": 6,
        "origin_answers": 6,
        "traffic": 4600 * 5,
        "primary_traffic": 4600,
    }


def test_simulation_counts_stale_hits() -> None:
    pages = [(0, 1000, LONG_AGO), (0, 500, 2000.0), (1, 300, LONG_AGO)]
    outcome = simulate_pushing(demand([*FAR, (2100.0, 0, 1, 0)], pages), WORLD, SETTING)
    assert (outcome.hits, outcome.stale_hits, outcome.checks) == (1, 1, 0)
    assert outcome.traffic == 18_000 + 6500 + 340 + 1000 * 2


def test_simulation_checks_copy_after_tenth_of_age() -> None:
    pages = [(0, 1000, -1000.0), (1, 300, LONG_AGO)]
    # It is 3100 s old at 2100, not checked for 300; and 3200 at 2200, not for 400.
    outcome = simulate_pushing(demand([*FAR, (2100.0, 0, 1, 0), (2200.0, 0, 1, 0)], pages), WORLD, SETTING)
    assert (outcome.hits, outcome.checks, outcome.renewals, outcome.stale_hits) == (1, 1, 0, 0)
    assert outcome.traffic == 18_000 + 6500 + 340 + 2 * 1000 * 2 + 34 * 5
    assert outcome.primary_traffic == 3600 + 1300 + 68 + 34


def test_simulation_renews_page_at_check() -> None:
    pages = [(0, 1000, -1000.0), (0, 500, 2000.0), (1, 300, LONG_AGO)]
    outcome = simulate_pushing(demand([*FAR, (2200.0, 0, 1, 0), (2201.0, 0, 1, 0)], pages), WORLD, SETTING)
    assert (outcome.hits, outcome.checks, outcome.renewals, outcome.stale_hits) == (1, 1, 1, 0)
    assert outcome.traffic == 18_000 + 6500 + 340 + 500 * 5 + 2 * 500 * 2
    assert (outcome.stored_bytes, outcome.most_stored_bytes) == (800, 1300)


def test_simulation_answers_from_origin_after_invalid() -> None:
    redirected = (1800.0, 0, 1, 0)  # to both pages
    second = [(1900.0, 0, 1, 2)] * 8
    gone = [(3600.0, 0, 1, 1)] * 2
    pages = [(0, 1000, LONG_AGO), (1, 300, LONG_AGO), (2, 200, LONG_AGO)]
    setting = PushCacheSetting(threshold=2, pages=2, servers=1, slots=2, cap=1.0)
    outcome = simulate_pushing(demand([*FAR, redirected, *second, *gone], pages), WORLD, setting)
    assert (outcome.pushes, outcome.pushed_bytes) == (2, 1500)
    assert (outcome.invalid, outcome.hits, outcome.origin_answers) == (1, 1, 15)
    assert (outcome.stored_bytes, outcome.most_stored_bytes) == (1200, 1300)
    assert outcome.traffic == (18_000 + 6500) + (340 + 2000) + 8 * 200 * 5 + 200 * 5 + 34 * 2 + 2 * 300 * 5
    assert outcome.cache_traffic == 1000 + 34


def test_simulation_origin_learns_of_eviction_from_client() -> None:
    # Each origin pushes its page to the only push-cache, which has one slot; the second displaces the first.
    world = internet(subnets=[0, 3], servers=[0, 0, 3])
    requests = [(0.0, 0, 1, 0)] * 5 + [(1.0, 1, 1, 1)] * 5 + [(1900.0, 0, 1, 0)] * 2
    trace = demand(requests, [(0, 1000, LONG_AGO), (1, 300, LONG_AGO)], origins=2)
    outcome = simulate_pushing(trace, world, PushCacheSetting(threshold=2, servers=1, slots=1))
    assert (outcome.pushes, outcome.redirects, outcome.invalid, outcome.hits) == (2, 1, 1, 0)
    assert outcome.traffic == 5 * 1300 * 5 + 1300 * 5 + 34 * 5 + 34 * 2 + 2 * 1000 * 5
    assert (outcome.stored_bytes, outcome.most_stored_bytes) == (300, 1000)


def test_client_cache_checks_by_same_rule() -> None:
    pages = [(0, 1000, -1000.0), (0, 500, 600.0)]
    requests = [(time, 0, 1, 0) for time in (0.0, 10.0, 500.0, 650.0, 800.0)]
    setting = PushCacheSetting(servers=0, client_cache="infinite")
    # Fetched; a hit; found unchanged; a stale hit, as 150 s are less than a tenth of 1650; fetched again.
    assert counts(simulate_pushing(demand(requests, pages), WORLD, setting)) == {
        "origins": 1,
        "requests": 5,
        "client_hits": 2,
        "client_stale_hits": 1,
        "client_bytes": 500,
        "origin_answers": 3,
        "traffic": (1000 + 34 + 500) * 5,
        "primary_traffic": 1000 + 34 + 500,
    }


def test_client_cache_receives_only_newer_versions() -> None:
    world = internet(subnets=[3, 3], servers=[0, 3])
    crowd = [(0.0, 0, 0, 0)] * 4 + [(1.0, 0, 1, 0)]
    setting = PushCacheSetting(threshold=0.2, servers=1, client_cache="infinite")
    # Two subnets fetch it once each; at 1850 subnet 1 has not checked it for longer than a tenth of 2850 s.
    outcome = simulate_pushing(demand([*crowd, (1850.0, 0, 1, 0)], [(0, 1000, -1000.0)]), world, setting)
    assert (outcome.client_hits, outcome.hits, outcome.redirects) == (3, 1, 1)
    assert outcome.traffic == 2 * 1000 * 5 + 1000 * 5 + 34 * 5 + 34 * 2


def test_simulation_passes_idle_half_hours() -> None:
    later = [(HALF_HOUR * 100, 0, 1, 0)]
    outcome = simulate_pushing(demand([*FAR, *later], [(0, 1000, LONG_AGO), (1, 300, LONG_AGO)]), WORLD, SETTING)
    # Pushed at the end of the first half hour: after a day the requests would have been forgotten.
    assert (outcome.pushes, outcome.checks) == (1, 1)


# What holds of all


@st.composite
def cases(draw: st.DrawFn) -> tuple[PushDemand, Internet, PushCacheSetting]:
    """Up to 3 origins with 4 pages each, and some hundred requests in hours."""
    origins = draw(st.integers(1, 3))
    subnets = draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    servers = draw(st.lists(st.integers(0, 5), min_size=origins, max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pages = [(page, int(rng.integers(1, 5000)), float(rng.integers(-20_000, 1000))) for page in range(4 * origins)]
    pages += [(page, int(rng.integers(1, 5000)), 1000.0 + place) for place, page in enumerate(range(2 * origins))]
    requests = []
    for time in np.sort(rng.integers(0, 10 * HALF_HOUR, draw(st.integers(1, 300)))):
        page = min(4 * origins - 1, int(rng.geometric(0.3)) - 1)
        requests.append((float(time), page // 4, int(rng.integers(len(subnets))), page))
    setting = PushCacheSetting(
        threshold=draw(st.sampled_from([0.0, 2.0, 8.0])),
        pages=draw(st.integers(1, 5)),
        servers=draw(st.integers(0, 8)),
        caching=draw(st.sampled_from(["hops", "miles", "random"])),
        lookup=draw(st.sampled_from(["hops", "miles", "random"])),
        client_cache=draw(st.sampled_from(["none", "infinite"])),
        slots=draw(st.integers(1, 8)),
        cap=draw(st.sampled_from([0.25, 1.0])),
        seed=draw(st.integers(0, 9)),
    )
    return demand(requests, pages, len(subnets), origins), internet(subnets, servers, 6), setting


@settings(max_examples=examples(60))
@given(cases())
def test_outcome_counts_add_up(case) -> None:  # type: ignore[no-untyped-def]
    trace, world, setting = case
    simulation = PushSimulation(trace, world, setting)
    outcome = simulation.run()
    assert outcome.requests == len(trace)
    assert outcome.requests == outcome.client_hits + outcome.hits + outcome.checks + outcome.origin_answers
    assert outcome.stored_bytes == sum(cache.used.size for cache in simulation.caches.values())
    assert outcome.stored_bytes <= outcome.most_stored_bytes
    assert outcome.active <= min(outcome.available, outcome.pushes)
    assert outcome.stale_hits <= outcome.hits
    assert outcome.client_stale_hits <= outcome.client_hits
    assert outcome.renewals <= outcome.checks
    assert outcome.invalid <= outcome.origin_answers
    sent = outcome.primary_traffic + outcome.cache_traffic
    assert 0 < outcome.primary_traffic <= sent
    assert 0 <= outcome.traffic <= sent * (world.access_hops + 5)


@settings(max_examples=examples(60))
@given(cases())
def test_outcome_traffic_is_all_that_was_sent(case) -> None:  # type: ignore[no-untyped-def]
    """Bytes by distance, and by sender, add up to the same."""
    sent: Counter[int] = Counter()

    class CountedSimulation(PushSimulation):
        def send_from_origin(self, size: int, hops: int) -> None:
            sent[hops] += size
            super().send_from_origin(size, hops)

        def send_from_cache(self, size: int, hops: int) -> None:
            sent[hops] += size
            super().send_from_cache(size, hops)

    outcome = CountedSimulation(*case).run()
    assert outcome.traffic == sum(hops * size for hops, size in sent.items())
    assert outcome.primary_traffic + outcome.cache_traffic == sent.total()


@settings(max_examples=examples(40))
@given(cases())
def test_traffic_without_pushing_is_bytes_times_hops(case) -> None:  # type: ignore[no-untyped-def]
    trace, world, _ = case
    outcome = simulate_pushing(trace, world, PushCacheSetting(servers=0))
    assert outcome.traffic == int((trace.size * world.hops(trace.subnet, trace.server).astype(np.int64)).sum())
    assert outcome.primary_traffic == int(trace.size.sum())
    assert outcome.cache_traffic == 0


@settings(max_examples=examples(40))
@given(cases())
def test_cached_nearness_agrees_with_computed_one(case) -> None:  # type: ignore[no-untyped-def]
    trace, world, setting = case
    expected = simulate_pushing(trace, world, setting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(push_cache_internet, "CACHED", ())
        assert simulate_pushing(trace, world, setting) == expected


def test_simulation_depends_on_seed() -> None:
    rng = np.random.default_rng(5)
    requests = [(float(time), 0, int(rng.integers(4)), int(rng.integers(3))) for time in range(0, 36_000, 100)]
    trace = demand(requests, [(page, 100, LONG_AGO) for page in range(3)], subnets=4)
    world = internet(subnets=[0, 1, 2, 3], servers=[0, 1, 2, 3])
    outcomes = [
        simulate_pushing(trace, world, PushCacheSetting(1, 2, 3, "random", "random", seed=seed))
        for seed in (1, 1, 2)
    ]
    assert outcomes[0] == outcomes[1] != outcomes[2]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), min_size=1, unique=True),
    st.lists(st.integers(-7, 7)),
)
def test_versions_current_is_last_one_not_after_time(rows: list[tuple[int, int]], times: list[int]) -> None:
    known = sorted({page for page, _ in rows})
    rows = [(known.index(page), time) for page, time in rows]
    page, modified = (np.array(column) for column in zip(*rows, strict=True))
    versions = Versions.of(page, np.arange(len(rows)) + 1, modified.astype(np.float64))
    for one in range(len(known)):
        own = sorted(time for page, time in rows if page == one)
        for time in times:
            expected = max((other for other in own if other <= time), default=own[0])
            assert versions.at(one, time)[1] == expected
            place = int(versions.current(np.array([one]), np.array([float(time)]))[0])
            assert (versions.size[place], versions.modified[place]) == versions.at(one, time)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"threshold": -1.0}, "threshold -1: must not be negative"),
        ({"threshold": float("nan")}, "threshold nan: must not be negative"),
        ({"pages": 0}, "pages 0: must be from 1"),
        ({"servers": -1}, "servers -1: must be from 0"),
        ({"slots": 0}, "slots 0: must be from 1"),
        ({"lookup": "near"}, "lookup near: must be one of hops, miles, random"),
        ({"client_cache": "some"}, "client_cache some: must be one of none, infinite"),
        ({"cap": 0.0}, "cap 0: must be above 0"),
    ],
)
def test_setting_rejects_invalid_values(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        PushCacheSetting(**wrong)  # type: ignore[arg-type]
