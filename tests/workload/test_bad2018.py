"""The broker's workload is that of Table II, and independent of how it is drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from newsstand.cli.main import run
from newsstand.errors import BadInput, BadOption
from newsstand.workload.bad2018 import generator as generating
from newsstand.workload.bad2018.events import (
    KINDS,
    LOGIN,
    LOGOUT,
    MINUTE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    SimulationSettings,
    SubscriberEvents,
    choose,
    columns,
    results,
    subscriber_events,
)
from newsstand.workload.bad2018.generator import draw, generate, part_edges, units

SMALL = SimulationSettings(subscribers=600, subscriptions=450, hours=0.5, seed=5)
JOINING = SimulationSettings(
    subscribers=40, subscriptions=12, hours=3, join_minutes=90, start="stationary", seed=2
)
CROWDED = SimulationSettings(
    subscribers=30, subscriptions=10, hours=0.2, duration=(-2, 1), popularity="zipf", seed=3
)
Bools = npt.NDArray[np.bool_]


@cache
def table(workload: SimulationSettings) -> pa.Table:
    """The whole table, drawn without Spark."""
    return columns(np.concatenate([draw(workload, unit) for unit in range(units(workload))]))


@cache
def crowd(workload: SimulationSettings) -> SubscriberEvents:
    return subscriber_events(workload, 0, workload.subscribers)


def scatter(deviation: float, count: int) -> float:
    """Five standard errors: a true mean is farther off in one of two million samples."""
    return 5 * deviation / count**0.5


def chi_square_limit(classes: int) -> float:
    """Five standard deviations above what chi-square is expected to be."""
    return classes - 1 + 5 * (2 * (classes - 1)) ** 0.5


# Results


def test_mean_interval_of_subscription_is_uniform_over_given_seconds() -> None:
    workload = SimulationSettings(subscriptions=4000, hours=24)
    _, subscription, _ = results(workload, 0, 0, 4000)
    interval = 24 * 3600 / np.bincount(subscription, minlength=4000)
    # A subscription's interval is measured to within its root over the number of arrivals, here 3 % at most.
    assert interval.min() > 10 * 0.9
    assert interval.max() < 60 * 1.1
    assert interval.mean() == pytest.approx(35, abs=scatter(50 / 12**0.5, 4000) + 0.02)
    counts, _ = np.histogram(interval, np.linspace(10, 60, 11))
    assert counts[1:-1] == pytest.approx(400, abs=5 * 20)


def test_results_arrive_by_poisson_streams() -> None:
    workload = SimulationSettings(subscriptions=200, interval=(20, 20))
    time, subscription, _ = results(workload, 0, 0, 200)
    ordered = np.lexsort((time, subscription))
    same = np.diff(subscription[ordered]) == 0
    gap = np.diff(time[ordered])[same] / 1000
    assert gap.mean() == pytest.approx(20, abs=scatter(20, len(gap)) + 0.06)  # the last gap of each is cut off
    for quantile in (0.1, 0.5, 0.9):
        expected = -np.log(1 - quantile) * 20
        assert np.mean(gap < expected) == pytest.approx(quantile, abs=scatter(0.5, len(gap)) + 0.002)
    count = np.bincount(subscription)
    assert count.var() / count.mean() == pytest.approx(1, abs=scatter(2**0.5, 200))


def test_sizes_are_uniform_and_both_ends_occur() -> None:
    workload = SimulationSettings(subscriptions=1000)
    _, _, size = results(workload, 0, 0, 1000)
    assert size.min() >= 1_000
    assert size.max() <= 500_000
    assert size.mean() == pytest.approx(250_500, abs=scatter(499_000 / 12**0.5, len(size)))
    observed, _ = np.histogram(size, 50, (1_000, 500_001))
    expected = len(size) / 50
    assert np.sum((observed - expected) ** 2 / expected) < chi_square_limit(50)
    _, _, tiny = results(SimulationSettings(size=(3, 5)), 0, 0, 50)
    assert set(tiny.tolist()) == {3, 4, 5}


# Online and offline


def stays(workload: SimulationSettings) -> tuple[npt.NDArray[np.int64], Bools, Bools]:
    """How long everybody stayed in a state, whether it was online, and whether the end cut it off."""
    done = crowd(workload)
    chosen = (done.kind == LOGIN) | (done.kind == LOGOUT)
    order = np.lexsort((done.time[chosen], done.subscriber[chosen]))
    time, online = done.time[chosen][order], (done.kind[chosen] == LOGIN)[order]
    last = np.append(np.diff(done.subscriber[chosen][order]) != 0, True)
    until = np.where(last, workload.end_ms, np.append(time[1:], 0))
    return until - time, online, last


@pytest.mark.parametrize("workload", [SMALL, JOINING, CROWDED], ids=["small", "joining", "crowded"])
def test_logins_and_logouts_alternate_from_login(workload: SimulationSettings) -> None:
    online = np.zeros(workload.subscribers, bool)
    for row in table(workload).to_pylist():
        if row["kind"] in ("login", "logout"):
            assert online[row["subscriber"]] != (row["kind"] == "login")
            online[row["subscriber"]] = row["kind"] == "login"


@pytest.mark.parametrize(("state", "law", "mean"), [(True, (1.753, 1.425), 15.9), (False, (2.415, 1.11), 20.7)])
def test_stays_are_log_normal(state: bool, law: tuple[float, float], mean: float) -> None:
    workload = SimulationSettings(subscribers=300, subscriptions=1, per_subscriber=1, hours=2000, duration=(12, 0))
    length, online, cut = stays(workload)
    minutes = length[(online == state) & ~cut] / MINUTE
    mu, sigma = law
    logarithm = np.log(minutes)
    assert len(minutes) > 500_000
    assert np.median(logarithm) == pytest.approx(mu, abs=scatter(1.2533 * sigma, len(minutes)) + 0.001)
    assert logarithm.mean() == pytest.approx(mu, abs=scatter(sigma, len(minutes)) + 0.001)
    assert logarithm.std() == pytest.approx(sigma, abs=scatter(sigma / 2**0.5, len(minutes)) + 0.001)
    deviation = np.exp(mu + sigma**2 / 2) * np.sqrt(np.exp(sigma**2) - 1)
    assert np.exp(mu + sigma**2 / 2) == pytest.approx(mean, abs=0.1)
    assert minutes.mean() == pytest.approx(mean, abs=scatter(deviation, len(minutes)) + 0.1)


def test_subscribers_start_online_by_default() -> None:
    done = crowd(SMALL)
    first = done.time == 0
    assert np.bincount(done.kind[first], minlength=4)[[UNSUBSCRIBE, SUBSCRIBE, LOGOUT, LOGIN]].tolist() == [
        0,
        10 * 600,
        0,
        600,
    ]


def test_stationary_subscribers_are_online_equally_at_start_and_later() -> None:
    workload = SimulationSettings(
        subscribers=20_000, subscriptions=1, per_subscriber=1, hours=4, duration=(12, 0), start="stationary"
    )
    done = crowd(workload)
    share = 15.9 / (15.9 + 20.7)
    for minute in (0, 1, 5, 30, 120, 239):
        before = done.time <= minute * MINUTE
        online = np.sum(done.kind[before] == LOGIN) - np.sum(done.kind[before] == LOGOUT)
        assert online / 20_000 == pytest.approx(share, abs=scatter(0.5, 20_000) + 0.002)


# Subscriptions


@pytest.mark.parametrize("workload", [SMALL, JOINING, CROWDED], ids=["small", "joining", "crowded"])
def test_subscribers_have_ten_live_subscriptions_at_any_instant(workload: SimulationSettings) -> None:
    live: list[set[int]] = [set() for _ in range(workload.subscribers)]
    instants = iter(np.sort(np.random.default_rng(4).integers(0, workload.end_ms, 50)).tolist())
    instant, seen = next(instants), set()
    for row in table(workload).to_pylist():
        while row["time_ms"] > instant:
            seen |= {len(held) for held in live}
            instant = next(instants, workload.end_ms)
        if row["kind"] == "subscribe":
            assert row["subscription"] not in live[row["subscriber"]]
            live[row["subscriber"]].add(row["subscription"])
        elif row["kind"] == "unsubscribe":
            live[row["subscriber"]].remove(row["subscription"])
    assert seen == ({0, 10} if workload.join_minutes else {10})


def test_subscribers_join_only_in_first_period() -> None:
    done = subscriber_events(SimulationSettings(subscribers=5000, join_minutes=60, hours=2), 0, 5000)
    subscribes = done.kind == SUBSCRIBE
    joined = np.full(5000, 2**62)
    np.minimum.at(joined, done.subscriber[subscribes], done.time[subscribes])
    login = np.full(5000, 2**62)
    np.minimum.at(login, done.subscriber[done.kind == LOGIN], done.time[done.kind == LOGIN])
    assert (login == joined).all()
    assert joined.max() < 60 * MINUTE
    assert joined.mean() / MINUTE == pytest.approx(30, abs=scatter(60 / 12**0.5, 5000))


def test_subscriptions_last_for_log_normal_time() -> None:
    workload = SimulationSettings(subscribers=200, hours=20, duration=(1, 1))
    done = crowd(workload)
    assert done.subscription[done.kind <= SUBSCRIBE].min() >= 0
    lasted = np.concatenate(list(_lifetimes(done))) / MINUTE
    assert len(lasted) > 400_000
    # The 2000 that outlast the end are not seen; they are the longer ones, by sigma² in the mean of the logarithm.
    unseen = 2000 / len(lasted)
    assert np.log(lasted).mean() == pytest.approx(1 - unseen, abs=scatter(1, len(lasted)))
    assert np.log(lasted).std() == pytest.approx(1, abs=scatter(0.71, len(lasted)) + unseen)


def _lifetimes(done: SubscriberEvents) -> Iterator[npt.NDArray[np.int64]]:
    """The nth end of a pair of subscriber and subscription goes with its nth beginning."""
    chosen = done.kind <= SUBSCRIBE
    order = np.lexsort((done.kind[chosen], done.time[chosen], done.subscription[chosen], done.subscriber[chosen]))
    pair = (done.subscriber[chosen] << 31 | done.subscription[chosen])[order]
    kind, time = done.kind[chosen][order], done.time[chosen][order]
    ends = np.flatnonzero(kind == UNSUBSCRIBE)
    assert (pair[ends - 1] == pair[ends]).all()
    assert (kind[ends - 1] == SUBSCRIBE).all()
    yield time[ends] - time[ends - 1]


@pytest.mark.parametrize(("popularity", "exponent"), [("uniform", 1.0), ("zipf", 1.0), ("zipf", 0.6)])
def test_subscription_is_chosen_by_its_popularity(popularity: str, exponent: float) -> None:
    workload = SimulationSettings(
        3000,
        50,
        per_subscriber=1,
        popularity=popularity,
        exponent=exponent,
        duration=(0, 1),  # type: ignore[arg-type]
    )
    done = crowd(workload)
    observed = np.bincount(done.subscription[done.kind == SUBSCRIBE], minlength=50)
    weight = np.arange(1.0, 51) ** -exponent if popularity == "zipf" else np.ones(50)
    expected = observed.sum() * weight / weight.sum()
    assert observed.sum() > 300_000
    assert np.sum((observed - expected) ** 2 / expected) < chi_square_limit(50)


def test_choice_stays_uniform_with_several_live() -> None:
    done = crowd(SimulationSettings(subscribers=3000, subscriptions=40, hours=1, seed=8))
    observed = np.bincount(done.subscription[done.kind == SUBSCRIBE], minlength=40)
    expected = observed.sum() / 40
    assert np.sum((observed - expected) ** 2 / expected) < chi_square_limit(40)


def test_choice_among_others_follows_weights() -> None:
    cumulative = np.cumsum([4.0, 1.0, 2.0, 1.0])
    shares = np.array([0.0, 0.24, 0.26, 0.49, 0.51, 0.74, 0.76, 0.99])
    assert [choose(share, np.array([0]), cumulative) for share in shares] == [1, 1, 2, 2, 2, 2, 3, 3][:8]
    assert [choose(share, np.array([0, 2]), cumulative) for share in shares] == [1, 1, 1, 1, 3, 3, 3, 3]
    assert [choose(share, np.array([], np.int64), cumulative) for share in (0.0, 0.49, 0.51, 0.99)] == [0, 0, 1, 3]


@given(st.sets(st.integers(0, 29), max_size=29), st.floats(0, 1, exclude_max=True), st.floats(0, 60))
def test_choice_never_repeats_under_steep_law(taken: set[int], share: float, exponent: float) -> None:
    cumulative = np.cumsum(np.arange(1.0, 31) ** -exponent)
    chosen = choose(share, np.array(sorted(taken), np.int64), cumulative)
    assert 0 <= chosen < 30
    assert chosen not in taken


def test_subscriber_of_all_streams_has_all() -> None:
    done = crowd(CROWDED)
    assert np.sum(done.kind == UNSUBSCRIBE) > 5_000
    same = table(CROWDED).filter(pa.compute.equal(table(CROWDED)["subscriber"], 0)).to_pylist()
    ended = {(row["time_ms"], row["subscription"]) for row in same if row["kind"] == "unsubscribe"}
    assert {
        (row["time_ms"], row["subscription"]) for row in same if row["kind"] == "subscribe" and row["time_ms"]
    } == ended


# The table


@pytest.mark.parametrize("workload", [SMALL, JOINING, CROWDED], ids=["small", "joining", "crowded"])
def test_rows_are_ordered_and_contain_fields_of_their_kind(workload: SimulationSettings) -> None:
    rows = [tuple(row.values()) for row in table(workload).to_pylist()]
    missing = -1
    keys = [
        (time, KINDS.index(kind), *(missing if field is None else field for field in fields))
        for time, kind, *fields in rows
    ]
    assert keys == sorted(keys)
    assert 0 <= rows[0][0] <= rows[-1][0] < workload.end_ms
    uses = {
        "login": (True, False, False),
        "logout": (True, False, False),
        "subscribe": (True, True, False),
        "unsubscribe": (True, True, False),
        "result": (False, True, True),
    }
    assert {kind for _, kind, *_ in rows} == set(uses)
    assert all(tuple(field is not None for field in fields) == uses[kind] for _, kind, *fields in rows)


def test_subscriber_events_do_not_depend_on_other_subscribers() -> None:
    alone, among = subscriber_events(SMALL, 77, 78), crowd(SMALL)
    chosen = among.subscriber == 77
    assert all(np.array_equal(one, other[chosen]) for one, other in zip(alone, among, strict=True))


def test_parts_have_similar_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generating, "EVENTS_A_PART", 5000)
    edges = part_edges(SMALL)
    time = table(SMALL)["time_ms"].to_numpy()
    rows = np.diff(np.searchsorted(time, edges), prepend=0, append=len(time))
    assert len(edges) > 5
    assert np.median(rows) == pytest.approx(5000, rel=0.3)


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("bad2018") / "events"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(generating, "EVENTS_A_PART", 20_000)
        assert generate(spark, SMALL, folder) == len(table(SMALL))
        yield folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_table_is_written_as_drawn(written: Path) -> None:
    files = sorted((written / "events").iterdir())
    assert len(files) > 2
    assert {file.suffix for file in files} == {".parquet"}
    read = pa.concat_tables([pq.read_table(file) for file in files])
    assert read.schema.types == [pa.int64(), pa.string(), pa.int64(), pa.int64(), pa.int64()]
    assert read.to_pylist() == table(SMALL).to_pylist()


def test_settings_are_written_beside_table(written: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == ["events", "workload.json"]
    described = json.loads((written / "workload.json").read_text())
    assert described == json.loads(json.dumps(SMALL.described()))
    assert (described["workload"], described["end_ms"], described["on"]) == ("bad2018", 1_800_000, [1.753, 1.425])


@pytest.mark.parametrize("tasks", [1, 3, 7])
def test_bytes_are_independent_of_division_of_work(
    spark: SparkSession, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    monkeypatch.setattr(
        generating,
        "unit_numbers",
        lambda spark, workload: spark.range(0, units(workload), 1, tasks).repartition(tasks),
    )
    generate(spark, SMALL, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(written)


def test_table_depends_on_seed() -> None:
    other = SimulationSettings(subscribers=600, subscriptions=450, hours=0.5, seed=6)
    assert not table(other).equals(table(SMALL))
    assert not np.array_equal(crowd(other).time[:100], crowd(SMALL).time[:100])


def test_smallest_workload_can_be_written_and_replaced(spark: SparkSession, tmp_path: Path) -> None:
    smallest = SimulationSettings(1, 1, 1, hours=0.001, interval=(1000, 1000))
    assert generate(spark, smallest, tmp_path / "one") == 2
    with pytest.raises(BadInput, match=r"exists already; .* set force "):
        generate(spark, smallest, tmp_path / "one")
    generate(spark, SimulationSettings(2, 1, 1, hours=0.001, interval=(1000, 1000)), tmp_path / "one", force=True)
    kinds = pq.read_table(tmp_path / "one" / "events")["kind"].to_pylist()
    assert kinds == ["subscribe", "subscribe", "login", "login"]


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--subscribers 0", "--subscribers 0: must be within 1 … 2^31 - 1"),
        ("--subscribers -5", "--subscribers -5: must be within 1 … 2^31 - 1"),
        ("--subscriptions -1", "--subscriptions -1: must be within"),
        ("--per-subscriber 0", "--per-subscriber 0: must be within"),
        ("--per-subscriber 11 --subscriptions 10", "--per-subscriber 11, --subscriptions 10: a subscriber cannot"),
        ("--hours -6", "--hours -6: must be within (0, 10000]"),
        ("--hours nan", "--hours nan: must be within (0, 10000]"),
        ("--interval -10 60", "--interval -10 60: must be a range of seconds"),
        ("--interval 60 10", "--interval 60 10: must be a range of seconds"),
        ("--size 0 500", "--size 0 500: must be a range of bytes"),
        ("--size 500 499", "--size 500 499: must be a range of bytes"),
        ("--size 1 3000000000", "--size 1 3e+09: must be a range of bytes"),
        ("--on 1 -1", "--on 1 -1: must be a mu within ±50 and a sigma within 0 … 10"),
        ("--off nan 1", "--off nan 1: must be a mu"),
        ("--duration 1 inf", "--duration 1 inf: must be a mu"),
        ("--popularity viral", "Invalid value for '--popularity': "),
        ("--start offline", "Invalid value for '--start': "),
        ("--popularity zipf --exponent -1", "--exponent -1: must be within 0 … 100"),
        ("--join-minutes -1", "--join-minutes -1: must be within 0 … 360, the whole time"),
        ("--join-minutes 61 --hours 1", "--join-minutes 61: must be within 0 … 60, the whole time"),
        ("--seed -1", "--seed -1: must be within 0 … 2^63 - 1"),
        ("--out there", "--out there: exists already; choose another folder, or set --force to replace it"),
        ("--out there --force", "--out there: is not a trace, and --force replaces nothing else"),
    ],
)
def test_command_reports_mistake_in_one_line(
    options: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there" / "letters").mkdir(parents=True)
    assert run(["workload", "bad2018", "--out", "new", *options.split()]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith(f"newsstand: {message}")
    assert printed.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("option", ["popularity", "start"])
def test_unknown_choice_is_named(option: str) -> None:
    with pytest.raises(BadOption, match=rf"^{option} viral: must be"):
        SimulationSettings(**{option: "viral"})  # type: ignore[arg-type]
