"""Channels: their declaration in an app, and their query, one SELECT over datasets that is checked as a tree.

`parse_body` needs no Spark. It accepts queries over declared datasets only: no files, no catalogs, no statement
but SELECT, no functions that read data outside of the datasets. Values never become text of the query: a
`:parameter` stays a marker in the tree until `rewrite` replaces it by a column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar, get_args

from sqlglot import exp

from newsstand.cluster.ingest.schema import require_name
from newsstand.cluster.query.dialect import DISTANCE, REJECTED, not_too_deep, read_query, write_sql
from newsstand.cluster.query.name_resolution import (
    NEW,
    STORED,
    NameContext,
    did_you_mean,
    inline_common,
    name_columns,
)
from newsstand.config.types import duration_s, whole_number
from newsstand.errors import BadApp, BadOption, BadQuery
from newsstand.model import CLAIMS, SCALARS, ChannelDefinition, Dataset, DeliveryMode, Parameter, Retention

PARAMETER_TYPES = tuple(type for type in SCALARS if type != "timestamp")
Number = TypeVar("Number", int, float)
_OPTIONS = ("query", "new", "parameters", "period", "delivery", "retention", "bind")


def parse_channel(
    name: str, table: Mapping[str, object], datasets: Mapping[str, Dataset], defaults: Mapping[str, object]
) -> ChannelDefinition:
    """Return the channel of a table in TOML or JSON, with its query checked; `defaults` has missing options.

    `{query = "SELECT …", parameters = {kind = "string"}, period = "10s"}`; without `period` it is continuous.
    """
    place = f"channels.{name}"
    require_name(place, name)
    for option in table:
        if option not in _OPTIONS:
            raise BadApp(f"{place}.{option}: unknown option; one of {', '.join(_OPTIONS)}")
    query, new = table.get("query"), table.get("new")
    if not isinstance(query, str) or not query.strip():
        raise BadApp(f"{place}.query: must be one SELECT over datasets")
    if new is None:
        new = _only_new(name, query, datasets)
    elif not isinstance(new, str) or new not in datasets:
        raise BadApp(f"{place}.new: no dataset {new!r}; there are: {', '.join(datasets) or 'none'}")
    parameters = _parameters(place, table.get("parameters", {}))
    bind = _bind(f"{place}.bind", table.get("bind", {}), {one.name: one.type for one in parameters})
    options = {**defaults, **table}
    period_s = _at(f"{place}.period", duration_s, options["period"]) if "period" in options else None
    delivery, retention = _delivery(place, options)
    channel = ChannelDefinition(name, query, new, parameters, period_s, delivery, retention, bind)
    parse_body(channel, datasets)
    return channel


def require_defaults(defaults: Mapping[str, object]) -> None:
    """Raise BadApp unless these are valid defaults of channels."""
    _delivery("defaults", defaults)


def channel_table(channel: ChannelDefinition) -> dict[str, object]:
    """Return the table of which `parse_channel` makes the channel."""
    table: dict[str, object] = {"query": channel.query, "new": channel.new}
    if channel.parameters:
        table["parameters"] = {one.name: one.type for one in channel.parameters}
    if channel.period_s is not None:
        table["period"] = channel.period_s
    table["delivery"] = channel.delivery
    retention = {"age": channel.retention.age_s, "count": channel.retention.count}
    table["retention"] = {what: limit for what, limit in retention.items() if limit is not None}
    if channel.bind:
        table["bind"] = dict(channel.bind)
    return table


def _parameters(place: str, declared: object) -> tuple[Parameter, ...]:
    if not isinstance(declared, Mapping):
        raise BadApp(f'{place}.parameters: must be a table such as {{kind = "string"}}')
    for name, kind in declared.items():
        require_name(f"{place}.parameters.{name}", name)
        if kind not in PARAMETER_TYPES:
            raise BadApp(f"{place}.parameters.{name}: unknown type {kind!r}; one of {', '.join(PARAMETER_TYPES)}")
    return tuple(Parameter(name, kind) for name, kind in declared.items())


def _bind(place: str, declared: object, parameters: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if not isinstance(declared, Mapping):
        raise BadApp(f'{place}: must be a table such as {{user = "subscriber"}}')
    for name, claim in declared.items():
        if name not in parameters:
            raise BadApp(f"{place}.{name}: no such parameter; the channel has: {', '.join(parameters) or 'none'}")
        if claim not in CLAIMS:
            raise BadApp(f"{place}.{name}: unknown claim {claim!r}; one of {', '.join(CLAIMS)}")
        if parameters[name] != "string":
            raise BadApp(f"{place}.{name}: the parameter is of type {parameters[name]}; a claim is a string")
    return tuple(sorted(declared.items()))


def _delivery(place: str, options: Mapping[str, object]) -> tuple[DeliveryMode, Retention]:
    """Return what notifications carry, and how long results are kept."""
    chosen, declared = options.get("delivery", ChannelDefinition.delivery), options.get("retention", {})
    delivery = next((one for one in get_args(DeliveryMode) if one == chosen), None)
    if delivery is None:
        raise BadApp(f"{place}.delivery: {chosen!r} is not one of {', '.join(get_args(DeliveryMode))}")
    place = f"{place}.retention"
    if not isinstance(declared, Mapping) or not declared.keys() <= {"age", "count"}:
        raise BadApp(f'{place}: must be a table such as {{age = "7d", count = 1000}}')
    age = _at(f"{place}.age", duration_s, declared["age"]) if "age" in declared else None
    count = None
    if "count" in declared:
        count = _at(f"{place}.count", lambda value: whole_number(value, 1, 2**53), declared["count"])
    return delivery, Retention(age, count)


def _at(place: str, read: Callable[[object], Number], value: object) -> Number:
    try:
        return read(value)
    except BadOption as error:
        raise BadApp(f"{place}: {error}") from None


_REJECTED_NODES: dict[type, tuple[str, str]] = {
    exp.Into: ("INTO", "leave it out: the rows of the query are the results"),
    exp.Parameter: ("a variable", "write :name and declare it in parameters"),
    exp.SessionParameter: ("a variable", "write :name and declare it in parameters"),
    exp.QueryTransform: ("TRANSFORM … USING", "call functions of Spark, or compute the value before you publish"),
    exp.TableSample: ("TABLESAMPLE", "write WHERE pmod(hash(_seq), 10) = 0 for a tenth of the records"),
    exp.Pivot: (
        "PIVOT",
        "write one aggregate for each column, such as count(*) FILTER (WHERE kind = 'fire') AS fire; "
        "for UNPIVOT write LATERAL VIEW stack(…)",
    ),
    exp.Version: ("VERSION or TIMESTAMP AS OF", "write a condition on _seq or _at"),
    exp.MatchRecognize: ("MATCH_RECOGNIZE", "write lag(…) OVER (ORDER BY _seq) and compare neighbours"),
    exp.Cluster: ("CLUSTER BY", "write ORDER BY at the query's end"),
    exp.Distribute: ("DISTRIBUTE BY", "leave it out: the cluster distributes the records"),
    exp.Sort: ("SORT BY", "write ORDER BY at the query's end"),
    exp.Qualify: ("QUALIFY", "put the window function into an inner query, and write WHERE around it"),
    exp.Command: ("a command", "write one SELECT"),
    exp.DDL: ("a statement that is no SELECT", "write one SELECT"),
    exp.DML: ("a statement that is no SELECT", "write one SELECT"),
}
"""The rejected nodes: their names, and the alternatives."""


@dataclass(frozen=True)
class Body:
    """The query of a channel as a tree, checked against the datasets."""

    channel: ChannelDefinition
    tree: exp.Query
    """Datasets are `new.NAME` and `stored.NAME`, markers are placeholders. Copy it before changing it."""
    columns: tuple[str, ...]
    """The names of the output columns, in order."""
    stored: frozenset[str]
    """The datasets of which it reads all stored records."""
    functions: frozenset[str]
    """The functions that it calls, in lower case."""


def parse_body(channel: ChannelDefinition, datasets: Mapping[str, Dataset]) -> Body:
    """Check a channel's query against the datasets; raise BadQuery with one line."""
    place = f"channels.{channel.name}.query"
    with not_too_deep(place):
        return _checked(channel, datasets, place)


