"""One plan for all values gives the results of one query per value, and does not loop over all pairs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from sqlglot import exp
from support.cluster.queries import DATASETS, KINDS, PARAMETERS, QUERIES, TABLE_III, body_of

from newsstand.cluster.ingest.schema import spark_schema
from newsstand.cluster.matching.matcher import check_body, describe, match
from newsstand.cluster.query.dialect import read_expression, write_sql
from newsstand.cluster.query.spatial import distance_sql
from newsstand.cluster.results.model import MATCH_SCHEMA
from newsstand.errors import BadQuery


@dataclass(frozen=True)
class City:
    new: DataFrame
    stored: Mapping[str, DataFrame]
    values: DataFrame
    rows: list[Row]

    def match(self, query: str) -> DataFrame:
        body = body_of(query)
        names = [f"p_{parameter.name}" for parameter in body.channel.parameters]
        return match(body, self.new, self.stored, self.values.select("stream", *names))


@pytest.fixture(scope="module")
def city(spark: SparkSession) -> City:
    random = Random(3)

    def place() -> tuple[float, float]:
        return 47 + random.random() * 0.3, 8 + random.random() * 0.3

    def report(number: int) -> tuple[object, ...]:
        page = (f"page{number}", number, "text/plain", None) if number % 3 == 0 else None
        at = datetime(2024, 1, 1, 0, 0, number % 60, tzinfo=UTC)
        text = random.choice(["abc", None, 'x"y'])
        return f"e{number}", random.choice(KINDS), text, *place(), [random.choice(KINDS)], number, at, page

    def placed(letter: str, dataset: str) -> DataFrame:
        rows = [(f"{letter}{number}", *place(), number, None, None) for number in range(12)]
        return spark.createDataFrame(rows, spark_schema(DATASETS[dataset])).coalesce(1).cache()

    shape = spark_schema(DATASETS["emergencies"])
    new = spark.createDataFrame([report(number) for number in range(1, 31)], shape).coalesce(1).cache()
    old = spark.createDataFrame([report(number) for number in range(60)], shape).coalesce(1).cache()
    stored = {"emergencies": old, "shelters": placed("s", "shelters"), "users": placed("u", "users")}
    wanted = [(n, KINDS[n % 4], *place(), f"u{random.randrange(12)}", random.random() * 30) for n in range(3)]
    columns = ", ".join(f"p_{name} {type}" for name, type in PARAMETERS.items())
    values = spark.createDataFrame(wanted, f"stream bigint, {columns}").coalesce(1).cache()
    for name, frame in {"new_emergencies": new, **{f"stored_{name}": one for name, one in stored.items()}}.items():
        frame.createOrReplaceTempView(name)
    return City(new, stored, values, values.collect())


def plainly(spark: SparkSession, city: City, query: str) -> Counter[tuple[int, str]]:
    """One query for each value, over plain views, with Spark's own parameter markers."""
    body = body_of(query)
    tree = body.tree.copy()
    for table in tree.find_all(exp.Table):
        if table.db in ("new", "stored"):
            table.set("this", exp.to_identifier(f"{table.db}_{table.name}"))
            table.set("db", None)
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name == "distance_km":
            call.replace(read_expression(f"({distance_sql(*map(write_sql, call.expressions))})"))
    found: Counter[tuple[int, str]] = Counter()
    form = "map('ignoreNullFields', 'false', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSX\")"
    for row in city.rows:
        args = {parameter.name: row[f"p_{parameter.name}"] for parameter in body.channel.parameters}
        payloads = spark.sql(write_sql(tree), args=args).selectExpr(f"to_json(struct(*), {form})").collect()
        found.update((row["stream"], payload[0]) for payload in payloads)
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_match_of_all_values_equals_match_of_each(spark: SparkSession, city: City, name: str) -> None:
    matched = city.match(QUERIES[name])
    found = Counter((row["stream"], row["payload"]) for row in matched.collect())
    assert found == plainly(spark, city, QUERIES[name])
    assert found, "a query that finds nothing shows nothing"


def test_results_have_contract_columns(spark: SparkSession, city: City) -> None:
    for query in ("SELECT * FROM emergencies WHERE kind = :kind", QUERIES["one row always"], QUERIES["first two"]):
        wanted = [(one.name, one.dataType) for one in from_arrow_schema(MATCH_SCHEMA)]
        assert [(one.name, one.dataType) for one in city.match(query).schema] == wanted


def test_rows_of_single_publications_have_publication_and_page(city: City) -> None:
    for row in city.match("SELECT _seq FROM emergencies WHERE kind = :kind").collect():
        assert row["payload"] == f'{{"_seq":{row["publication"]}}}'
        assert row["page_id"] == (f"page{row['publication']}" if row["publication"] % 3 == 0 else None)
        assert row["page_size"] == (row["publication"] if row["publication"] % 3 == 0 else None)
    for name in ("groups", "distinct", "except", "one row always", "inner query"):
        assert {row["publication"] for row in city.match(QUERIES[name]).collect()} == {None}
    for name in ("union", "tags", "left", "emrgn-nm(U)", "first two"):
        assert None not in {row["publication"] for row in city.match(QUERIES[name]).collect()}


