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

from newsstand.cluster.ingest.schema import spark_schema
from newsstand.cluster.matching.matcher import check_body, describe, match
from newsstand.cluster.query.dialect import read_expression, write_sql
from newsstand.cluster.query.parser import Body, parse_body
from newsstand.cluster.query.spatial import distance_sql
from newsstand.cluster.results.model import MATCH_SCHEMA
from newsstand.errors import BadQuery
from newsstand.model import ChannelDefinition, Dataset, Field, Parameter

PLACE = (Field("lat", "double"), Field("lon", "double"))
DATASETS = {
    "emergencies": Dataset(
        "emergencies",
        (
            Field("id", "string"),
            Field("kind", "string"),
            Field("text", "string", True),
            *PLACE,
            Field("tags", "array<string>"),
        ),
    ),
    "shelters": Dataset("shelters", (Field("name", "string"), *PLACE), "name"),
    "users": Dataset("users", (Field("name", "string"), *PLACE), "name"),
}
PARAMETERS = {"kind": "string", "lat": "double", "lon": "double", "user": "string", "r": "double"}
KINDS = ["flood", "fire", "quake", "' OR '1'='1"]

TABLE_III = {
    "emrgn(E)": "SELECT * FROM emergencies WHERE kind = :kind",
    "emrgn(L)": "SELECT e.id, e.text FROM emergencies e WHERE distance_km(e.lat, e.lon, :lat, :lon) < 9",
    "emrgn(E,L)": "SELECT e.id FROM emergencies e "
    "WHERE e.kind = :kind AND 9 >= distance_km(:lat, :lon, e.lat, e.lon)",
    "emrgn-ws(E,L)": "SELECT e.id, s.name AS shelter FROM emergencies e "
    "JOIN shelters s ON distance_km(e.lat, e.lon, s.lat, s.lon) < 10 "
    "WHERE e.kind = :kind AND distance_km(e.lat, e.lon, :lat, :lon) < 9",
    "emrgn-nm(U)": "SELECT e.id, u.lat FROM emergencies e "
    "JOIN users u ON distance_km(e.lat, e.lon, u.lat, u.lon) < 9 WHERE u.name = :user",
    "emrgn-nm(E,U)": "SELECT e.id FROM emergencies e, users u WHERE distance_km(e.lat, e.lon, u.lat, u.lon) < 9 "
    "AND u.name = :user AND e.kind = :kind",
    "emrgn-nm-ws(E,U)": "SELECT e.id, s.name FROM emergencies e "
    "JOIN shelters s ON distance_km(e.lat, e.lon, s.lat, s.lon) < 5 "
    "JOIN users u ON distance_km(e.lat, e.lon, u.lat, u.lon) < 9 WHERE u.name = :user AND e.kind = :kind",
}
"""The seven channels of Uddin & Venkatasubramanian 2018, Table III: kinds E, places L, users U."""

OTHERS = {
    "radius as a parameter": "SELECT id FROM emergencies WHERE distance_km(lat, lon, :lat, :lon) <= :r",
    "groups": "SELECT kind, count(*) AS n, max(:lat) AS m FROM emergencies e WHERE kind = :kind GROUP BY kind "
    "HAVING count(*) > 1",
    "groups by number": "SELECT kind, lat > :lat AS north, count(*) AS n FROM emergencies GROUP BY 1, 2 "
    "ORDER BY count(*) DESC, 1",
    "one row always": "SELECT count(*) AS n FROM emergencies WHERE kind = :kind",
    "first two": "SELECT id, row_number() OVER (ORDER BY lat, id) AS w FROM emergencies WHERE kind = :kind "
    "ORDER BY lat DESC, id LIMIT 2",
    "order by a name with a space": "SELECT id AS `the id`, lat FROM emergencies WHERE kind = :kind "
    "ORDER BY `the id` DESC LIMIT 2",
    "distinct": "SELECT DISTINCT kind FROM emergencies WHERE kind = :kind ORDER BY kind",
    "union": "SELECT id, 'k' AS why FROM emergencies WHERE kind = :kind UNION ALL "
    "SELECT id, 'l' FROM emergencies WHERE distance_km(lat, lon, :lat, :lon) < 9 ORDER BY why, 1 LIMIT 3 OFFSET 1",
    "except": "SELECT id FROM emergencies WHERE kind = :kind "
    "EXCEPT SELECT id FROM stored.emergencies WHERE lat > :lat",
    "with": "WITH near AS (SELECT id, kind FROM emergencies WHERE distance_km(lat, lon, :lat, :lon) < 20), "
    "k AS (SELECT DISTINCT kind FROM stored.emergencies) "
    "SELECT near.id, k.kind FROM near JOIN k ON near.kind = k.kind",
    "inner query": "SELECT x.id, x.n FROM (SELECT id, kind, lat * 2 AS n FROM emergencies) x WHERE x.kind = :kind",
    "exists": "SELECT e.id FROM emergencies e WHERE e.kind = :kind AND EXISTS "
    "(SELECT 1 FROM shelters s WHERE distance_km(e.lat, e.lon, s.lat, s.lon) < 6 AND s.name < :user)",
    "scalar": "SELECT id, (SELECT count(*) FROM stored.emergencies o WHERE o.kind = e.kind) AS n "
    "FROM emergencies e WHERE kind = :kind",
    "left": "SELECT e.id, s.name FROM emergencies e LEFT JOIN shelters s "
    "ON distance_km(e.lat, e.lon, s.lat, s.lon) < 4 AND s.name <> :user WHERE e.kind = :kind",
    "right": "SELECT e.id, u.name FROM users u RIGHT JOIN emergencies e ON u.name = e.id AND u.name = :user "
    "WHERE e.kind = :kind",
    "anti": "SELECT e.id FROM emergencies e LEFT ANTI JOIN users u "
    "ON distance_km(u.lat, u.lon, e.lat, e.lon) < 3 AND u.name = :user",
    "using": "SELECT e.id, s.lat FROM emergencies e JOIN stored.emergencies s USING (kind) WHERE kind = :kind",
    "tags": "SELECT e.id, t.tag FROM emergencies e LATERAL VIEW explode(e.tags) t AS tag WHERE t.tag = :kind",
    "range": "SELECT id, lat FROM emergencies WHERE lat > :lat",
    "functions": "SELECT id, coalesce(text, 'it''s') AS t, transform(tags, x -> upper(x)) AS u, :lat + 1 AS q, "
    "_page.id AS p, _at, text FROM emergencies WHERE kind IN (:kind, 'fire')",
}
QUERIES = TABLE_III | OTHERS


def body_of(query: str) -> Body:
    used = [name for name in PARAMETERS if re.search(rf":{name}\b", query)]
    channel = ChannelDefinition(
        "c", query, "emergencies", tuple(Parameter(name, PARAMETERS[name]) for name in used)
    )
    return parse_body(channel, DATASETS)


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
        apart = match(body, city.new.repartition(4), spread, values.repartition(3), broadcast_new=False)
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
