"""The push-caching workload: three kinds of demand, independent of how it is drawn."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.profiles import examples

from newsstand.errors import BadOption
from newsstand.geo.backbone_sources import WorldCity
from newsstand.workload.push1995 import generator as push1995_visits
from newsstand.workload.push1995.generator import (
    BLOCK,
    DrawnRequests,
    audience,
    draw,
    generate,
    pages_by_rank,
    requests,
    units,
)
from newsstand.workload.push1995.settings import DAY, HOUR, PushSettings
from newsstand.workload.push1995.trace import check_push_trace, read_push_trace
from newsstand.workload.push1995.world import page_versions, populated

CITIES = (
    WorldCity("London", "GB", 51.51, -0.13, 3_000_000),
    WorldCity("Tokyo", "JP", 35.68, 139.69, 5_000_000),
    WorldCity("Boston", "US", 42.36, -71.06, 2_000_000),
)
SMALL = PushSettings(servers=3, subnets=40, requests=3_000, days=2, pages=30, seed=7)
LARGE = PushSettings(servers=1, subnets=300, requests=BLOCK, pages=200, seed=3)


def scatter(deviation: float, count: int) -> float:
    """Five standard errors: a true mean is farther off in one of two million samples."""
    return 5 * deviation / count**0.5


@cache
def drawn(workload: PushSettings, server: int = 0) -> DrawnRequests:
    """All requests of one server, without Spark."""
    world = populated(workload, CITIES)
    asking = audience(workload, world, server)
    cut = units(workload)
    parts = [
        draw(workload, asking, unit, int(cut.requests[unit])) for unit in np.flatnonzero(cut.server == server)
    ]
    columns = ("time", "subnet", "page")
    return DrawnRequests(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))


def test_first_requests_of_seed_are_pinned() -> None:
    one = drawn(SMALL)
    assert one.time[:4].tolist() == [116816.913, 116821.745, 116854.255, 116875.238]
    assert one.subnet[:4].tolist() == [39, 39, 39, 39]
    assert one.page[:4].tolist() == [27, 5, 14, 7]


@pytest.mark.parametrize(("kind", "share"), [("global", 0.5), ("local", 0.5), ("flat", 0.05)])
def test_ten_most_popular_pages_get_their_share(kind: str, share: float) -> None:
    workload = replace(LARGE, kind=kind)  # type: ignore[arg-type]
    core = pages_by_rank(workload, 0)[0, :10]
    assert workload.rank_reached[9] == pytest.approx(share, abs=1e-9)
    assert np.isin(drawn(workload).page, core).mean() == pytest.approx(share, abs=scatter(0.5, BLOCK))


def test_server_with_few_pages_has_core_of_at_least_uniform_size() -> None:
    few = PushSettings(pages=12)
    assert few.core_share == pytest.approx(10 / 12)
    assert few.exponent == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("kind", "regional"), [("global", 0.1), ("local", 0.8)])
def test_visits_from_nearby_have_configured_share(kind: str, regional: float) -> None:
    workload = replace(LARGE, kind=kind, visit=1.0)  # type: ignore[arg-type]
    world = populated(workload, CITIES)
    near = world.miles(0) < 1_000  # of the region's demand, one part of e^3 is farther; of these towns, none
    expected = regional + (1 - regional) * world.weights[near].sum() / world.weights.sum()
    assert near[drawn(workload).subnet].mean() == pytest.approx(expected, abs=scatter(0.5, BLOCK) + 1e-4)


def test_visits_are_several_requests_from_one_subnet_within_minutes() -> None:
    together = drawn(LARGE)
    apart = drawn(replace(LARGE, visit=1.0))

    def soon_again(requests: DrawnRequests) -> float:
        """The share of requests whose subnet asks again within two minutes."""
        order = np.lexsort((requests.time, requests.subnet))
        same = np.diff(requests.subnet[order]) == 0
        return float(np.mean(same & (np.diff(requests.time[order]) < 120)))

    # Of a visit of eight requests on average, seven are followed, and of these all but e^-4 within two minutes.
    assert soon_again(together) > 7 / 8 * (1 - np.exp(-4)) - scatter(0.5, BLOCK // 8)
    assert soon_again(apart) < 0.2


def test_visits_begin_in_afternoon_of_their_subnet() -> None:
    workload = replace(LARGE, visit=1.0, rhythm=0.6)
    requests, world = drawn(workload), populated(workload, CITIES)
    local = (requests.time / HOUR + world.subnets.places.longitudes[requests.subnet] / 15) % 24
    observed, _ = np.histogram(local, 24, (0, 24))
    hours = np.arange(24) + 0.5
    expected = BLOCK / 24 * (1 + 0.6 * np.cos((hours - 15) / 24 * 2 * np.pi))
    assert np.sum((observed - expected) ** 2 / expected) < 23 + 5 * (2 * 23) ** 0.5


def test_drift_makes_pages_popular_on_one_day_only() -> None:
    steady, moving = pages_by_rank(SMALL, 1), pages_by_rank(replace(SMALL, days=6, drift=0.2), 1)
    assert steady.shape == (1, 30)
    assert moving.shape == (6, 30)
    assert sorted(moving[5]) == list(range(30))
    changes = (np.diff(moving, axis=0) != 0).sum(axis=1)
    assert changes.max() > 0
    assert changes.max() <= 6


def test_servers_share_requests_by_zipfs_law() -> None:
    counts = PushSettings(servers=4, requests=10_000, server_skew=1.0).requests_of_servers
    assert counts.tolist() == [4800, 2400, 1600, 1200]
    assert PushSettings(servers=7, requests=3).requests_of_servers.sum() == 3


def test_sizes_have_mean_of_paper() -> None:
    pages = page_versions(PushSettings(servers=100, pages=1_000))
    sizes = pages.size[pages.version == 0]
    assert len(sizes) == 100_000
    assert sizes.mean() == pytest.approx(2_000, abs=scatter(2_000 * 3**0.5, 100_000) + 2)


def test_pages_are_modified_at_rates_of_their_lifetimes() -> None:
    workload = PushSettings(servers=20, pages=1_000, days=10, lifetime=20.0)
    pages = page_versions(workload)
    first, later = pages.modified[pages.version == 0], pages.modified[pages.version > 0]
    assert (first <= 0).all()
    assert ((later >= 0) & (later < workload.end)).all()
    # The mean of 1 / lifetime, log-normal with sigma 1.5, is e^(1.5^2 / 2) of the median's.
    expected = 20_000 * 10 / 20 * np.exp(1.5**2 / 2)
    rates_deviation = 0.5 * (np.exp(1.5**2) - 1) ** 0.5 * np.exp(1.5**2 / 2)
    assert len(later) == pytest.approx(expected, abs=5 * (rates_deviation**2 * 20_000 + expected) ** 0.5)
    assert later.mean() == pytest.approx(workload.end / 2, abs=scatter(workload.end / 12**0.5, len(later)))


@given(st.integers(1, 5), st.integers(11, 40), st.floats(0.01, 0.1), st.integers(0, 2**63 - 1))
@settings(max_examples=examples(30))
def test_versions_are_in_order_of_time_without_gaps(servers: int, pages: int, lifetime: float, seed: int) -> None:
    made = page_versions(PushSettings(servers=servers, pages=pages, lifetime=lifetime, days=1, seed=seed))
    same = np.diff(made.page) == 0
    assert np.array_equal(np.unique(made.page), np.arange(servers * pages))
    assert (np.diff(made.modified)[same] > 0).all()
    assert (np.diff(made.version)[same] == 1).all()
    assert (made.version[np.append(True, ~same)] == 0).all()
    assert np.array_equal(made.server, made.page // pages)


@given(
    st.integers(1, 4),
    st.integers(1, 30),
    st.integers(1, 400),
    st.integers(1, 3),
    st.floats(1, 50),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 2**63 - 1),
)
@settings(max_examples=examples(60))
def test_requests_are_within_days_and_for_pages_of_their_server(
    servers: int, subnets: int, requests: int, days: int, visit: float, drift: float, regional: float, seed: int
) -> None:
    workload = PushSettings(
        servers=servers,
        subnets=subnets,
        requests=requests,
        days=days,
        pages=15,
        visit=visit,
        drift=drift,
        regional=regional,
        seed=seed,
    )
    world = populated(workload, CITIES)
    cut = units(workload)
    assert cut.requests.sum() == requests
    for unit, server in enumerate(cut.server.tolist()):
        got = draw(workload, audience(workload, world, server), unit, int(cut.requests[unit]))
        assert ((got.time >= 0) & (got.time < days * DAY)).all()
        assert ((got.subnet >= 0) & (got.subnet < subnets)).all()
        assert (got.page // 15 == server).all()


def test_places_are_near_cities_and_on_globe() -> None:
    dateline = (WorldCity("Suva", "FJ", -18.1, 179.99, 1), WorldCity("Alert", "CA", 89.9, -62.3, 1))
    world = populated(replace(SMALL, subnets=500), dateline)
    assert (np.abs(world.subnets.places.latitudes) <= 90).all()
    assert (np.abs(world.subnets.places.longitudes) <= 180).all()
    assert (world.subnets.places.longitudes < -179).any()
    assert {name.split()[0] for name in world.subnets.names} == {"Suva", "Alert"}
    assert (world.weights > 0).all()


def test_miles_are_those_of_great_circle() -> None:
    world = populated(replace(SMALL, subnets=200), CITIES)
    from_tokyo = {"London": 5_940, "Tokyo": 0, "Boston": 6_710}
    assert world.servers.names[0] == "Tokyo 0"
    for name, distance in zip(world.subnets.names, world.miles(0), strict=True):
        assert distance == pytest.approx(from_tokyo[name.split()[0]], abs=300)


def digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_trace_is_complete_and_its_requests_are_clustered(spark: SparkSession, tmp_path: Path) -> None:
    rows = generate(spark, SMALL, populated(SMALL, CITIES), tmp_path / "trace")
    trace = read_push_trace(spark, tmp_path / "trace")
    check_push_trace(trace)
    counted = {name: getattr(trace, name).count() for name in ("servers", "subnets", "requests")}
    assert counted == {"servers": 3, "subnets": 40, "requests": 3_000}
    assert rows == {**counted, "pages": 90, "versions": trace.pages.count()}
    tables = [pq.read_table(file) for file in sorted((tmp_path / "trace" / "requests").iterdir())]
    of_files = [set(table["server"].to_pylist()) for table in tables]
    assert sorted(server for servers in of_files for server in servers) == [0, 1, 2]
    for table in tables:
        keys = list(zip(table["server"].to_pylist(), table["time"].to_pylist(), strict=True))
        assert keys == sorted(keys)
    described = json.loads((tmp_path / "trace" / "workload.json").read_text())
    assert (described["kind"], described["core"], described["end"]) == ("global", 0.5, 2 * DAY)


def test_trace_bytes_are_independent_of_division_of_work(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push1995_visits, "BLOCK", 256)
    world = populated(SMALL, CITIES)
    assert len(units(SMALL)) > 10

    def with_tasks(tasks: int, shuffles: int) -> dict[str, str]:
        folder = tmp_path / f"with-{tasks}"
        spark.conf.set("spark.sql.shuffle.partitions", str(shuffles))
        with monkeypatch.context() as patch:
            patch.setattr(type(spark.sparkContext), "defaultParallelism", tasks)
            assert requests(spark, SMALL, world, 3).rdd.getNumPartitions() == tasks
            generate(spark, SMALL, world, folder)
        return digests(folder)

    try:
        one = with_tasks(1, 1)
        assert with_tasks(7, 5) == one
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "lunar"}, "kind lunar: must be one of global, local, flat"),
        ({"servers": 0}, "servers 0: must be within 1 … 2^31 - 1"),
        ({"requests": 2**31}, "requests 2147483648: must be within 1 … 2^31 - 1"),
        ({"days": -1}, "days -1: must be within"),
        ({"pages": 10}, "pages 10: must be within 11 … "),
        ({"pages": 2**28}, "pages 268435456: must be within 11 … 107374182"),
        ({"seed": -1}, "seed -1: must be within"),
        ({"core": 0.01}, "core 0.01: must be within 0.02 … 0.999"),
        ({"core": float("nan")}, "core nan: must be within"),
        ({"regional": 1.5}, "regional 1.5: must be within 0 … 1"),
        ({"drift": -0.1}, "drift -0.1: must be within 0 … 1"),
        ({"rhythm": float("nan")}, "rhythm nan: must be within 0 … 1"),
        ({"visit": 0.5}, "visit 0.5: must be within 1 … 10000"),
        ({"server_skew": -1.0}, "server_skew -1: must be within 0 … 10"),
        ({"lifetime": 0.0}, "lifetime 0: must be within 0.01 … 1e+06"),
        ({"size": (6.9, -1.0)}, "size: sigma -1: must be within 0 … 5"),
    ],
)
def test_settings_rejected_when_out_of_range(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(BadOption) as refused:
        PushSettings(**changes)  # type: ignore[arg-type]
    assert str(refused.value).startswith(reason)


@pytest.mark.parametrize("cities", [(), (WorldCity("Ghost Town", "US", 0, 0, 0),)])
def test_cities_rejected_without_population(cities: Sequence[WorldCity]) -> None:
    with pytest.raises(BadOption, match="none has a population"):
        populated(SMALL, cities)
