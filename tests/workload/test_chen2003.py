"""The news workload is that of the paper's section 4, and independent of how it is drawn."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.profiles import examples

from newsstand.errors import BadOption
from newsstand.lab.pages.clustered import shards
from newsstand.workload.chen2003 import generator as generating
from newsstand.workload.chen2003.generator import generate
from newsstand.workload.chen2003.publishing import (
    DAY,
    HOUR,
    PUBLISHING,
    News,
    PublishingStream,
    draw_intervals,
    publish,
    stretch_intervals,
)
from newsstand.workload.chen2003.requests import (
    Ints,
    Pools,
    day_counts,
    draw,
    generate_columns,
    pools,
    servers,
    subscriptions,
    units,
)
from newsstand.workload.randomness import generator, shuffled
from newsstand.workload.trace.files import TABLES, data_files, table_path
from newsstand.workload.trace.folder import check, read_trace

SEEDS = range(12)
SMALL = News(requests=4000, proxies=12, pages=500, seed=7)
TINY = {
    "one of everything": News(requests=1, proxies=1, pages=1),
    "one page": News(requests=60, proxies=5, pages=1, seed=3),
    "one proxy": News("alternative", 3, 60, 1, 40, popularity="literal"),
    "fewer requests than bins": News(requests=50, proxies=100, pages=2, sq=0.25),
}


@dataclass(frozen=True)
class DrawnTrace:
    """A whole trace, drawn unit by unit without Spark."""

    stream: PublishingStream
    counts: Ints
    pool: Pools
    time: npt.NDArray[np.float64]
    page: Ints
    proxy: npt.NDArray[np.int32]


@cache
def drawn(news: News) -> DrawnTrace:
    stream = publish(news)
    counts = np.sum([day_counts(news, stream, unit) for unit in range(units(news))], axis=0)
    pool = pools(counts.reshape(news.days, news.pages), news.proxies)
    every = [draw(news, stream, unit) for unit in range(units(news))]
    time, page, picks = (np.concatenate(column) for column in zip(*every, strict=True))
    proxy = servers(news, pool, time, page, picks)
    return DrawnTrace(stream, counts.reshape(news.days, news.pages), pool, time, page, proxy)


# Publishing (section 4.1)


@pytest.mark.parametrize("seed", SEEDS)
def test_publishing_stream_has_exactly_30147_pages(seed: int) -> None:
    stream = publish(News(seed=seed))
    assert len(stream.time) == len(stream.size) == len(stream.rank) == 30_147
    assert stream.time[0] >= 0
    assert stream.time[-1] <= 7 * DAY
    assert (np.diff(stream.time) >= 0).all()
    assert (np.sort(stream.rank) == np.arange(30_147)).all()


@pytest.mark.parametrize("pages", [1, 2, 3, 5, 10, 33, 100, 999])
def test_publishing_stream_has_any_number_of_pages(pages: int) -> None:
    assert {len(publish(News(seed=seed, pages=pages)).time) for seed in range(4)} == {pages}


def test_modification_events_are_short_middle_and_long_as_5_to_90_to_5() -> None:
    originals, modified, versions = 6000, 2400, 24_147
    shares = []
    for seed in SEEDS:
        news = News(seed=seed)
        randomness = generator(seed, PUBLISHING)
        first = randomness.uniform(0, news.end, originals)
        interval = draw_intervals(news, randomness, modified, versions)
        counts = stretch_intervals(first[:modified], interval, news.end, versions)
        assert counts.versions.sum() == versions
        assert counts.stretch == pytest.approx(1, abs=0.15)
        step = np.digitize(interval, [HOUR, DAY])
        shares.append(np.bincount(step, counts.versions, minlength=3) / versions)
    # The dozen pages that change within the hour make a twentieth of all events: their number scatters.
    assert np.array(shares) == pytest.approx(np.array([[0.05, 0.90, 0.05]] * len(shares)), abs=0.06)
    assert np.mean(shares, axis=0) == pytest.approx([0.05, 0.90, 0.05], abs=0.015)


def test_modified_versions_follow_originals_at_fixed_interval() -> None:
    news = News(seed=2, pages=5)  # one original and its four versions
    steps = np.diff(publish(news).time)
    assert steps == pytest.approx(steps[0], abs=0.002)


def test_sizes_are_log_normal() -> None:
    size = publish(News(seed=4)).size
    assert size.min() >= 1
    assert np.log(size).mean() == pytest.approx(9.357, abs=0.03)
    assert np.log(size).std() == pytest.approx(1.318, abs=0.03)


def test_popularity_is_independent_of_time_and_size() -> None:
    stream = publish(News(seed=5))
    assert abs(np.corrcoef(stream.rank, stream.time)[0, 1]) < 0.02
    assert abs(np.corrcoef(stream.rank, stream.size)[0, 1]) < 0.02


# Requests (section 4.2)


@pytest.mark.parametrize("trace", ["news", "alternative"])
def test_classes_rates_fall_by_tens(trace: str) -> None:
    news = News(trace)  # type: ignore[arg-type]
    rates = np.bincount(news.class_of_rank, news.rank_weight)
    assert rates / rates.sum() * 1111 == pytest.approx([1000, 100, 10, 1], rel=0.01)
    assert (np.diff(news.class_of_rank) >= 0).all()


@pytest.mark.parametrize("popularity", ["dynamic", "literal"])
@pytest.mark.parametrize("requests", [1, 7, 2015, 2016, 2017, 70_001])
def test_requests_are_as_many_as_configured(popularity: str, requests: int) -> None:
    news = News(requests=requests, pages=30, proxies=3, popularity=popularity)  # type: ignore[arg-type]
    assert len(drawn(news).time) == requests == drawn(news).counts.sum()


@pytest.mark.parametrize("popularity", ["dynamic", "literal"])
@pytest.mark.parametrize("seed", range(4))
def test_requests_follow_publications(popularity: str, seed: int) -> None:
    news = News(requests=20_000, pages=2000, seed=seed, popularity=popularity)  # type: ignore[arg-type]
    trace = drawn(news)
    assert (trace.time >= trace.stream.time[trace.page]).all()
    assert trace.time.max() <= news.end


@pytest.mark.parametrize("news", TINY.values(), ids=TINY)
def test_smallest_traces_are_complete(news: News) -> None:
    trace = drawn(news)
    assert len(trace.time) == news.requests
    assert set(trace.proxy.tolist()) <= set(range(news.proxies))
    assert (trace.time >= trace.stream.time[trace.page]).all()


def test_requests_use_all_proxies_and_no_others() -> None:
    assert set(drawn(News(requests=20_000, pages=2000, proxies=23)).proxy.tolist()) == set(range(23))


def test_literal_popularity_gives_top_page_38_per_cent() -> None:
    page = drawn(News(popularity="literal", proxies=5)).page
    assert np.bincount(page).max() / len(page) == pytest.approx(0.38, abs=0.01)


def test_literal_popularity_has_zipf_totals() -> None:
    news = News("alternative", popularity="literal", requests=100_000, pages=1000, proxies=5)
    trace = drawn(news)
    by_rank = np.bincount(trace.stream.rank[trace.page], minlength=news.pages)[:50]
    expected = news.requests * news.rank_weight[:50] / news.rank_weight.sum()
    assert (np.abs(by_rank - expected) < 5 * np.sqrt(expected)).all()


def test_dynamic_popularity_has_constant_rate_and_no_dominant_page() -> None:
    trace = drawn(News(requests=50_000, proxies=5, pages=5000))
    by_day = np.bincount((trace.time // DAY).astype(int))
    assert by_day == pytest.approx(50_000 / 7, rel=0.01)
    assert np.bincount(trace.page).max() / 50_000 < 0.05


def test_dynamic_popularity_ages_pages() -> None:
    trace = drawn(News(requests=50_000, proxies=5, pages=5000))
    age = trace.time - trace.stream.time[trace.page]
    within_a_day = trace.stream.time[trace.page] < 6 * DAY
    assert np.mean(age[within_a_day] < 6 * HOUR) > 0.5


# Servers (section 4.2, equation 6)


def test_pool_size_is_root_of_share_of_top_page() -> None:
    pool = pools(np.array([[400, 100, 4, 1, 0], [0, 0, 0, 9, 0]]), 100)
    assert pool.size.tolist() == [[100, 50, 10, 5, 0], [0, 0, 0, 100, 0]]


def test_pool_of_requested_page_has_server() -> None:
    assert pools(np.array([[1_000_000, 1]]), 100).size.tolist() == [[100, 1]]


@given(st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=1, max_size=7), st.integers(1, 60))
def test_pools_keep_60_per_cent_of_their_servers(counts: list[list[int]], proxies: int) -> None:
    pool = pools(np.array(counts), proxies)
    for before, now in _consecutive_days(pool, proxies):
        smaller = min(len(before), len(now))
        wanted = smaller - int(0.4 * smaller + 0.5)
        outside = proxies - len(before)
        assert len(before & now) == max(wanted, len(now) - outside)


def _consecutive_days(pool: Pools, proxies: int) -> Iterator[tuple[set[int], set[int]]]:
    for page in range(pool.size.shape[1]):
        windows = [
            {(int(offset) + place) % proxies for place in range(size)}
            for size, offset in zip(pool.size[:, page], pool.offset[:, page], strict=True)
            if size
        ]
        yield from itertools.pairwise(windows)


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
@settings(max_examples=examples(60))
def test_random_order_of_servers_names_each_once(items: int, key: int) -> None:
    order = [shuffled(place, items, np.uint64(key)) for place in range(items)]
    assert sorted(order) == list(range(items))


def test_pages_have_their_own_orders() -> None:
    first = {int(shuffled(0, 1000, np.uint64(key))) for key in range(200)}
    assert len(first) > 150


def test_requests_are_from_pool_of_day() -> None:
    trace = drawn(SMALL)
    day = (trace.time // DAY).astype(np.int64)
    for page in range(0, SMALL.pages, 17):
        for of_day in range(SMALL.days):
            here = (trace.page == page) & (day == of_day)
            assert len(np.unique(trace.proxy[here])) <= trace.pool.size[of_day, page]


def test_servers_of_pool_are_equally_likely() -> None:
    trace = drawn(News(requests=60_000, pages=1, proxies=10))
    assert np.bincount(trace.proxy) == pytest.approx(6000, rel=0.1)


# Subscriptions (section 4.3)


@pytest.mark.parametrize("sq", [1.0, 0.75, 0.5, 0.25])
def test_subscriptions_are_requests_over_quality_of_mean_sq(sq: float) -> None:
    trace = drawn(SMALL)
    proxy, page, count = subscriptions(SMALL.seed, sq, trace.proxy, trace.page)
    pairs, requests = np.unique(np.stack([trace.proxy, trace.page], 1), axis=0, return_counts=True)
    assert np.array_equal(np.stack([proxy, page], 1), pairs)
    least, most = {1.0: (1, 1), 0.75: (1, 2), 0.5: (1, 100), 0.25: (2, 100)}[sq]
    assert (count >= least * requests).all()
    assert (count <= most * requests).all()
    assert len(count) > 500
    if sq > 0.5:
        quality = np.mean(requests[requests > 3] / count[requests > 3])
        assert quality == pytest.approx(sq, abs=0.1)


def test_perfect_subscriptions_equal_requests() -> None:
    proxy = np.array([4, 0, 4, 4, 0], np.int32)
    page = np.array([9, 9, 2, 9, 1], np.int64)
    counted = subscriptions(1, 1.0, proxy, page)
    assert [tuple(row) for row in zip(*counted, strict=True)] == [(0, 1, 1), (0, 9, 1), (4, 2, 1), (4, 9, 2)]


def test_subscriptions_need_requests() -> None:
    nothing = subscriptions(1, 0.5, np.zeros(0, np.int32), np.zeros(0, np.int64))
    assert [len(column) for column in nothing] == [0, 0, 0]


# The trace on disk


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chen2003") / "small"
    generate(spark, SMALL, folder)
    return folder


def columns(folder: Path, name: str) -> dict[str, npt.NDArray[np.generic]]:
    table = pq.read_table([str(file) for file in data_files(table_path(folder, name))])
    return {column: table.column(column).to_numpy() for column in TABLES[name].columns}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()
    }


def digest(folder: Path) -> str:
    """A hash of the values of a trace, however they lie in files."""
    seen = hashlib.sha256()
    for name in TABLES:
        table = columns(folder, name)
        order = np.lexsort([table[column] for column in reversed(TABLES[name].columns)])
        for column in TABLES[name].columns:
            seen.update(np.ascontiguousarray(table[column][order]).tobytes())
    return seen.hexdigest()[:32]


def test_trace_is_written_as_drawn(written: Path) -> None:
    trace = drawn(SMALL)
    requests = columns(written, "requests")
    order = np.lexsort((trace.page, trace.time, trace.proxy))
    assert np.array_equal(requests["proxy"], trace.proxy[order])
    assert np.array_equal(requests["time"], trace.time[order])
    assert np.array_equal(requests["page"], trace.page[order])
    assert np.array_equal(columns(written, "publications")["size"], trace.stream.size)
    assert np.array_equal(
        columns(written, "subscriptions")["count"], subscriptions(SMALL.seed, 1.0, trace.proxy, trace.page)[2]
    )


@pytest.mark.parametrize(
    "news", [SMALL, TINY["one of everything"], TINY["one proxy"]], ids=["small", "1 × 1", "literal"]
)
def test_columns_have_rows_of_written_trace(spark: SparkSession, tmp_path: Path, news: News) -> None:
    generate(spark, news, tmp_path / "trace")
    made = generate_columns(news)
    for name in TABLES:
        for column, wanted in columns(tmp_path / "trace", name).items():
            values = getattr(getattr(made, name), column)
            assert values.dtype == wanted.dtype
            assert np.array_equal(values, wanted), (name, column)


def test_trace_is_written_clustered_and_valid(spark: SparkSession, written: Path) -> None:
    parts = shards(written)
    assert parts is not None
    assert len(parts) == 4
    check(read_trace(spark, written))
    assert sorted(path.name for path in written.iterdir()) == ["publications.parquet", "requests", "subscriptions"]


def test_seeded_trace_is_pinned_exactly(written: Path) -> None:
    assert digest(written) == "63a2335333b7c81f7525e62ab63f1717"


def test_bytes_are_independent_of_division_of_work(
    spark: SparkSession, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        generating, "unit_numbers", lambda spark, news: spark.range(0, units(news), 1, 7).repartition(5)
    )
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        generate(spark, SMALL, tmp_path / "again")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    assert contents(tmp_path / "again") == contents(written)


@pytest.mark.parametrize("news", [TINY["one of everything"], TINY["one proxy"]], ids=["1 × 1", "one proxy"])
def test_smallest_traces_can_be_written(spark: SparkSession, tmp_path: Path, news: News) -> None:
    generate(spark, news, tmp_path / "trace")
    trace = read_trace(spark, tmp_path / "trace")
    check(trace)
    assert len(columns(tmp_path / "trace", "requests")["time"]) == news.requests


# Options


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("trace", "gazette"),
        ("popularity", "viral"),
        ("requests", 0),
        ("proxies", 0),
        ("proxies", 2**31),
        ("pages", 0),
        ("seed", -1),
        ("seed", 2**63),
        ("sq", 0.0),
        ("sq", 1.01),
        ("sq", float("nan")),
    ],
)
def test_option_out_of_range_is_named(option: str, value: object) -> None:
    shown = f"{value:g}" if isinstance(value, float) else value
    with pytest.raises(BadOption, match=rf"^{option} {shown}: must be "):
        News(**{option: value})  # type: ignore[arg-type]


def test_largest_seed_works() -> None:
    assert len(drawn(News(seed=2**63 - 1, requests=50, proxies=3, pages=5)).time) == 50