def _checked(channel: ChannelDefinition, datasets: Mapping[str, Dataset], place: str) -> Body:
    if channel.new not in datasets:
        raise BadQuery(f"channels.{channel.name}.new: no dataset '{channel.new}'")
    tree = read_query(channel.query, place)
    while isinstance(tree, exp.Subquery):
        if any(tree.args.get(part) for part in ("order", "limit", "offset", "alias", "with_")):
            raise BadQuery(f"{place}: remove the parentheses around the query")
        tree = tree.this
    context = NameContext(datasets, channel.new, place)
    for hint in list(tree.find_all(exp.Hint)):
        hint.pop()  # the cluster decides how to execute a query
    _check_nodes(tree, context)
    _check_markers(tree, channel, context)
    columns = name_columns(tree, context)
    inline_common(tree)
    _check_columns(columns, place)
    _check_order(tree, context)
    assert columns is not None
    tables = list(tree.find_all(exp.Table))
    for table in tables:
        if not isinstance(table.this, exp.Func) and (table.db not in (NEW, STORED) or table.name not in datasets):
            raise context.error(table, f"'{table.sql()}' is not a dataset")
    for column in tree.find_all(exp.Column):
        if not column.table and column.name.lower() in REJECTED:
            raise context.error(column, f"'{column.name}' is rejected: {REJECTED[column.name.lower()]}")
    if not any(table.db == NEW for table in tables):
        if any(table.name == channel.new for table in tables):
            but = f" outside of '{STORED}.'"
            instead = f"write FROM {channel.new}, and join {STORED}.{channel.new} to it if earlier records matter"
        else:
            but, instead = "", f"write FROM {channel.new}, or name another dataset in 'new'"
        raise BadQuery(f"{place}: the query does not read its new dataset '{channel.new}'{but}; {instead}")
    stored = frozenset(table.name for table in tables if table.db == STORED)
    write_sql(tree)  # trees that are parsed without recursion, such as a[0][0]…, may be too deep to generate
    return Body(channel, tree, columns, stored, frozenset(name for _, name in _calls(tree)))


