"""The city of the emergencies example has the sizes, numbers and movement of section VI."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.emergencies import kilometres
from support.profiles import examples

from newsstand.scenarios.emergencies import city

SEEDS = st.integers(0, 2**32)


def in_the_city(record: dict[str, float]) -> bool:
    lat, lon = city.CENTRE
    north = kilometres({"lat": lat, "lon": lon}, {"lat": record["lat"], "lon": lon})
    east = kilometres({"lat": lat, "lon": lon}, {"lat": lat, "lon": record["lon"]})
    return max(north, east) <= city.SIZE_KM / 2 + 0.01


def played(seed: int) -> str:
    one = city.City(seed)
    parts = [one.shelters(), one.shelter_news(), one.subscriptions()]
    parts += [[one.report(now), one.locations(now)] for now in (0.0, 700.0, 3600.0)]
    return json.dumps(parts)


def test_city_is_determined_by_seed() -> None:
    assert played(3) == played(3)
    assert played(3) != played(4)


@settings(max_examples=examples(20))
@given(SEEDS)
def test_reports_lie_in_the_city_and_have_200_to_1000_bytes(seed: int) -> None:
    one = city.City(seed)
    reports = [one.report(10.0 * number) for number in range(200)]
    sizes = [len(json.dumps(report, separators=(",", ":")).encode()) for report in reports]
    assert min(sizes) >= 200
    assert max(sizes) <= 1000
    assert max(sizes) - min(sizes) > 300
    assert all(in_the_city(report) for report in reports)
    assert len({report["id"] for report in reports}) == 200
    assert {report["severity"] for report in reports} <= {1, 2, 3, 4, 5}


def test_common_emergencies_outnumber_rare_ones() -> None:
    one = city.City(5)
    seen = Counter(one.report(600.0 * number)["kind"] for number in range(4000))
    assert set(seen) == set(city.KINDS)
    assert seen["accident"] > 4 * seen["tornado"]


def test_reports_of_one_time_cluster_at_few_places() -> None:
    one = city.City(5)
    reports = [one.report(30.0) for _ in range(50)]
    near = [sum(kilometres(a, b) < 4 for b in reports) for a in reports]
    assert min(near) > 3


@settings(max_examples=examples(10))
@given(SEEDS)
def test_subscriptions_merge_as_much_as_in_the_paper(seed: int) -> None:
    one = city.City(seed)
    merged = one.merged()
    assert len(one.users) == 400
    assert sum(merged.values()) == pytest.approx(3500, rel=0.05)
    assert len(merged) == pytest.approx(800, rel=0.1)
    assert len({channel for channel, _ in merged}) == 7


def test_subscriptions_of_person_are_distinct() -> None:
    for wanted in city.City(8).subscriptions().values():
        keys = [json.dumps(one, sort_keys=True) for one in wanted]
        assert len(keys) == len(set(keys))


@settings(max_examples=examples(10))
@given(SEEDS, st.lists(st.floats(0.5, 400), min_size=1, max_size=20))
def test_people_stay_in_city_at_speed_of_cars(seed: int, steps: list[float]) -> None:
    one = city.City(seed, users=20)
    now, before = 0.0, one.locations(0.0)
    for step in steps:
        now += step
        after = one.locations(now)
        for a, b in zip(before, after, strict=True):
            assert a["user"] == b["user"]
            assert in_the_city(b)
            assert 1000 * kilometres(a, b) <= 12.2 * step + 3, "12 m/s, and 3 m for rounding to five decimals"
        before = after


def test_people_move_within_an_hour() -> None:
    one = city.City(1)
    moved = [kilometres(a, b) for a, b in zip(one.locations(0.0), one.locations(3600.0), strict=True)]
    assert min(moved) > 0.05
    assert sum(moved) / len(moved) > 5


def test_walk_does_not_go_back() -> None:
    one = city.City(1, users=1)
    one.locations(100_000.0)
    with pytest.raises(ValueError, match="gone past"):
        one.locations(1.0)


def test_shelters_lie_in_city_and_change_places() -> None:
    one = city.City(2)
    shelters = {shelter["id"]: shelter for shelter in one.shelters()}
    assert len(shelters) == 60
    assert all(in_the_city(shelter) for shelter in shelters.values())
    news = [one.shelter_news() for _ in range(50)]
    assert all(shelters[one["id"]]["name"] == one["name"] and one["places"] >= 0 for one in news)
    assert any(shelters[one["id"]]["places"] != one["places"] for one in news)
