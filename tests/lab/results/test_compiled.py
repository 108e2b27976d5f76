"""The compiled replay of broker events agrees with the object core in every count, and names what it rejects."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lab.result_vectors import FOLDER, POLICIES, VECTORS
from support.profiles import examples

from newsstand.caching import RESULT_POLICIES, Tail, result_policy
from newsstand.caching.kernels.results import table as results_table
from newsstand.caching.kernels.results.broker import NO_CACHE, discard, lowest, new_tournament, rank
from newsstand.caching.kernels.results.wide_integers import add, add_product, new_sums, quotient, share, totals
from newsstand.errors import BadOption, BadTrace
from newsstand.lab.results import events as broker_events
from newsstand.lab.results.compiled import arrange_events, replay_arranged, replay_compiled
from newsstand.lab.results.events import BrokerEvents, events_of, read_events
from newsstand.lab.results.replay import ReplaySetting, replay

FAR = [0, 1, 70_000, 2**40]
"""Ids from which arrays over all smaller ones would be a burden."""

Row = tuple[int, str, int, int, int]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("vector", VECTORS)
def test_kernel_agrees_with_vectors(vector: str, policy: str) -> None:
    events = read_events(FOLDER / vector)
    runs = [run for run in VECTORS[vector]["runs"] if run["policy"] == policy]
    assert runs
    for run in runs:
        setting = ReplaySetting(
            policy, run["cache_bytes"], run["evict"], run["expiry"], **VECTORS[vector]["params"]
        )
        measured = replay_compiled(events, setting)
        assert set(measured) == set(run)
        for name, value in run.items():
            inexact = isinstance(value, (float, list))
            wanted = pytest.approx(value, rel=1e-9, abs=1e-9) if inexact else value
            assert measured[name] == wanted, f"{name} at {run['cache_bytes']} bytes, {run['evict']}"


KINDS = ["result"] * 9 + ["login"] * 3 + ["logout"] * 3 + ["subscribe"] * 4 + ["unsubscribe"] * 2
STEPS = [0, 0, 0, 1, 1, 2, 5, 10]
SIZES = [1, 2, 3, 10, 10_000, 30_000]


def table(choices: bytes, scale: int, *, far: bool) -> BrokerEvents:
    """Few subscribers, caches, sizes and moments: scores tie, and rows fall on the instants of others."""
    rows, time = [], 0
    for kind, who, which, step in zip(*[iter(choices)] * 4, strict=False):
        time += STEPS[step % len(STEPS)] * scale
        ids = (FAR[who % 4], FAR[which % 3]) if far else (who % 4, which % 3)
        rows.append((time, KINDS[kind % len(KINDS)], *ids, SIZES[(who // 4) % len(SIZES)]))
    return events_of(rows)


def settings_of(policy: str) -> st.SearchStrategy[ReplaySetting]:
    return st.builds(
        ReplaySetting,
        policy=st.just(policy),
        cache_bytes=st.sampled_from([0, 3, 12, 40_000, 70_000, 200_000]),
        evict=st.sampled_from(["put", "after"]),
        expiry=st.sampled_from(["cache", "object"]),
        window_ms=st.sampled_from([1, 5, 10, 16]),
        windows=st.sampled_from([1, 2, 3, 1000]),
        cap_ms=st.sampled_from([0, 5, 12, 1000]),
    )


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(150))
@given(
    choices=st.sampled_from([0, 8, 80, 400]).flatmap(lambda size: st.binary(min_size=size, max_size=size)),
    scale=st.sampled_from([1, 3]),
    far=st.booleans(),
    late=st.sampled_from([0, 1, 7, 40]),
    data=st.data(),
)
def test_kernel_agrees_with_core(
    policy: str, choices: bytes, scale: int, far: bool, late: int, data: st.DataObject
) -> None:
    events = table(choices, scale, far=far)
    setting = replace(data.draw(settings_of(policy)), end_ms=events.end_ms + late)
    assert replay_compiled(events, setting) == replay(events, setting)


def crowded(chosen: random.Random) -> Iterator[Row]:
    """Forty subscribers of twelve caches, which most of them join at first."""
    for who in range(40):
        for which in chosen.sample(range(12), 4):
            yield 0, "subscribe", who, which, 0
    time = 0
    for _ in range(chosen.randrange(200, 1500)):
        time += chosen.choice([0, 0, 1, 3, 20])
        kind = chosen.choices(["result", "login", "logout", "subscribe", "unsubscribe"], [9, 3, 3, 1, 1])[0]
        yield time, kind, chosen.randrange(40), chosen.randrange(12), chosen.randrange(1, 50_000)


@pytest.mark.parametrize("policy", POLICIES)
def test_kernel_agrees_with_core_on_crowded_tables(policy: str) -> None:
    for seed in range(12):
        chosen = random.Random(seed)
        events = events_of(crowded(chosen))
        setting = ReplaySetting(
            policy,
            chosen.choice([10_000, 100_000, 1_000_000, 10_000_000]),
            chosen.choice(["put", "after"]),
            chosen.choice(["cache", "object"]),
            window_ms=chosen.choice([30, 200, 5000]),
            windows=chosen.choice([1, 2, 4]),
            cap_ms=chosen.choice([15, 400, 10_000]),
        )
        assert replay_compiled(events, setting) == replay(events, setting)


def test_kernel_replays_one_table_under_many_settings() -> None:
    events = events_of(crowded(random.Random(5)))
    arranged = arrange_events(events)
    wanted = [ReplaySetting(policy, 100_000) for policy in POLICIES]
    once = [replay_arranged(arranged, setting, events.end_ms) for setting in wanted]
    again = [replay_arranged(arranged, setting, events.end_ms) for setting in reversed(wanted)]
    assert once == again[::-1] == [replay(events, setting) for setting in wanted]


def test_sums_grow_beyond_64_bits() -> None:
    day, size = 86_400_000, 2**40
    rows: list[Row] = [(0, "subscribe", who, 1, 0) for who in range(100)]
    rows += [(0, "login", who, 0, 0) for who in range(99)]
    rows += [(time * day, "result", 0, 1, size + time) for time in range(1, 60)]
    events = events_of([*rows, (60 * day, "login", 99, 0, 0)])
    setting = ReplaySetting("lru", 2**62, end_ms=400 * day, window_ms=day, windows=300, cap_ms=2**52)
    measured = replay_compiled(events, setting)
    assert measured == replay(events, setting)
    assert isinstance(measured["size_integral"], int)
    assert measured["size_integral"] > 2**64


def test_kernel_kinds_are_those_of_events() -> None:
    for kind in broker_events.KINDS:
        assert getattr(results_table, kind.upper()) == broker_events.KINDS.index(kind)


def test_kernel_ignores_unused_fields() -> None:
    rows = [(0, "login", 0, -5, -1), (0, "subscribe", 0, 3, -9), (4, "result", -7, 3, 20)]
    assert replay_compiled(events_of(rows), ReplaySetting("lsc", 100))["hits"] == 1


def test_kernel_compiles_own_policy() -> None:
    @result_policy("biggest")
    def biggest(tail: Tail) -> float:
        """The biggest tail leaves first."""
        return -tail.size if tail.inserted_ms > 5 else tail.waiting

    try:
        events = events_of(crowded(random.Random(3)))
        setting = ReplaySetting("biggest", 200_000)
        measured = replay_compiled(events, setting)
        assert measured["dropped_objects"]
        assert measured == replay(events, setting)
    finally:
        del RESULT_POLICIES["biggest"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((3, "login", -1, 0, 0), "row 3: a negative subscriber"),
        ((3, "subscribe", 1, -1, 0), "row 3: a negative subscriber or subscription"),
        ((3, "result", 0, 1, 0), "row 3: size is not positive"),
        ((1, "result", 0, 1, 5), "row 3: time_ms is negative or before"),
        ((3, "result", 0, 1, 2**53), "a result of 9007199254740992 bytes is too large"),
    ],
)
def test_table_error_names_row(row: Row, message: str) -> None:
    events = events_of([(0, "login", 1, 0, 0), (2, "subscribe", 1, 1, 0), row])
    with pytest.raises(BadTrace, match=message):
        replay_compiled(events, ReplaySetting("lru", 100))


def test_table_rejects_too_large_numbers() -> None:
    nothing = events_of([])
    with pytest.raises(BadOption, match="cache_bytes: the compiled replay takes up to"):
        replay_compiled(nothing, ReplaySetting("lru", 2**63))
    with pytest.raises(BadOption, match="end_ms and cap_ms together"):
        replay_compiled(nothing, ReplaySetting("lru", 9, cap_ms=2**53 + 1))
    with pytest.raises(BadOption, match="end_ms 4"):
        replay_compiled(events_of([(5, "login", 0, 0, 0)]), ReplaySetting("lru", 9, end_ms=4))
    sizes = np.full(2**11, 2**52)
    many = BrokerEvents(sizes * 0, np.full(2**11, 4, np.uint8), sizes * 0, sizes * 0, sizes)
    with pytest.raises(BadTrace, match="more than 2\\^62 bytes"):
        replay_compiled(many, ReplaySetting("lru", 9))


WORD = st.integers(0, 2**64 - 1) | st.integers(0, 100)
POSITIVE = st.integers(1, 2**63 - 1) | st.integers(1, 100)


class TestExactIntegers:
    @given(low=WORD, high=WORD, divisor=POSITIVE)
    def test_quotient_of_two_words_is_exact(self, low: int, high: int, divisor: int) -> None:
        below, above, rest = quotient(np.uint64(low), np.uint64(high), np.uint64(divisor))
        assert divmod(high << 64 | low, divisor) == (int(above) << 64 | int(below), int(rest))

    @given(values=st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**62)), max_size=20))
    def test_sums_of_numbers_and_products_are_exact(self, values: list[tuple[int, int]]) -> None:
        sums = new_sums(2)
        for one, other in values:
            add(sums, 0, one)
            add_product(sums, 1, one, other)
        wanted = [sum(one for one, _ in values), sum(one * other for one, other in values)]
        assert totals(sums) == [one % 2**128 for one in wanted]

    @settings(max_examples=examples(300))
    @given(
        parts=st.tuples(st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1)).map(sorted),
        amount=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**53)).map(lambda pair: pair[0] * pair[1]),
        divisor=POSITIVE,
        most=st.integers(0, 2**53),
    )
    def test_share_of_two_words_is_exact(self, parts: list[int], amount: int, divisor: int, most: int) -> None:
        part, whole = parts
        low, high = np.uint64(amount % 2**64), np.uint64(amount >> 64)
        assert share(part, whole, low, high, divisor, most) == min(most, part * amount // (whole * divisor))


@given(
    number=st.integers(1, 9),
    changes=st.lists(st.tuples(st.integers(0, 8), st.none() | st.sampled_from([-1.5, 0.0, 2.0, np.inf]))),
)
def test_tournament_agrees_with_sorted_list(number: int, changes: list[tuple[int, float | None]]) -> None:
    ranking, scores = new_tournament(number), {}
    for cache, score in changes:
        if cache >= number:
            continue
        if score is None:
            discard(ranking, cache)
            scores.pop(cache, None)
        else:
            rank(ranking, cache, score)
            scores[cache] = score
        assert lowest(ranking) == (min(scores, key=lambda key: (scores[key], key)) if scores else NO_CACHE)