def datasets_read(query: str, place: str) -> frozenset[str]:
    """Return the names in a query, outside of `stored.`, that may be datasets."""
    tree = read_query(query, place)
    return frozenset(table.name.lower() for table in tree.find_all(exp.Table) if not table.db)


def _only_new(name: str, query: str, datasets: Mapping[str, Dataset]) -> str:
    """Return the only append dataset that a query reads; raise BadApp if it is not unique."""
    tree = read_query(query, f"channels.{name}.query")
    tables = list(tree.find_all(exp.Table))
    read = {table.name.lower() for table in tables if not table.db}
    appended = {one for one, dataset in datasets.items() if not dataset.keyed}
    known = sorted(read & appended)
    if len(known) == 1:
        return known[0]
    if known:
        raise BadApp(f"channels.{name}.new: name the new dataset; the query reads {' and '.join(known)}")
    common = {one.alias.lower() for one in tree.find_all(exp.CTE)}
    if absent := sorted(read - datasets.keys() - common):
        hint = did_you_mean(absent[0], datasets) or f"; there are: {', '.join(datasets) or 'none'}"
        raise BadApp(f"channels.{name}.query: no dataset '{absent[0]}'{hint}")
    if stored := appended & {table.name.lower() for table in tables if table.db == STORED}:
        only = min(stored)
        raise BadApp(
            f"channels.{name}.query: reads {STORED}.{only} only; a channel needs a dataset whose new records it "
            f"sees: write {only} instead of {STORED}.{only}, or join {STORED}.{only} with it"
        )
    raise BadApp(
        f"channels.{name}.new: name the new dataset; the query reads no append dataset outside of '{STORED}.'"
    )


