"""Demand in a push trace: counts by subnet, page and half hour, and correlations of pages."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from support.profiles import examples

from newsstand.errors import BadOption
from newsstand.lab.papers.push1995.demand import (
    PopularPage,
    ServerDemand,
    by_half_hour,
    by_page,
    by_subnet,
    correlations,
    mean,
    most_popular,
    server_demand,
    squares,
)
from newsstand.workload.push1995.trace import PushTrace

Asked = tuple[float, int, int, int]
ASKED: list[Asked] = [
    (0.0, 0, 5, 1),
    (1799.9, 0, 5, 1),
    (1800.0, 0, 6, 1),
    (-0.5, 0, 6, 2),
    (1801.0, 0, 5, 3),
    (7200.0, 1, 5, 9),
]


def table(spark: SparkSession, rows: list[Asked]) -> DataFrame:
    return spark.createDataFrame(rows, "time double, server int, subnet int, page long")


def rows_of(found: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in found.collect())


def test_requests_are_counted_by_subnet_page_and_half_hour(spark: SparkSession) -> None:
    requests = table(spark, ASKED)
    assert rows_of(by_subnet(requests)) == [(0, 5, 3), (0, 6, 2), (1, 5, 1)]
    assert rows_of(by_page(requests)) == [(0, 1, 3), (0, 2, 1), (0, 3, 1), (1, 9, 1)]
    assert rows_of(by_half_hour(requests)) == [(0, -1, 1), (0, 0, 2), (0, 1, 2), (1, 4, 1)]


def test_most_popular_pages_break_ties_by_number(spark: SparkSession) -> None:
    assert rows_of(most_popular(table(spark, ASKED), 2)) == [(0, 1, 3, 1), (0, 2, 1, 2), (1, 9, 1, 1)]
    with pytest.raises(BadOption, match="pages 0: must be at least 1"):
        most_popular(table(spark, ASKED), 0)


def test_correlation_is_null_without_variation(spark: SparkSession) -> None:
    # Subnets 0, 1, 2 ask 1, 2, 4 times for page 1, once each for page 2, and 3, 2, 0 times for page 3.
    counts = {1: (1, 2, 4), 2: (1, 1, 1), 3: (3, 2, 0)}
    rows = [
        (0.0, 0, subnet, page)
        for page, of_subnets in counts.items()
        for subnet, times in enumerate(of_subnets)
        for _ in range(times)
    ]
    found = {row["page"]: row["correlation"] for row in correlations(table(spark, rows)).collect()}
    whole = np.array([5, 5, 5])
    assert whole.tolist() == np.sum(list(counts.values()), axis=0).tolist()
    assert found == {1: None, 2: None, 3: None}  # the whole server is the same everywhere
    rows += [(0.0, 0, 2, 1)] * 3
    found = {row["page"]: row["correlation"] for row in correlations(table(spark, rows)).collect()}
    assert found[1] == pytest.approx(np.corrcoef([1, 2, 7], [5, 5, 8])[0, 1])
    assert found[2] is None
    assert found[3] == pytest.approx(np.corrcoef([3, 2, 0], [5, 5, 8])[0, 1])


def test_subnets_of_one_square_count_together(spark: SparkSession) -> None:
    subnets = spark.createDataFrame(
        [(0, 1.0, 1.0), (1, 4.9, 4.9), (2, -0.1, 1.0), (3, 1.0, 5.0)],
        "subnet int, latitude double, longitude double",
    )
    where = squares(subnets, 5.0)
    assert [tuple(row["place"]) for row in where.orderBy("subnet").collect()] == [(0, 0), (0, 0), (-1, 0), (0, 1)]
    rows = [(0.0, 0, subnet, page) for subnet, page in [(0, 1), (1, 1), (1, 2), (2, 1), (3, 2)]]
    found = {row["page"]: row["correlation"] for row in correlations(table(spark, rows), where).collect()}
    assert found[1] == pytest.approx(np.corrcoef([2, 1, 0], [3, 1, 1])[0, 1])
    assert found[2] == pytest.approx(np.corrcoef([1, 0, 1], [3, 1, 1])[0, 1])
    with pytest.raises(BadOption, match="square 0: must be above 0"):
        squares(subnets, 0.0)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=300))
@settings(max_examples=examples(4))
def test_correlations_are_those_of_numpy(spark: SparkSession, asked: list[tuple[int, int, int]]) -> None:
    rows = [(0.0, server, subnet, 10 * server + page) for server, subnet, page in asked]
    found = {
        (row["server"], row["page"]): row["correlation"]
        for row in correlations(table(spark, rows).repartition(3), pages=3).collect()
    }
    for server in {row[1] for row in rows}:
        subnets = sorted({row[2] for row in rows if row[1] == server})
        pages = sorted({row[3] for row in rows if row[1] == server})
        counts = np.array([[rows.count((0.0, server, net, page)) for net in subnets] for page in pages])
        order = sorted(range(len(pages)), key=lambda place: (-counts[place].sum(), pages[place]))
        assert {page for of, page in found if of == server} == {pages[place] for place in order[:3]}
        for place in order[:3]:
            one, whole = counts[place], counts.sum(axis=0)
            got = found[server, pages[place]]
            if np.ptp(one) == 0 or np.ptp(whole) == 0:
                assert got is None
            else:
                assert got == pytest.approx(np.corrcoef(one, whole)[0, 1], abs=1e-12)


def test_server_demand_lists_every_server_with_requests(spark: SparkSession) -> None:
    sites = "server int, name string, latitude double, longitude double, node int, row string"
    servers = spark.createDataFrame(
        [(0, "www", 0.0, 0.0, None, ""), (1, "ftp", 0.0, 0.0, None, ""), (2, "idle", 0.0, 0.0, None, "")], sites
    )
    subnets = spark.createDataFrame(
        [(number, 10.0 * number, 0.0) for number in range(7)], "subnet int, latitude double, longitude double"
    )
    requests = table(spark, ASKED)
    trace = PushTrace("here", servers, subnets, requests, requests)
    www, ftp = server_demand(trace, pages=2)
    one = pytest.approx(1.0)
    assert www == ServerDemand(
        0, "www", 5, 3, 2, 0.0, 2, (PopularPage(1, 3, one), PopularPage(2, 1, pytest.approx(-1.0)))
    )
    assert (www.popular_share, www.correlation) == (0.8, pytest.approx(0.0))
    assert ftp == ServerDemand(1, "ftp", 1, 1, 1, 7200.0, 1, (PopularPage(9, 1, None),))
    assert ftp.correlation is None
    assert [server.name for server in server_demand(trace, square=20.0)] == ["www", "ftp"]


def test_mean_of_no_values_is_none() -> None:
    assert mean([None, 1.0, 0.5]) == 0.75
    assert mean([None]) is None


def test_correlation_is_exactly_one_for_proportional_pages(spark: SparkSession) -> None:
    many = [
        (0.0, 0, subnet, page) for subnet, page in product(range(50), range(2)) for _ in range(40 + subnet % 2)
    ]
    found = {row["page"]: row["correlation"] for row in correlations(table(spark, many)).collect()}
    assert found == {0: 1.0, 1: 1.0}