def test_ordinals_follow_order_by_per_stream(city: City) -> None:
    rows = city.match("SELECT id, lat FROM emergencies WHERE kind = :kind ORDER BY lat DESC").collect()
    where = {row["id"]: row["lat"] for row in city.new.collect()}
    for stream in {row["stream"] for row in rows}:
        mine = sorted((row for row in rows if row["stream"] == stream), key=lambda row: row["ordinal"])
        assert [row["ordinal"] for row in mine] == list(range(1, len(mine) + 1))
        heights = [where[re.findall(r'"id":"(\w+)"', row["payload"])[0]] for row in mine]
        assert heights == sorted(heights, reverse=True)
    assert {row["ordinal"] for row in city.match(QUERIES["emrgn(E)"]).collect()} == {0}


def test_channel_without_parameters_has_one_stream(spark: SparkSession, city: City) -> None:
    body = body_of("SELECT id FROM emergencies")
    matched = match(body, city.new, {}, spark.createDataFrame([(7,)], "stream bigint"))
    assert Counter(row["stream"] for row in matched.collect()) == {7: 30}
    assert describe(body, matched).warnings == ()


@pytest.mark.parametrize("name", TABLE_III)
def test_queries_of_table_iii_use_hash_joins_only(city: City, name: str) -> None:
    matched = city.match(QUERIES[name])
    plan = describe(body_of(QUERIES[name]), matched)
    assert plan.warnings == ()
    assert {join.kind for join in plan.joins} <= {"BroadcastHashJoin", "SortMergeJoin", "ShuffledHashJoin"}
    with_values = [join for join in plan.joins if join.values]
    assert with_values[-1].kind == "BroadcastHashJoin"


def test_publications_are_broadcast_to_values(spark: SparkSession, city: City) -> None:
    rows = [(number, f"kind {number}") for number in range(1000)]
    values = spark.createDataFrame(rows, "stream bigint, p_kind string")
    body = body_of(QUERIES["emrgn(E)"])
    for new in (city.new, city.new.unionAll(city.new)):
        (join,) = describe(body, match(body, new, {}, values)).joins
        assert (join.kind, join.keys, join.built, join.values) == ("BroadcastHashJoin", ("kind",), "left", True)


def test_plan_without_hash_join_has_warning(city: City) -> None:
    body = body_of(QUERIES["range"])
    (warning,) = describe(body, city.match(QUERIES["range"])).warnings
    assert "cost grows with subscriptions × publications" in warning


def test_results_independent_of_partitions(city: City) -> None:
    for name in ("first two", "union", "emrgn-ws(E,L)"):
        body = body_of(QUERIES[name])
        names = [f"p_{parameter.name}" for parameter in body.channel.parameters]
        values = city.values.select("stream", *names)
        spread = {key: frame.repartition(3) for key, frame in city.stored.items()}
        apart = match(body, city.new.repartition(4), spread, values.repartition(3), broadcast=None)
        assert Counter(apart.collect()) == Counter(city.match(QUERIES[name]).collect())


def test_values_are_never_interpreted_as_sql(spark: SparkSession, city: City) -> None:
    body = body_of("SELECT :kind AS value FROM emergencies WHERE id = 'e1' AND :kind IS NOT NULL")
    attempts = ["x' OR '1'='1", "'); DROP TABLE emergencies; --", ":lat", "${env:HOME}", "`_seq`", "\\", '"']
    values = spark.createDataFrame(list(enumerate(attempts)), "stream bigint, p_kind string")
    rows = match(body, city.new, {}, values).selectExpr("stream", "get_json_object(payload, '$.value')").collect()
    assert sorted(map(tuple, rows)) == list(enumerate(attempts))


def test_views_are_dropped_and_sessions_are_independent(spark: SparkSession, city: City) -> None:
    other = spark.newSession()
    new = other.createDataFrame([("e1", "flood", None, 0.0, 0.0, [], 1, None, None)], city.new.schema)
    values = city.values.select("stream", "p_kind")
    assert match(body_of(QUERIES["emrgn(E)"]), new, {}, values).count() == 1
    assert spark.sql("SHOW VIEWS IN global_temp LIKE 'newsstand_*'").count() == 0


def test_failing_function_fails_the_action(city: City) -> None:
    matched = city.match("SELECT 1 / (lat - lat) AS x FROM emergencies WHERE kind = :kind")
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        matched.collect()


def test_check_body_runs_no_query(spark: SparkSession) -> None:
    shape = check_body(
        spark, body_of("SELECT id, lat * 2 AS twice, tags FROM emergencies WHERE kind = :kind"), DATASETS
    )
    assert shape.simpleString() == "struct<id:string,twice:double,tags:array<string>>"
    for name in TABLE_III:
        check_body(spark, body_of(QUERIES[name]), DATASETS)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT no_such(id) AS x FROM emergencies", "no function 'no_such' in Spark"),
        ("SELECT upper(id, kind) AS x FROM emergencies", "WRONG_NUM_ARGS"),
        ("SELECT id FROM emergencies WHERE lat", "boolean"),
        ("SELECT id, count(*) AS n FROM emergencies GROUP BY kind", "MISSING_AGGREGATION"),
        ("SELECT DISTINCT id FROM emergencies ORDER BY lat", "ORDER BY is limited to columns"),
    ],
)
def test_check_body_rejects_with_one_line(spark: SparkSession, query: str, expected: str) -> None:
    with pytest.raises(BadQuery) as error:
        check_body(spark, body_of(query), DATASETS)
    message = str(error.value)
    assert message.startswith("channels.c.query: ")
    assert expected.lower() in message.lower()
    assert "\n" not in message
