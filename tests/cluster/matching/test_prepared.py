"""Prepared plans give the results of a new plan, after any changes of values and stored records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from support.cluster.queries import DATASETS, KINDS, PARAMETERS, QUERIES, body_of

from newsstand.cluster.ingest.schema import arrow_schema, spark_schema
from newsstand.cluster.matching.matcher import SparkMatches, match
from newsstand.cluster.matching.prepared import PreparedChannel
from newsstand.cluster.matching.tables import CachedTable, TableParts
from newsstand.cluster.query.parser import Body
from newsstand.cluster.results.model import TooManyResults
from newsstand.spark.internals import can_reuse_broadcasts, limit_partitions, physical_plan

SUBQUERIES = {"one row always", "exists", "scalar", "right", "with"}
"""Queries that Spark keeps in a subquery of the plan, so that they are planned for each execution."""


QUICK = ("emrgn(E)", "emrgn-ws(E,L)", "emrgn-nm(E,U)", "groups", "first two", "union", "left", "range", "exists")
"""Queries whose plans differ most; the others run with `make test-all`."""


class Town:
    """Tables of values, people and shelters that change, and publications."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.random = Random(7)
        self.values: dict[int, tuple[object, ...]] = {}
        self.people = {"users": {}, "shelters": {}}  # type: dict[str, dict[str, tuple[object, ...]]]
        self.old = self.publications(20)
        for number in range(8):
            self.values[number] = self.value(number)
            for name in self.people:
                self.people[name][f"{name[0]}{number}"] = self.placed(f"{name[0]}{number}")
        self.stored = {name: self.table_of(name) for name in self.people}

    def place(self) -> tuple[float, float]:
        return 47 + self.random.random() * 0.1, 8 + self.random.random() * 0.1

    def value(self, number: int) -> tuple[object, ...]:
        return number, self.random.choice(KINDS), *self.place(), f"u{number}", self.random.random() * 30

    def placed(self, key: str) -> tuple[object, ...]:
        return key, *self.place(), 1, None, None

    def publications(self, count: int) -> DataFrame:
        rows = [
            (f"e{n}", self.random.choice(KINDS), None, *self.place(), [self.random.choice(KINDS)], n, None, None)
            for n in range(1, count + 1)
        ]
        shape = arrow_schema(DATASETS["emergencies"])
        table = pa.Table.from_pylist([dict(zip(shape.names, row, strict=True)) for row in rows], shape)
        return self.spark.createDataFrame(table, spark_schema(DATASETS["emergencies"]))

    def table_of(self, name: str) -> CachedTable[tuple[object, ...]]:
        shape = arrow_schema(DATASETS[name])

        def build(items: Iterable[tuple[object, ...]]) -> pa.Table:
            return pa.Table.from_pylist([dict(zip(shape.names, item, strict=True)) for item in items], shape)

        return CachedTable(self.spark, "name", lambda: dict(self.people[name]), build)

    def values_for(self, body: Body) -> CachedTable[tuple[object, ...]]:
        names = ["stream", *(f"p_{one}" for one in PARAMETERS)]
        types = {"string": pa.string(), "double": pa.float64()}
        wanted = {"stream": pa.int64()} | {f"p_{one.name}": types[one.type] for one in body.channel.parameters}
        shape = pa.schema(list(wanted.items()))

        def build(items: Iterable[tuple[object, ...]]) -> pa.Table:
            rows = [dict(zip(names, item, strict=True)) for item in items]
            return pa.Table.from_pylist([{name: row[name] for name in wanted} for row in rows], shape)

        return CachedTable(self.spark, "stream", lambda: dict(self.values), build)


@pytest.fixture(scope="module")
def town(spark: SparkSession) -> Iterator[Town]:
    """A town in a session with the settings of a data cluster."""
    before = spark.conf.get("spark.sql.adaptive.enabled", "true")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    yield Town(spark)
    spark.conf.set("spark.sql.adaptive.enabled", before or "true")


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(map(tuple, (row.values() for row in table.to_pylist())), key=repr)


def require_same(
    town: Town, prepared: PreparedChannel, values: TableParts, new: DataFrame, everything: DataFrame
) -> pa.Table | None:
    body = prepared.body
    parts: Mapping[str, TableParts | DataFrame] = {
        name: town.stored[name].parts() if name in town.stored else town.old for name in body.stored
    }
    found = prepared.match(new, values, parts, most=1_000_000)
    if found is not None:
        stored = {name: one.frame() if isinstance(one, TableParts) else one for name, one in parts.items()}
        assert rows(found) == rows(match(body, new, stored, everything).toArrow())
    return found


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in QUERIES]
)
def test_prepared_plan_gives_results_of_new_plan(town: Town, name: str) -> None:
    prepared = PreparedChannel(body_of(QUERIES[name]))
    table = town.values_for(prepared.body)
    found = 0
    for step in range(2):
        if step == 1:
            for key in (1, 11):
                table.change({key: town.value(key)})
            table.remove([2])
            town.stored["users"].change({"u1": town.placed("u1"), "u11": town.placed("u11")})
            town.stored["shelters"].remove(["s2"])
        result = require_same(town, prepared, table.parts(), town.publications(10 + step), table.frame())
        assert (result is None) == (name in SUBQUERIES)
        found += 0 if result is None else result.num_rows
    assert found or name in SUBQUERIES, "a query that finds nothing shows nothing"
    prepared.clear()
    table.close()


