"""Push-caching simulated: small traces worked out by hand, and what holds of all."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from push_traces import demand, internet

from newsstand.errors import BadOption
from newsstand.lab import push_cache_internet
from newsstand.lab.push_cache import PushSimulation, simulated
from newsstand.lab.push_cache_demand import PushDemand, Versions
from newsstand.lab.push_cache_outcome import PushOutcome
from newsstand.lab.push_cache_setting import PushCacheSetting
from newsstand.planning.backbone import Internet

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


def test_pages_go_to_where_they_are_wanted_and_clients_after_them() -> None:
    later = [(1800.0, 0, 1, 0), (1900.0, 0, 1, 1), (1950.0, 0, 0, 0)]
    outcome = simulated(demand([*FAR, *later], [(0, 1000, LONG_AGO), (1, 300, LONG_AGO)]), WORLD, SETTING)
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


def test_nothing_is_pushed_at_the_threshold() -> None:
    trace = demand([*FAR, (1800.0, 0, 1, 0)], [(0, 1000, LONG_AGO), (1, 300, LONG_AGO)])
    outcome = simulated(trace, WORLD, PushCacheSetting(threshold=2.5, pages=2, servers=1))
    assert counts(outcome) == {
        "origins": 1,
        "available": 1,
        "requests": 6,
        "origin_answers": 6,
        "traffic": 4600 * 5,
        "primary_traffic": 4600,
    }


def test_a_copy_that_is_older_than_its_page_is_a_stale_hit() -> None:
    pages = [(0, 1000, LONG_AGO), (0, 500, 2000.0), (1, 300, LONG_AGO)]
    outcome = simulated(demand([*FAR, (2100.0, 0, 1, 0)], pages), WORLD, SETTING)
    assert (outcome.hits, outcome.stale_hits, outcome.checks) == (1, 1, 0)
    assert outcome.traffic == 18_000 + 6500 + 340 + 1000 * 2


def test_a_copy_is_checked_after_a_tenth_of_its_age() -> None:
    pages = [(0, 1000, -1000.0), (1, 300, LONG_AGO)]
    # It is 3100 s old at 2100, not checked for 300; and 3200 at 2200, not for 400.
    outcome = simulated(demand([*FAR, (2100.0, 0, 1, 0), (2200.0, 0, 1, 0)], pages), WORLD, SETTING)
    assert (outcome.hits, outcome.checks, outcome.renewals, outcome.stale_hits) == (1, 1, 0, 0)
    assert outcome.traffic == 18_000 + 6500 + 340 + 2 * 1000 * 2 + 34 * 5
    assert outcome.primary_traffic == 3600 + 1300 + 68 + 34


def test_a_check_brings_a_newer_page() -> None:
    pages = [(0, 1000, -1000.0), (0, 500, 2000.0), (1, 300, LONG_AGO)]
    outcome = simulated(demand([*FAR, (2200.0, 0, 1, 0), (2201.0, 0, 1, 0)], pages), WORLD, SETTING)
    assert (outcome.hits, outcome.checks, outcome.renewals, outcome.stale_hits) == (1, 1, 1, 0)
    assert outcome.traffic == 18_000 + 6500 + 340 + 500 * 5 + 2 * 500 * 2
    assert (outcome.stored_bytes, outcome.most_stored_bytes) == (800, 1300)


def test_a_client_that_is_told_invalid_gets_the_page_from_the_origin() -> None:
    redirected = (1800.0, 0, 1, 0)  # to both pages
    second = [(1900.0, 0, 1, 2)] * 8
    gone = [(3600.0, 0, 1, 1)] * 2
    pages = [(0, 1000, LONG_AGO), (1, 300, LONG_AGO), (2, 200, LONG_AGO)]
    setting = PushCacheSetting(threshold=2, pages=2, servers=1, slots=2, cap=1.0)
    outcome = simulated(demand([*FAR, redirected, *second, *gone], pages), WORLD, setting)
    assert (outcome.pushes, outcome.pushed_bytes) == (2, 1500)
    assert (outcome.invalid, outcome.hits, outcome.origin_answers) == (1, 1, 15)
    assert (outcome.stored_bytes, outcome.most_stored_bytes) == (1200, 1300)
    assert outcome.traffic == (18_000 + 6500) + (340 + 2000) + 8 * 200 * 5 + 200 * 5 + 34 * 2 + 2 * 300 * 5
    assert outcome.cache_traffic == 1000 + 34


def test_an_origin_learns_from_a_client_that_another_has_displaced_its_page() -> None:
    # Each origin pushes its page to the only push-cache, which has one slot; the second displaces the first.
    world = internet(subnets=[0, 3], servers=[0, 0, 3])
    requests = [(0.0, 0, 1, 0)] * 5 + [(1.0, 1, 1, 1)] * 5 + [(1900.0, 0, 1, 0)] * 2
    trace = demand(requests, [(0, 1000, LONG_AGO), (1, 300, LONG_AGO)], origins=2)
    outcome = simulated(trace, world, PushCacheSetting(threshold=2, servers=1, slots=1))
    assert (outcome.pushes, outcome.redirects, outcome.invalid, outcome.hits) == (2, 1, 1, 0)
    assert outcome.traffic == 5 * 1300 * 5 + 1300 * 5 + 34 * 5 + 34 * 2 + 2 * 1000 * 5
    assert (outcome.stored_bytes, outcome.most_stored_bytes) == (300, 1000)


def test_an_infinite_client_cache_asks_again_by_the_same_rule() -> None:
    pages = [(0, 1000, -1000.0), (0, 500, 600.0)]
    requests = [(time, 0, 1, 0) for time in (0.0, 10.0, 500.0, 650.0, 800.0)]
    setting = PushCacheSetting(servers=0, client_cache="infinite")
    # Fetched; a hit; found unchanged; a stale hit, as 150 s are less than a tenth of 1650; fetched anew.
    assert counts(simulated(demand(requests, pages), WORLD, setting)) == {
        "origins": 1,
        "requests": 5,
        "client_hits": 2,
        "client_stale_hits": 1,
        "client_bytes": 500,
        "origin_answers": 3,
        "traffic": (1000 + 34 + 500) * 5,
        "primary_traffic": 1000 + 34 + 500,
    }


def test_what_a_client_has_already_is_not_sent_by_a_push_cache() -> None:
    world = internet(subnets=[3, 3], servers=[0, 3])
    crowd = [(0.0, 0, 0, 0)] * 4 + [(1.0, 0, 1, 0)]
    setting = PushCacheSetting(threshold=0.2, servers=1, client_cache="infinite")
    # Two subnets fetch it once each; at 1850 subnet 1 has not checked it for longer than a tenth of 2850 s.
    outcome = simulated(demand([*crowd, (1850.0, 0, 1, 0)], [(0, 1000, -1000.0)]), world, setting)
    assert (outcome.client_hits, outcome.hits, outcome.redirects) == (3, 1, 1)
    assert outcome.traffic == 2 * 1000 * 5 + 1000 * 5 + 34 * 5 + 34 * 2


def test_half_hours_without_requests_pass() -> None:
    later = [(HALF_HOUR * 100, 0, 1, 0)]
    outcome = simulated(demand([*FAR, *later], [(0, 1000, LONG_AGO), (1, 300, LONG_AGO)]), WORLD, SETTING)
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


@settings(max_examples=60)
@given(cases())
def test_every_request_is_answered_once_and_all_bytes_stored_are_known(case) -> None:  # type: ignore[no-untyped-def]
    trace, world, setting = case
    simulation = PushSimulation(trace, world, setting)
    outcome = simulation.run()
    assert outcome.requests == len(trace)
    assert outcome.requests == outcome.client_hits + outcome.hits + outcome.checks + outcome.origin_answers
    assert outcome.stored_bytes == sum(cache.used.size for cache in simulation._caches.values())
    assert outcome.stored_bytes <= outcome.most_stored_bytes
    assert outcome.active <= min(outcome.available, outcome.pushes)
    assert outcome.stale_hits <= outcome.hits
    assert outcome.client_stale_hits <= outcome.client_hits
    assert outcome.renewals <= outcome.checks
    assert outcome.invalid <= outcome.origin_answers
    sent = outcome.primary_traffic + outcome.cache_traffic
    assert 0 < outcome.primary_traffic <= sent
    assert 0 <= outcome.traffic <= sent * (world.access_hops + 5)


@settings(max_examples=60)
@given(cases())
def test_all_traffic_is_what_somebody_sent_somewhere(case) -> None:  # type: ignore[no-untyped-def]
    """Bytes by distance, and by sender, add up to the same."""
    trace, world, setting = case
    simulation = PushSimulation(trace, world, setting)
    sent: Counter[int] = Counter()
    from_origin, from_cache = simulation._from_origin, simulation._from_cache

    def count_origin(size: int, hops: int) -> None:
        sent[hops] += size
        from_origin(size, hops)

    def count_cache(size: int, hops: int) -> None:
        sent[hops] += size
        from_cache(size, hops)

    simulation._from_origin, simulation._from_cache = count_origin, count_cache  # type: ignore[method-assign]
    outcome = simulation.run()
    assert outcome.traffic == sum(hops * size for hops, size in sent.items())
    assert outcome.primary_traffic + outcome.cache_traffic == sent.total()


@settings(max_examples=40)
@given(cases())
def test_without_pushing_traffic_is_bytes_times_hops(case) -> None:  # type: ignore[no-untyped-def]
    trace, world, _ = case
    outcome = simulated(trace, world, PushCacheSetting(servers=0))
    assert outcome.traffic == int((trace.size * world.hops(trace.subnet, trace.server).astype(np.int64)).sum())
    assert outcome.primary_traffic == int(trace.size.sum())
    assert outcome.cache_traffic == 0


@settings(max_examples=40)
@given(cases())
def test_distances_in_tables_decide_as_those_computed_anew(case) -> None:  # type: ignore[no-untyped-def]
    trace, world, setting = case
    expected = simulated(trace, world, setting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(push_cache_internet, "TABLED", ())
        assert simulated(trace, world, setting) == expected


def test_a_seed_fixes_what_is_random_and_another_changes_it() -> None:
    rng = np.random.default_rng(5)
    requests = [(float(time), 0, int(rng.integers(4)), int(rng.integers(3))) for time in range(0, 36_000, 100)]
    trace = demand(requests, [(page, 100, LONG_AGO) for page in range(3)], subnets=4)
    world = internet(subnets=[0, 1, 2, 3], servers=[0, 1, 2, 3])
    outcomes = [
        simulated(trace, world, PushCacheSetting(1, 2, 3, "random", "random", seed=seed)) for seed in (1, 1, 2)
    ]
    assert outcomes[0] == outcomes[1] != outcomes[2]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), min_size=1, unique=True),
    st.lists(st.integers(-7, 7)),
)
def test_the_version_of_a_time_is_the_last_one_not_after_it(rows: list[tuple[int, int]], times: list[int]) -> None:
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
    ("wrong", "told"),
    [
        ({"threshold": -1.0}, "--threshold -1: cannot be negative"),
        ({"threshold": float("nan")}, "--threshold nan: cannot be negative"),
        ({"pages": 0}, "--pages 0: must be in 1"),
        ({"servers": -1}, "--servers -1: must be in 0"),
        ({"slots": 0}, "--slots 0: must be in 1"),
        ({"lookup": "near"}, "--lookup near: choose of hops, miles, random"),
        ({"client_cache": "some"}, "--client-cache some: choose of none, infinite"),
        ({"cap": 0.0}, "--cap 0: must be above 0"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        PushCacheSetting(**wrong)  # type: ignore[arg-type]