def _calls(tree: exp.Expr) -> list[tuple[exp.Func, str]]:
    calls = [call for call in tree.find_all(exp.Func) if not isinstance(call, exp.Connector | exp.Binary)]
    return [(one, (one.name if isinstance(one, exp.Anonymous) else one.sql_name()).lower()) for one in calls]


def _check_nodes(tree: exp.Expr, context: NameContext) -> None:
    for node in tree.walk():
        versioned = isinstance(node, exp.Table) and (node.args.get("version") or node.args.get("when"))
        for rejected, (name, instead) in _REJECTED_NODES.items():
            if isinstance(node, rejected) or (versioned and rejected is exp.Version):
                raise context.error(node, f"{name} is not allowed in a channel's query; {instead}")
        if isinstance(node, exp.With) and node.args.get("recursive"):
            raise context.error(
                node, "WITH RECURSIVE is not allowed in a channel's query; write one join for each step"
            )
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
            called = node.expression.name or node.expression.sql_name()
            raise context.error(node, f"functions have plain names; write {called}(…)")
        if node.args.get("joins") and not isinstance(node, exp.Select):
            raise context.error(node, "a join inside of another is not allowed: write the joins one after another")
        if isinstance(node, exp.Join) and node.args.get("method"):
            raise context.error(node, f"{node.args['method']} JOIN: write the condition after ON")
    for call, name in _calls(tree):
        if name in REJECTED:
            raise context.error(call, f"function '{name}' is rejected: {REJECTED[name]}")
        if name == DISTANCE and len(call.expressions) != 4:
            raise context.error(call, f"{DISTANCE} takes (lat1, lon1, lat2, lon2)")


def _check_markers(tree: exp.Expr, channel: ChannelDefinition, context: NameContext) -> None:
    declared = [parameter.name for parameter in channel.parameters]
    for marker in tree.find_all(exp.Placeholder):
        if not isinstance(marker.this, str):
            raise BadQuery(f"{context.place}: '?' has no name: write :name and declare it in parameters")
        if marker.this not in declared:
            known = ", ".join(f":{name}" for name in declared) or "none"
            raise BadQuery(f"{context.place}: :{marker.this} is not declared in parameters ({known})")
    used = {marker.this for marker in tree.find_all(exp.Placeholder)}
    if unused := [name for name in declared if name not in used]:
        raise BadQuery(f"channels.{channel.name}.parameters.{unused[0]}: the query does not use :{unused[0]}")


def _check_columns(columns: tuple[str, ...] | None, place: str) -> None:
    if not columns:
        raise BadQuery(f"{place}: SELECT has no columns")
    seen: set[str] = set()
    for number, column in enumerate(columns, 1):
        if not column:
            raise BadQuery(f"{place}: column {number} of SELECT has no name: add AS and a name")
        if column.lower() in seen:
            raise BadQuery(f"{place}: two columns have the name '{column}': rename one with AS")
        if column.startswith("__"):
            raise BadQuery(f"{place}: column '{column}': names that begin with two underscores are reserved")
        seen.add(column.lower())


def _check_order(tree: exp.Query, context: NameContext) -> None:
    """Reject LIMIT in inner queries with parameters: it applies to each stream, but there to all of them."""
    for query in tree.find_all(exp.Query):
        limits = [node for node in (query.args.get("limit"), query.args.get("offset")) if node is not None]
        for limit in limits:
            if not (isinstance(limit.expression, exp.Literal) and limit.expression.is_int):
                raise context.error(limit, "LIMIT and OFFSET take a whole number")
        if limits and query is not tree and query.find(exp.Placeholder) is not None:
            raise context.error(
                query, "LIMIT is not allowed in an inner query with a parameter: put it at the end of the query"
            )