def test_values_are_broadcast_once(spark: SparkSession, town: Town) -> None:
    prepared = PreparedChannel(body_of(QUERIES["emrgn(E)"]))
    table = town.values_for(prepared.body)
    context = spark.sparkContext

    def jobs() -> int:
        prepared.match(town.publications(5), table.parts(), {})
        return len(context.statusTracker().getJobIdsForGroup("counted"))

    table.parts()
    context.setJobGroup("counted", "jobs of executions")
    try:
        first = jobs()
        assert (first, jobs() - first) == (2, 1)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    prepared.clear()
    table.close()


def test_values_that_are_read_twice_stay_where_they_are(town: Town) -> None:
    body = body_of(
        "SELECT id, 'k' AS why FROM emergencies WHERE kind = :kind UNION ALL "
        "SELECT id, 'l' FROM emergencies WHERE kind = :kind"
    )
    table = town.values_for(body)
    new = town.publications(5)
    assert not can_reuse_broadcasts(match(body, new, {}, table.frame(), "others"))
    prepared = PreparedChannel(body)
    for count in (5, 6):
        assert require_same(town, prepared, table.parts(), town.publications(count), table.frame())
    table.close()


def test_prepared_plan_is_used_in_another_thread(town: Town) -> None:
    prepared = PreparedChannel(body_of(QUERIES["emrgn(E)"]))
    table = town.values_for(prepared.body)
    publications, parts = [town.publications(5), town.publications(6)], table.parts()
    prepared.match(publications[0], parts, {})
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(prepared.match, publications[1], parts, {}).result().num_rows
    prepared.clear()
    table.close()


def test_partitions_are_limited_in_another_thread(town: Town) -> None:
    new = town.publications(6)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: limit_partitions(new, 2).toArrow().num_rows).result() <= 2 * 2


def test_values_are_not_broadcast_with_many_stored_records(town: Town) -> None:
    prepared = PreparedChannel(body_of(QUERIES["emrgn-nm(U)"]), most_stored=3)
    table = town.values_for(prepared.body)
    assert require_same(town, prepared, table.parts(), town.publications(5), table.frame())
    table.close()


def test_values_are_not_broadcast_under_adaptive_execution(spark: SparkSession, town: Town) -> None:
    prepared = PreparedChannel(body_of(QUERIES["emrgn(E)"]))
    table = town.values_for(prepared.body)
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        assert require_same(town, prepared, table.parts(), town.publications(5), table.frame())
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    table.close()


def test_many_values_are_read_where_they_are(town: Town) -> None:
    prepared = PreparedChannel(body_of(QUERIES["emrgn(E)"]), most_values=3)
    table = town.values_for(prepared.body)
    assert require_same(town, prepared, table.parts(), town.publications(5), table.frame())
    table.close()


def test_values_under_a_range_are_read_where_they_are(town: Town) -> None:
    body = body_of(QUERIES["range"])
    table = town.values_for(body)
    new = town.publications(5)
    loops = physical_plan(match(body, new, {}, table.frame(), "others"))
    assert "BroadcastNestedLoopJoin BuildRight" in loops
    assert require_same(town, PreparedChannel(body), table.parts(), new, table.frame()) is not None
    table.close()


def test_many_publications_are_not_in_a_prepared_plan(spark: SparkSession, town: Town) -> None:
    prepared = PreparedChannel(body_of(QUERIES["emrgn(E)"]))
    table = town.values_for(prepared.body)
    many = spark.createDataFrame(spark.sparkContext.emptyRDD(), spark_schema(DATASETS["emergencies"]))
    assert prepared.match(many, table.parts(), {}) is None
    assert prepared.match(town.publications(5), table.parts(), {}) is None, "tried again for other values only"
    table.reload()
    assert prepared.match(town.publications(5), table.parts(), {}) is not None
    table.close()


def test_limit_of_results_ends_tasks_and_moves_no_rows(spark: SparkSession) -> None:
    endless = spark.range(0, 10**15, 1, 4)
    limited = limit_partitions(endless, 3).select(spark_partition_id())
    assert Counter(number for (number,) in limited.collect()) == dict.fromkeys(range(4), 3)
    with pytest.raises(TooManyResults, match="more than 11 results"):
        SparkMatches(endless, most=11).collect()
    with pytest.raises(TooManyResults, match="more than 11 results"):
        list(SparkMatches(endless, most=11))


def test_plan_with_more_results_than_allowed_is_not_used(town: Town) -> None:
    prepared = PreparedChannel(body_of(QUERIES["emrgn(E)"]))
    table = town.values_for(prepared.body)
    new = town.publications(30)
    everything = rows(match(prepared.body, new, {}, table.frame()).toArrow())
    assert len(everything) > 10
    assert prepared.match(new, table.parts(), {}, most=len(everything) - 1) is None
    found = prepared.match(new, table.parts(), {}, most=len(everything))
    assert found is not None
    assert rows(found) == everything
    # Rows of stale streams count too: in their place the partition may lack others.
    table.remove(list(town.values)[:4])
    assert 0 < len(rows(match(prepared.body, new, {}, table.frame()).toArrow())) < len(everything)
    assert prepared.match(new, table.parts(), {}, most=len(everything) - 1) is None
