"""The load of an origin, and its counts of recent requests."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsstand.errors import BadOption
from newsstand.push_caching.origin import LoadAverage, RecentCounts

HALF_HOUR = 1800.0


def test_load_average_halves_old_load() -> None:
    load = LoadAverage(started=100.0)
    assert load.record(100.0, requests=80) is None
    assert load.load == 0.0
    assert load.advance(1899.9) is None
    assert load.advance(1900.0) == 40.0
    load.record(1900.0, requests=60)
    assert load.advance(3700.0) == 0.5 * 40 + 0.5 * 60
    assert load.load == 50.0


def test_load_average_uses_decay() -> None:
    load = LoadAverage(0.0, decay=0.75, period_s=10.0)
    load.record(0.0, requests=8)
    assert load.advance(10.0) == 2.0
    load.record(10.0, requests=4)
    assert load.advance(20.0) == 0.75 * 2 + 0.25 * 4


def test_load_average_assigns_boundary_to_next_period() -> None:
    load = LoadAverage(0.0)
    load.record(0.0)
    assert load.record(HALF_HOUR) == 0.5
    assert load.advance(2 * HALF_HOUR) == 0.75


def test_load_average_returns_highest_load_after_pause() -> None:
    load = LoadAverage(0.0)
    load.record(5.0, requests=256)
    assert load.advance(4 * HALF_HOUR) == 128.0
    assert load.load == 128.0 / 8
    assert load.closes_at == 5 * HALF_HOUR


def test_load_average_reset_keeps_open_period() -> None:
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
def test_load_average_agrees_with_single_periods(times: list[float], started: float, decay: float) -> None:
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
        ({"decay": 1.0}, "decay 1: must be at least 0 and below 1"),
        ({"decay": -0.1}, "decay -0.1: must be"),
        ({"period_s": 0.0}, "period_s 0: must be above 0"),
    ],
)
def test_load_average_rejects_invalid_parameters(options: dict[str, float], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        LoadAverage(0.0, **options)


def test_recent_counts_count_until_cleared() -> None:
    counts: RecentCounts[str] = RecentCounts()
    for page in "baacb":
        counts.record(page, now=1.0)
    assert list(counts.counts().items()) == [("a", 2), ("b", 2), ("c", 1)]
    assert counts.most_frequent(2) == [("a", 2), ("b", 2)]
    assert counts.most_frequent(9) == [("a", 2), ("b", 2), ("c", 1)]
    counts.clear()
    assert counts.counts() == {}
    assert counts.most_frequent(9) == []


def test_recent_counts_forget_old_entries() -> None:
    counts: RecentCounts[int] = RecentCounts(remember_s=100.0)
    counts.record(1, now=0.0)
    counts.record(2, now=10.0)
    counts.record(3, now=10.0)
    counts.record(1, now=50.0)
    counts.expire(now=110.0)
    assert counts.counts() == {1: 2, 2: 1, 3: 1}
    assert counts.most_frequent(9) == [(1, 2), (2, 1), (3, 1)]
    counts.expire(now=110.5)
    assert counts.counts() == {1: 2}


def test_recent_counts_limit_entries() -> None:
    counts: RecentCounts[int] = RecentCounts(most_entries=2)
    for now, subnet in enumerate([1, 2, 1, 3]):
        counts.record(subnet, float(now))
    assert counts.counts() == {1: 2, 3: 1}


@given(pages=st.lists(st.integers(0, 6), max_size=50), wanted=st.integers(0, 8))
def test_recent_counts_rank_pages_by_requests(pages: list[int], wanted: int) -> None:
    recent: RecentCounts[int] = RecentCounts()
    for page in pages:
        recent.record(page, 0.0)
    counts = Counter(pages)
    assert recent.most_frequent(wanted) == [
        (page, counts[page]) for page in sorted(counts, key=lambda page: (-counts[page], page))[:wanted]
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"remember_s": 0.0}, "remember_s 0: must be above 0"),
        ({"most_entries": 0}, "most_entries 0: must be at least 1"),
    ],
)
def test_recent_counts_reject_invalid_parameters(options: dict[str, float], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        RecentCounts(**options)  # type: ignore[arg-type]
