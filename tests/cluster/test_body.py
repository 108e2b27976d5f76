"""Which queries a channel may have, what is said of the others, and what values its subscriptions may give."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot.errors import TokenError

from newsstand.cluster.body import Body, datasets_read, parse_body, parse_channel
from newsstand.cluster.channels import channel_table
from newsstand.cluster.dialect import DEEPEST, not_too_deep, write_sql
from newsstand.cluster.functions import REFUSED
from newsstand.errors import BadApp, BadQuery, BadValues
from newsstand.model import Channel, Dataset, Field, Parameter, Retention, canonical
from newsstand.values import parse_values

DATASETS = {
    "emergencies": Dataset(
        "emergencies",
        (
            Field("id", "string"),
            Field("kind", "string"),
            Field("lat", "double"),
            Field("lon", "double"),
            Field("tags", "array<string>", optional=True),
        ),
    ),
    "shelters": Dataset(
        "shelters", (Field("name", "string"), Field("lat", "double"), Field("lon", "double")), "name"
    ),
}
KIND = (Parameter("kind", "string"),)


def parsed(query: str, *parameters: Parameter) -> Body:
    return parse_body(Channel("c", query, "emergencies", parameters), DATASETS)


def refused(query: str, *parameters: Parameter) -> str:
    with pytest.raises(BadQuery) as error:
        parsed(query, *parameters)
    message = str(error.value)
    assert message.startswith("channels.c.")
    assert "\n" not in message
    return message


# What is let through


def test_a_star_is_the_fields_without_what_is_hidden() -> None:
    assert parsed("SELECT * FROM emergencies").columns == ("id", "kind", "lat", "lon", "tags")
    assert parsed("SELECT e.* EXCEPT (lat, lon), s.name FROM emergencies e, shelters s").columns == (
        "id",
        "kind",
        "tags",
        "name",
    )
    assert (
        parsed("WITH x AS (SELECT * FROM emergencies) SELECT * FROM x").columns
        == parsed("SELECT * FROM emergencies").columns
    )


def test_hidden_columns_can_be_named() -> None:
    assert parsed("SELECT e._seq, e._at, e._page.id AS page FROM emergencies e").columns == ("_seq", "_at", "page")


def test_the_new_dataset_and_stored_ones_are_told_apart() -> None:
    body = parsed("SELECT a.id, b.id AS other FROM emergencies a, stored.emergencies b, shelters s")
    assert body.stored == {"emergencies", "shelters"}
    assert "`new`.`emergencies` AS `a`" in write_sql(body.tree)
    assert "`stored`.`emergencies` AS `b`" in write_sql(body.tree)


def test_a_name_of_with_is_not_a_dataset() -> None:
    body = parsed("WITH shelters AS (SELECT id FROM emergencies) SELECT id FROM shelters")
    assert body.stored == set()


def test_markers_in_strings_and_comments_are_text() -> None:
    body = parsed("SELECT id, ':kind' AS a FROM emergencies -- WHERE kind = :other\n/* :third */")
    assert body.columns == ("id", "a")


def test_comments_and_hints_do_not_run() -> None:
    text = write_sql(parsed("SELECT /*+ REPARTITION(1000) */ id /* x */ FROM emergencies -- y").tree)
    assert "REPARTITION" not in text
    assert "x" not in text
    assert "y" not in text


@pytest.mark.parametrize(
    "query",
    [
        "SELECT regexp_extract(id, '(.*)', 1) AS a, to_timestamp(id) AS b, nvl(id, kind) AS c FROM emergencies",
        "SELECT dateadd(DAY, 1, _at) AS a, timestampdiff(HOUR, _at, _at) AS b FROM emergencies",
        "SELECT transform(tags, t -> upper(t)) AS a, tags[0] AS b FROM emergencies",
        "SELECT count(DISTINCT kind) AS a, sum(lat) FILTER (WHERE lat > 0) AS b FROM emergencies",
        "SELECT id, tag FROM emergencies LATERAL VIEW explode(tags) t AS tag",
        "SELECT id FROM emergencies WHERE EXISTS (SELECT 1 FROM shelters WHERE name = id)",
        "SELECT id FROM emergencies UNION SELECT name FROM shelters ORDER BY id LIMIT 3",
        "(SELECT id FROM emergencies)",
    ],
)
def test_functions_are_kept_as_they_are_written(query: str) -> None:
    text = write_sql(parsed(query).tree)
    for word in ("regexp_extract", "to_timestamp", "nvl", "dateadd", "timestampdiff", "explode"):
        assert (f"{word}(" in query) == (f"{word}(" in text)


def test_two_quotes_in_a_string_are_one() -> None:
    assert "'it\\'s'" in write_sql(parsed("SELECT 'it''s' AS a FROM emergencies").tree)


# What is refused


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "empty"),
        ("SELECT id FROM emergencies; SELECT 1", "2 statements"),
        ("DROP TABLE emergencies", "'DROP': a channel's query is one SELECT"),
        ("INSERT INTO emergencies SELECT 1", "one SELECT"),
        ("SET spark.x = 1", "one SELECT"),
        ("SELECT id FROM emergencies WHERE (id = 1", "line 1, column"),
        ("SELECT 'x FROM emergencies", "does not end"),
        ("SELECT id FROM parquet.`/etc/passwd`", "no dataset 'parquet./etc/passwd'"),
        ("SELECT id FROM spark_catalog.default.emergencies", "no dataset"),
        ("SELECT id FROM global_temp.emergencies", "no dataset"),
        ("SELECT id FROM emergency", "did you mean 'emergencies'?"),
        ("SELECT id FROM emergencies, range(10)", "'range' cannot stand in FROM"),
        ("SELECT id FROM identifier('emergencies')", "'identifier' is refused"),
        ("SELECT TRANSFORM(id) USING 'cat' FROM emergencies", "TRANSFORM"),
        ("SELECT java_method('java.lang.System', 'exit', 1) AS x FROM emergencies", "reaches outside"),
        ("SELECT reflect('java.lang.System', 'getenv') AS x FROM emergencies", "reaches outside"),
        ("SELECT `reflect`('java.lang.System', 'getenv') AS x FROM emergencies", "reaches outside"),
        ("SELECT input_file_name() AS x FROM emergencies", "reaches outside"),
        ("SELECT from_protobuf(id, 'M', '/etc/passwd') AS x FROM emergencies", "reaches outside"),
        ("SELECT rand() AS x FROM emergencies", "chance"),
        ("SELECT system.builtin.reflect('a', 'b') AS x FROM emergencies", "plain names"),
        ("SELECT '${env:HOME}' AS x FROM emergencies", "'${' cannot stand"),
        ("SELECT id FROM emergencies VERSION AS OF 1", "AS OF"),
        ("SELECT id FROM emergencies TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT id INTO other FROM emergencies", "INTO"),
        ("SELECT id FROM emergencies WHERE id = ?", "'?' has no name"),
        ("SELECT id FROM emergencies WHERE kind = :kid", ":kid is not declared"),
        ("SELECT id FROM stored.emergencies", "is not read outside of 'stored.'"),
        ("SELECT name FROM shelters", "is not read"),
        (
            "SELECT idd FROM emergencies",
            "line 1, column 10: no column 'idd' in dataset 'emergencies'; did you mean 'id'?",
        ),
        ("SELECT e.idd FROM emergencies e", "no column 'idd'"),
        ("SELECT lat FROM emergencies e, shelters s", "'lat' may be e.lat or s.lat"),
        ("SELECT upper(id) FROM emergencies", "column 1 of SELECT has no name"),
        ("SELECT id, kind AS ID FROM emergencies", "two columns are called 'ID'"),
        ("SELECT * FROM emergencies, shelters", "two columns are called 'lat'"),
        ("SELECT id AS __stream FROM emergencies", "two underscores"),
        ("SELECT array(1)[0] AS a FROM emergencies", "was not understood"),
        ("SELECT distance_km(lat, lon) AS d FROM emergencies", "takes (lat1, lon1, lat2, lon2)"),
        ("SELECT id FROM emergencies LIMIT 1 + 1", "whole number"),
        ("SELECT id FROM emergencies NATURAL JOIN shelters", "after ON"),
    ],
)
def test_what_is_wrong_with_a_query_is_said_in_one_line(query: str, said: str) -> None:
    assert said in refused(query)


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_function_says_what_to_write_instead(name: str) -> None:
    said = refused(f"SELECT `{name}`(id) AS x FROM emergencies")
    assert re.search(r"; (there is no alternative|(write|publish|decode|compute) .+)$", said)


@pytest.mark.parametrize(
    ("query", "instead"),
    [
        ("SELECT id INTO other FROM emergencies", "leave it out"),
        ("SELECT @x AS x FROM emergencies", "write :name and declare it in parameters"),
        ("SELECT TRANSFORM(id) USING 'cat' FROM emergencies", "call functions of Spark"),
        ("SELECT id FROM emergencies TABLESAMPLE (10 PERCENT)", "write WHERE pmod(hash(_seq), 10) = 0"),
        (
            "SELECT * FROM emergencies PIVOT (count(*) FOR kind IN ('fire'))",
            "FILTER (WHERE kind = 'fire') AS fire",
        ),
        ("SELECT id FROM emergencies VERSION AS OF 1", "write a condition on _seq or _at"),
        ("SELECT id FROM emergencies CLUSTER BY id", "write ORDER BY"),
        ("SELECT id FROM emergencies DISTRIBUTE BY id", "leave it out"),
        ("SELECT id FROM emergencies SORT BY id", "write ORDER BY"),
        ("SELECT id FROM emergencies QUALIFY row_number() OVER (ORDER BY id) = 1", "write WHERE around it"),
        (
            "WITH RECURSIVE x AS (SELECT id FROM emergencies UNION ALL SELECT id FROM x) SELECT id FROM x",
            "write one join for each step",
        ),
        ("SELECT system.builtin.upper(id) AS x FROM emergencies", "write upper(…)"),
        ("SELECT id FROM stored.emergencies", "write FROM emergencies, and join stored.emergencies to it"),
        ("SELECT name FROM shelters", "write FROM emergencies, or name another dataset in 'new'"),
    ],
)
def test_a_refused_construct_says_what_to_write_instead(query: str, instead: str) -> None:
    assert instead in refused(query).partition("; ")[2]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT hash(_seq) AS a, sha2(cast(_seq AS string), 256) AS b, pmod(hash(_seq), 8) AS c FROM emergencies",
        "SELECT array_sort(tags) AS a, row_number() OVER (ORDER BY _seq) AS b FROM emergencies",
        "SELECT count(*) AS n, date_trunc('HOUR', _at) AS h FROM emergencies GROUP BY date_trunc('HOUR', _at)",
        "SELECT lag(_at) OVER (ORDER BY _seq) AS before, to_json(struct(id)) AS j FROM emergencies",
        "SELECT from_json(id, 'a INT').a AS a FROM emergencies WHERE pmod(hash(_seq), 10) = 0",
        "SELECT count(*) FILTER (WHERE kind = 'fire') AS fire, sum(lat) AS s FROM emergencies",
        "SELECT id, x FROM emergencies LATERAL VIEW stack(2, lat, lon) t AS x",
        "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY _seq) AS n FROM emergencies) WHERE n = 1",
        "SELECT e.id FROM emergencies e JOIN stored.emergencies o ON o._seq < e._seq",
    ],
)
def test_what_is_written_instead_is_let_through(query: str) -> None:
    assert parsed(query).columns


def test_a_query_that_reads_stored_records_alone_is_told_so_without_new() -> None:
    with pytest.raises(BadApp, match=r"write emergencies instead of stored\.emergencies"):
        parse_channel("x", {"query": "SELECT id FROM stored.emergencies"}, DATASETS, {})


def test_a_parameter_that_is_not_used_is_refused() -> None:
    assert (
        refused("SELECT id FROM emergencies", *KIND) == "channels.c.parameters.kind: the query does not use :kind"
    )


def test_limit_inside_of_a_query_with_a_parameter_is_refused() -> None:
    query = "SELECT id FROM (SELECT id FROM emergencies WHERE kind = :kind LIMIT 3)"
    assert "put it at the query's end" in refused(query, *KIND)


@given(st.text(alphabet="SELECT *FROMemrgncis,()'`:\"${}/-;\n\\1", max_size=40))
def test_any_text_is_a_body_or_one_line_of_refusal(text: str) -> None:
    said = ""
    try:
        parsed(text)
    except BadQuery as error:
        said = str(error)
    assert "\n" not in said


# Channels


def test_a_channel_is_its_table_and_back() -> None:
    table: dict[str, object] = {
        "query": "SELECT id FROM emergencies WHERE kind = :kind",
        "parameters": {"kind": "string"},
        "period": "10s",
        "retention": {"age": "7d", "count": 1000},
    }
    channel = parse_channel("x", table, DATASETS, {"delivery": "push"})
    assert channel == Channel(
        "x", str(table["query"]), "emergencies", KIND, 10.0, True, Retention(7 * 86_400.0, 1000)
    )
    assert parse_channel("x", channel_table(channel), DATASETS, {}) == channel


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "channels.x.query: give one SELECT"),
        ({"query": "SELECT name FROM shelters"}, "channels.x.new: say which dataset is the new one"),
        ({"query": "SELECT id FROM emergencies", "new": "other"}, "channels.x.new: no dataset 'other'"),
        ({"query": "SELECT id FROM emergencies", "perod": 1}, "channels.x.perod: unknown option"),
        ({"query": "SELECT id FROM emergencies", "period": "soon"}, "channels.x.period: must be"),
        ({"query": "SELECT id FROM emergencies", "delivery": "mail"}, "channels.x.delivery"),
        ({"query": "SELECT id FROM emergencies", "retention": {"count": 0}}, "channels.x.retention.count"),
        ({"query": "SELECT id FROM emergencies", "parameters": {"at": "timestamp"}}, "channels.x.parameters.at"),
    ],
)
def test_what_is_wrong_with_a_channel_names_its_place(table: dict[str, object], said: str) -> None:
    with pytest.raises(BadApp) as error:
        parse_channel("x", table, DATASETS, {})
    assert str(error.value).startswith(said)


def test_names_that_may_be_datasets_are_read_from_a_query() -> None:
    assert datasets_read("SELECT 1 FROM a, stored.b, (SELECT 1 FROM C)", "here") == {"a", "c"}


# Values

ALL = Channel(
    "x",
    "",
    "emergencies",
    tuple(
        Parameter(name, type)
        for name, type in zip("sidb", ("string", "integer", "double", "boolean"), strict=True)
    ),
)


def test_values_come_by_name_or_in_order() -> None:
    assert parse_values(ALL, {"b": True, "d": 1, "i": -(2**63), "s": "'; DROP"}) == (
        "'; DROP",
        -(2**63),
        1.0,
        True,
    )
    assert parse_values(ALL, ["", 0, 0.5, False]) == ("", 0, 0.5, False)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("s", 1), ("s", None), ("s", "\ud800"), ("s", "a\0b"), ("i", 2**63), ("i", 1.0), ("i", True), ("i", "1"),
        ("d", "abc"), ("d", math.nan), ("d", math.inf), ("d", True), ("d", 2**60), ("b", 1), ("b", "true"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(place: str, value: object) -> None:
    good: dict[str, object] = {"s": "", "i": 0, "d": 0.0, "b": False}
    with pytest.raises(BadValues, match=rf"channel 'x', parameter '{place}': .* is not an? \w+"):
        parse_values(ALL, {**good, place: value})  # type: ignore[dict-item]


def test_missing_and_superfluous_values_are_refused() -> None:
    for given_values in ({}, {"s": "", "i": 0, "d": 0.0, "b": False, "z": 1}, [], ["", 0, 0.0]):
        with pytest.raises(BadValues, match="channel 'x'"):
            parse_values(ALL, given_values)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_equal_doubles_have_one_text(number: float) -> None:
    one = Channel("x", "", "emergencies", (Parameter("d", "double"),))
    assert canonical(parse_values(one, [number])) == canonical(parse_values(one, [number + 0.0]))
    if number == 0:
        assert canonical(parse_values(one, [number])) == "[0.0]"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM ((SELECT id FROM emergencies) JOIN text.`/etc/passwd` b)",
        "SELECT e.id FROM emergencies e LATERAL VIEW explode(e.tags) z "
        "JOIN shelters JOIN text.`/etc/passwd` b ON true ON true",
        "SELECT e.id FROM emergencies e JOIN global_temp.newsstand_7_values v ON true",
        "SELECT e.id FROM (emergencies e JOIN stored.nothing v ON true)",
    ],
)
def test_a_join_hides_no_table(query: str) -> None:
    assert refused(query)


@pytest.mark.parametrize("call", ["from_xml(e.id, 'a string')", "schema_of_xml('<a/>')"])
def test_xml_is_refused_because_its_options_name_files(call: str) -> None:
    assert "is refused" in refused(f"SELECT {call} AS x FROM emergencies e")


def test_a_query_over_a_dataset_that_is_not_there_is_told_so() -> None:
    datasets = {"reports": Dataset("reports", (Field("id", "string"),))}
    with pytest.raises(BadApp, match=r"channels\.near\.query: no dataset 'report'; did you mean 'reports'\?"):
        parse_channel("near", {"query": "SELECT r.id FROM report r"}, datasets, {})
    with pytest.raises(BadApp, match=r"channels\.near\.new: say which"):
        parse_channel("near", {"query": "WITH q AS (SELECT 1 AS a) SELECT q.a FROM q"}, datasets, {})
    with pytest.raises(BadApp, match=r"write reports instead of stored\.reports"):
        parse_channel("near", {"query": "SELECT r.id FROM stored.reports r"}, datasets, {})


DEEP = {
    "parentheses": lambda n: "SELECT e.id FROM emergencies e WHERE " + "(" * n + "true" + ")" * n,
    "functions": lambda n: "SELECT " + "abs(" * n + "e.lat" + ")" * n + " AS x FROM emergencies e",
    "CASE": lambda n: "SELECT " + "CASE WHEN true THEN " * n + "1" + " END" * n + " AS x FROM emergencies e",
    "NOT": lambda n: "SELECT e.id FROM emergencies e WHERE " + "NOT " * n + "true",
    "inner queries": lambda n: "SELECT id FROM " + "(SELECT id FROM " * n + "emergencies" + ")" * n,
}
CHAINS = {
    "elements": lambda n: "SELECT e.tags" + "[0]" * n + " AS x FROM emergencies e",
    "casts": lambda n: "SELECT e.lat" + "::int" * n + " AS x FROM emergencies e",
    "types": lambda n: "SELECT cast(e.id AS " + "array<" * n + "int" + ">" * n + ") AS x FROM emergencies e",
}


@pytest.mark.parametrize("form", DEEP)
def test_a_query_that_is_nested_too_deep_is_refused_with_its_place(form: str) -> None:
    for depth in (DEEPEST + 1, 200, 20_000):
        message = refused(DEEP[form](depth))
        assert re.search(rf"query: line 1, column \d+: nested more than {DEEPEST} deep$", message), message
    parsed(DEEP[form](DEEPEST - 2))


@pytest.mark.parametrize("form", CHAINS)
def test_a_chain_that_is_too_long_is_refused(form: str) -> None:
    for length in (400, 1000, 5000):
        assert "nested too deep" in refused(CHAINS[form](length))


def test_a_recursion_that_the_tokenizer_reports_is_too_deep() -> None:
    """The stack may end while a type is read in the middle of writing a query."""
    with pytest.raises(BadQuery, match="nested too deep"), not_too_deep("query"):
        raise TokenError("Error tokenizing 'floa'") from RecursionError()
    with pytest.raises(TokenError), not_too_deep("query"):
        raise TokenError("Error tokenizing 'floa'")


def test_a_long_condition_is_not_deep() -> None:
    parsed("SELECT e.id FROM emergencies e WHERE " + " OR ".join(f"e.id = '{n}'" for n in range(1000)))
