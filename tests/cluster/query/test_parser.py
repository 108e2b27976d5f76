"""Queries of channels: accepted and rejected ones."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot.errors import TokenError

from newsstand.cluster.query.dialect import MAX_DEPTH, REJECTED, not_too_deep, write_sql
from newsstand.cluster.query.parser import Body, channel_table, datasets_read, parse_body, parse_channel
from newsstand.cluster.query.rewrite import Views, evaluation_sql
from newsstand.errors import BadApp, BadQuery
from newsstand.model import ChannelDefinition, Dataset, Field, Parameter, Retention

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
    return parse_body(ChannelDefinition("c", query, "emergencies", parameters), DATASETS)


def rejected(query: str, *parameters: Parameter) -> str:
    with pytest.raises(BadQuery) as error:
        parsed(query, *parameters)
    message = str(error.value)
    assert message.startswith("channels.c.")
    assert "\n" not in message
    return message


# Accepted queries


def test_star_excludes_hidden_columns() -> None:
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


def test_hidden_columns_can_be_selected() -> None:
    assert parsed("SELECT e._seq, e._at, e._page.id AS page FROM emergencies e").columns == ("_seq", "_at", "page")


def test_new_and_stored_datasets_are_distinguished() -> None:
    body = parsed("SELECT a.id, b.id AS other FROM emergencies a, stored.emergencies b, shelters s")
    assert body.stored == {"emergencies", "shelters"}
    assert "`new`.`emergencies` AS `a`" in write_sql(body.tree)
    assert "`stored`.`emergencies` AS `b`" in write_sql(body.tree)


def test_names_in_lateral_query_are_resolved() -> None:
    for alias, column in (("t", "name"), ("t(x)", "x")):
        lateral = f"LATERAL (SELECT s.name FROM shelters s WHERE s.lat > e.lat) AS {alias}"
        body = parsed(f"SELECT e.id, t.{column} FROM emergencies e, {lateral}")
        assert body.stored == {"shelters"}
        assert "`stored`.`shelters` AS `s`" in write_sql(body.tree)


def test_order_by_column_with_a_space() -> None:
    body = parsed("SELECT lat AS `to the north` FROM emergencies ORDER BY `to the north` DESC")
    text = evaluation_sql(body, Views("new", {}, "subscribed"))
    assert "`to the north` AS __k0" in text
    assert "ORDER BY __k0 DESC NULLS LAST, __publication" in text


def test_name_of_common_table_expression_is_not_a_dataset() -> None:
    body = parsed("WITH shelters AS (SELECT id FROM emergencies) SELECT id FROM shelters")
    assert body.stored == set()


def test_markers_in_strings_and_comments_are_text() -> None:
    body = parsed("SELECT id, ':kind' AS a FROM emergencies -- WHERE kind = :other\n/* :third */")
    assert body.columns == ("id", "a")


def test_comments_and_hints_are_removed() -> None:
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
def test_function_names_are_unchanged(query: str) -> None:
    text = write_sql(parsed(query).tree)
    for word in ("regexp_extract", "to_timestamp", "nvl", "dateadd", "timestampdiff", "explode"):
        assert (f"{word}(" in query) == (f"{word}(" in text)


def test_doubled_quotes_in_string_are_one_quote() -> None:
    assert "'it\\'s'" in write_sql(parsed("SELECT 'it''s' AS a FROM emergencies").tree)


# Rejected queries


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "empty"),
        ("SELECT id FROM emergencies; SELECT 1", "2 statements"),
        ("DROP TABLE emergencies", "'DROP': a channel's query is one SELECT"),
        ("INSERT INTO emergencies SELECT 1", "one SELECT"),
        ("SET spark.x = 1", "one SELECT"),
        ("SELECT id FROM emergencies WHERE (id = 1", "line 1, column"),
        ("SELECT 'x FROM emergencies", "is not terminated"),
        ("SELECT id FROM parquet.`/etc/passwd`", "no dataset 'parquet./etc/passwd'"),
        ("SELECT id FROM spark_catalog.default.emergencies", "no dataset"),
        ("SELECT id FROM global_temp.emergencies", "no dataset"),
        ("SELECT id FROM emergency", "did you mean 'emergencies'?"),
        ("SELECT id FROM emergencies, range(10)", "'range' is not allowed in FROM"),
        ("SELECT id FROM identifier('emergencies')", "'identifier' is rejected"),
        ("SELECT TRANSFORM(id) USING 'cat' FROM emergencies", "TRANSFORM"),
        ("SELECT java_method('java.lang.System', 'exit', 1) AS x FROM emergencies", "reads data outside"),
        ("SELECT reflect('java.lang.System', 'getenv') AS x FROM emergencies", "reads data outside"),
        ("SELECT `reflect`('java.lang.System', 'getenv') AS x FROM emergencies", "reads data outside"),
        ("SELECT input_file_name() AS x FROM emergencies", "reads data outside"),
        ("SELECT from_protobuf(id, 'M', '/etc/passwd') AS x FROM emergencies", "reads data outside"),
        ("SELECT rand() AS x FROM emergencies", "deterministic"),
        ("SELECT system.builtin.reflect('a', 'b') AS x FROM emergencies", "plain names"),
        ("SELECT '${env:HOME}' AS x FROM emergencies", "'${' is not allowed"),
        ("SELECT id FROM emergencies VERSION AS OF 1", "AS OF"),
        ("SELECT id FROM emergencies TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT id INTO other FROM emergencies", "INTO"),
        ("SELECT id FROM emergencies WHERE id = ?", "'?' has no name"),
        ("SELECT id FROM emergencies WHERE kind = :kid", ":kid is not declared"),
        ("SELECT id FROM stored.emergencies", "does not read its new dataset 'emergencies' outside of 'stored.'"),
        ("SELECT name FROM shelters", "does not read its new dataset"),
        (
            "SELECT idd FROM emergencies",
            "line 1, column 10: no column 'idd' in dataset 'emergencies'; did you mean 'id'?",
        ),
        ("SELECT e.idd FROM emergencies e", "no column 'idd'"),
        ("SELECT lat FROM emergencies e, shelters s", "'lat' is ambiguous: e.lat or s.lat"),
        ("SELECT upper(id) FROM emergencies", "column 1 of SELECT has no name"),
        ("SELECT id, kind AS ID FROM emergencies", "two columns have the name 'ID'"),
        ("SELECT * FROM emergencies, shelters", "two columns have the name 'lat'"),
        ("SELECT id AS __stream FROM emergencies", "two underscores"),
        ("SELECT array(1)[0] AS a FROM emergencies", "is not supported"),
        ("SELECT distance_km(lat, lon) AS d FROM emergencies", "takes (lat1, lon1, lat2, lon2)"),
        ("SELECT id FROM emergencies LIMIT 1 + 1", "whole number"),
        ("SELECT id FROM emergencies NATURAL JOIN shelters", "after ON"),
    ],
)
def test_query_rejected_with_one_line(query: str, message: str) -> None:
    assert message in rejected(query)


@pytest.mark.parametrize("name", REJECTED)
def test_rejected_function_has_alternative(name: str) -> None:
    message = rejected(f"SELECT `{name}`(id) AS x FROM emergencies")
    assert re.search(r"; (there is no alternative|(write|publish|decode|compute) .+)$", message)


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
def test_rejected_construct_has_alternative(query: str, instead: str) -> None:
    assert instead in rejected(query).partition("; ")[2]


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
def test_alternatives_are_accepted(query: str) -> None:
    assert parsed(query).columns


def test_query_over_stored_records_only_rejected_without_new() -> None:
    with pytest.raises(BadApp, match=r"write emergencies instead of stored\.emergencies"):
        parse_channel("x", {"query": "SELECT id FROM stored.emergencies"}, DATASETS, {})


def test_parameter_rejected_when_unused() -> None:
    assert (
        rejected("SELECT id FROM emergencies", *KIND) == "channels.c.parameters.kind: the query does not use :kind"
    )


def test_inner_limit_rejected_with_parameter() -> None:
    query = "SELECT id FROM (SELECT id FROM emergencies WHERE kind = :kind LIMIT 3)"
    assert "put it at the end of the query" in rejected(query, *KIND)


@given(st.text(alphabet="SELECT *FROMemrgncis,()'`:\"${}/-;\n\\1", max_size=40))
def test_text_is_accepted_or_rejected_with_one_line(text: str) -> None:
    message = ""
    try:
        parsed(text)
    except BadQuery as error:
        message = str(error)
    assert "\n" not in message


# Channels


def test_channel_round_trips_through_its_table() -> None:
    table: dict[str, object] = {
        "query": "SELECT id FROM emergencies WHERE kind = :kind",
        "parameters": {"kind": "string"},
        "period": "10s",
        "retention": {"age": "7d", "count": 1000},
    }
    channel = parse_channel("x", table, DATASETS, {"delivery": "push"})
    assert channel == ChannelDefinition(
        "x", str(table["query"]), "emergencies", KIND, 10.0, "push", Retention(7 * 86_400.0, 1000)
    )
    assert parse_channel("x", channel_table(channel), DATASETS, {}) == channel
    assert parse_channel("x", table, DATASETS, {}).delivery == "auto"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "channels.x.query: must be one SELECT"),
        ({"query": "SELECT name FROM shelters"}, "channels.x.new: name the new dataset"),
        ({"query": "SELECT id FROM emergencies", "new": "other"}, "channels.x.new: no dataset 'other'"),
        ({"query": "SELECT id FROM emergencies", "perod": 1}, "channels.x.perod: unknown option"),
        ({"query": "SELECT id FROM emergencies", "period": "soon"}, "channels.x.period: must be"),
        ({"query": "SELECT id FROM emergencies", "delivery": "mail"}, "channels.x.delivery"),
        ({"query": "SELECT id FROM emergencies", "retention": {"count": 0}}, "channels.x.retention.count"),
        ({"query": "SELECT id FROM emergencies", "parameters": {"at": "timestamp"}}, "channels.x.parameters.at"),
    ],
)
def test_channel_rejected_with_place(table: dict[str, object], message: str) -> None:
    with pytest.raises(BadApp) as error:
        parse_channel("x", table, DATASETS, {})
    assert str(error.value).startswith(message)


def test_datasets_read_returns_table_names() -> None:
    assert datasets_read("SELECT 1 FROM a, stored.b, (SELECT 1 FROM C)", "here") == {"a", "c"}


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
def test_nested_join_hides_no_table(query: str) -> None:
    assert rejected(query)


@pytest.mark.parametrize("call", ["from_xml(e.id, 'a string')", "schema_of_xml('<a/>')"])
def test_xml_functions_rejected(call: str) -> None:
    assert "is rejected" in rejected(f"SELECT {call} AS x FROM emergencies e")


def test_query_rejected_when_dataset_is_unknown() -> None:
    datasets = {"reports": Dataset("reports", (Field("id", "string"),))}
    with pytest.raises(BadApp, match=r"channels\.near\.query: no dataset 'report'; did you mean 'reports'\?"):
        parse_channel("near", {"query": "SELECT r.id FROM report r"}, datasets, {})
    with pytest.raises(BadApp, match=r"channels\.near\.new: name the new dataset"):
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
def test_query_rejected_with_position_when_nested_too_deep(form: str) -> None:
    for depth in (MAX_DEPTH + 1, 200, 20_000):
        message = rejected(DEEP[form](depth))
        assert re.search(rf"query: line 1, column \d+: nested more than {MAX_DEPTH} deep; w", message), message
    parsed(DEEP[form](MAX_DEPTH - 2))


@pytest.mark.parametrize("form", CHAINS)
def test_chain_rejected_when_too_long(form: str) -> None:
    for length in (400, 1000, 5000):
        assert "nested too deep" in rejected(CHAINS[form](length))


def test_tokenizer_recursion_rejected_as_too_deep() -> None:
    """The stack may end while a type is read in the middle of writing a query."""
    with pytest.raises(BadQuery, match="nested too deep"), not_too_deep("query"):
        raise TokenError("Error tokenizing 'floa'") from RecursionError()
    with pytest.raises(TokenError), not_too_deep("query"):
        raise TokenError("Error tokenizing 'floa'")


def test_long_condition_accepted() -> None:
    parsed("SELECT e.id FROM emergencies e WHERE " + " OR ".join(f"e.id = '{n}'" for n in range(1000)))


def test_long_conjunction_is_evaluated_or_rejected_as_too_deep() -> None:
    views = Views("new", {}, "subscribed")
    for length in (100, 1000, 3000):
        condition = " AND ".join(["e.lat > 0"] * length)
        try:
            written = evaluation_sql(parsed(f"SELECT e.id FROM emergencies e WHERE {condition}"), views)
        except BadQuery as error:
            written = str(error)
        found = written.count("> 0") == length
        assert found if length == 100 else found or "nested too deep" in written


@pytest.mark.parametrize("where", ["GROUP BY window(_at, '10 seconds')", "GROUP BY e.id, window(e._at, '1 hour')"])
def test_window_function_in_group_by_rejected_with_alternative(where: str) -> None:
    assert "function 'window' is rejected" in rejected(f"SELECT count(*) AS n FROM emergencies e {where}")


def test_named_window_accepted() -> None:
    parsed("SELECT e.id, row_number() OVER w AS n FROM emergencies e WINDOW w AS (ORDER BY e._seq)")
