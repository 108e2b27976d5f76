"""The load of an origin, and what it remembers of its requests."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsstand.errors import BadOption
from newsstand.planning.push_history import AccessHistory
from newsstand.planning.push_load import LoadAverage

HALF_HOUR = 1800.0


def test_the_load_is_half_of_what_it_was_and_half_of_the_new_requests() -> None:
    load = LoadAverage(started=100.0)
    assert load.record(100.0, requests=80) is None
    assert load.load == 0.0
    assert load.advance(1899.9) is None
    assert load.advance(1900.0) == 40.0
    load.record(1900.0, requests=60)
    assert load.advance(3700.0) == 0.5 * 40 + 0.5 * 60
    assert load.load == 50.0


def test_the_decay_says_how_much_of_the_past_stays() -> None:
    load = LoadAverage(0.0, decay=0.75, period_s=10.0)
    load.record(0.0, requests=8)
    assert load.advance(10.0) == 2.0
    load.record(10.0, requests=4)
    assert load.advance(20.0) == 0.75 * 2 + 0.25 * 4


def test_a_request_at_the_end_of_a_half_hour_belongs_to_the_next() -> None:
    load = LoadAverage(0.0)
    load.record(0.0)
    assert load.record(HALF_HOUR) == 0.5
    assert load.advance(2 * HALF_HOUR) == 0.75


def test_after_a_long_rest_the_highest_load_is_told() -> None:
    load = LoadAverage(0.0)
    load.record(5.0, requests=256)
    assert load.advance(4 * HALF_HOUR) == 128.0
    assert load.load == 128.0 / 8
    assert load.closes_at == 5 * HALF_HOUR


def test_a_reset_forgets_the_load_but_not_the_half_hour_that_runs() -> None:
    load = LoadAverage(0.0)
    load.record(0.0, requests=10)
    load.advance(HALF_HOUR)
    load.record(HALF_HOUR, requests=6)
    load.reset()
    assert load.load == 0.0
    assert load.advance(2 * HALF_HOUR) == 3.0


@given(
    times=st.lists(st.floats(0, 1e6), max_size=60).map(sorted),
    started=st.floats(-1e3, 0),
    decay=st.sampled_from([0.0, 0.5, 0.9]),
)
def test_the_load_is_that_of_closing_each_half_hour_by_itself(
    times: list[float], started: float, decay: float
) -> None:
    load = LoadAverage(started, decay)
    for time in times:
        load.record(time)
    end = load.closes_at
    load.advance(end)
    plain, closes = 0.0, 1
    counts: Counter[int] = Counter()
    for time in times:
        while time >= started + closes * HALF_HOUR:
            closes += 1
        counts[closes] += 1
    for number in range(1, closes + 1):
        plain = decay * plain + (1 - decay) * counts[number]
    assert load.load == pytest.approx(plain, rel=1e-9, abs=1e-12)
    assert end == started + closes * HALF_HOUR


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay": 1.0}, "decay is 1.0"),
        ({"decay": -0.1}, "decay is -0.1"),
        ({"period_s": 0.0}, "period_s is 0.0"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        LoadAverage(0.0, **options)


def test_requests_are_counted_by_subnet_and_by_page_until_cleared() -> None:
    history: AccessHistory[str] = AccessHistory()
    for subnet, page in [(7, "b"), (3, "a"), (7, "a"), (7, "c"), (3, "b")]:
        history.record(subnet, page, now=1.0)
    assert list(history.subnets().items()) == [(3, 2), (7, 3)]
    assert history.most_popular(2) == [("a", 2), ("b", 2)]
    assert history.most_popular(9) == [("a", 2), ("b", 2), ("c", 1)]
    history.clear()
    assert history.subnets() == {}
    assert history.most_popular(9) == []


def test_what_has_not_occurred_for_long_is_forgotten() -> None:
    history: AccessHistory[int] = AccessHistory(remember_s=100.0)
    history.record(1, 10, now=0.0)
    history.record(2, 20, now=10.0)
    history.record(1, 30, now=50.0)
    history.expire(now=110.0)
    assert history.subnets() == {1: 2, 2: 1}
    assert history.most_popular(9) == [(20, 1), (30, 1)]
    history.expire(now=110.5)
    assert history.subnets() == {1: 2}


def test_of_too_many_subnets_the_one_not_seen_for_longest_leaves() -> None:
    history: AccessHistory[int] = AccessHistory(most_entries=2)
    for now, subnet in enumerate([1, 2, 1, 3]):
        history.record(subnet, 0, float(now))
    assert history.subnets() == {1: 2, 3: 1}


@given(pages=st.lists(st.integers(0, 6), max_size=50), wanted=st.integers(0, 8))
def test_the_most_popular_pages_are_those_with_most_requests(pages: list[int], wanted: int) -> None:
    history: AccessHistory[int] = AccessHistory()
    for page in pages:
        history.record(0, page, 0.0)
    counts = Counter(pages)
    assert history.most_popular(wanted) == [
        (page, counts[page]) for page in sorted(counts, key=lambda page: (-counts[page], page))[:wanted]
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"remember_s": 0.0}, "remember_s is 0.0"), ({"most_entries": 0}, "most_entries is 0")],
)
def test_a_history_of_nothing_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        AccessHistory(**options)  # type: ignore[arg-type]
