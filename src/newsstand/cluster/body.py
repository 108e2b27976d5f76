"""The body of a channel: one SELECT over datasets, checked as a tree, which is also what runs.

`parse_body` needs no Spark. It lets through queries over declared datasets alone: no files, no catalogs, no
statements but SELECT, no functions that reach outside. Values never become text of the query: a `:parameter` stays
a marker in the tree until `evaluation` makes it a column.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from newsstand.cluster.channels import channel_table, query_of, read_channel
from newsstand.cluster.columns import NEW, STORED, Naming, inline_common, name_columns
from newsstand.cluster.dialect import not_too_deep, read_query, write_sql
from newsstand.cluster.functions import DISTANCE, REFUSED
from newsstand.errors import BadApp, BadQuery
from newsstand.model import Channel, Dataset
from newsstand.values import parse_values

__all__ = ["Body", "channel_table", "datasets_read", "parse_body", "parse_channel", "parse_values"]

_REFUSED_NODES: dict[type, tuple[str, str]] = {
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
"""What is refused, its name, and what to write instead."""


@dataclass(frozen=True)
class Body:
    """A channel's query that was checked."""

    channel: Channel
    tree: exp.Query
    """Datasets are `new.NAME` and `stored.NAME`, markers are placeholders. Not to be changed: copy it."""
    columns: tuple[str, ...]
    """The names of what it gives, in order."""
    stored: frozenset[str]
    """The datasets of which it reads all stored records."""
    functions: frozenset[str]
    """The functions that it calls, in lower case."""


def parse_body(channel: Channel, datasets: Mapping[str, Dataset]) -> Body:
    """Check a channel's query against the datasets; BadQuery is one line that says what and where."""
    place = f"channels.{channel.name}.query"
    with not_too_deep(place):
        return _checked(channel, datasets, place)


def _checked(channel: Channel, datasets: Mapping[str, Dataset], place: str) -> Body:
    if channel.new not in datasets:
        raise BadQuery(f"channels.{channel.name}.new: no dataset '{channel.new}'")
    tree = read_query(channel.query, place)
    while isinstance(tree, exp.Subquery):
        if any(tree.args.get(part) for part in ("order", "limit", "offset", "alias", "with_")):
            raise BadQuery(f"{place}: the whole query stands in parentheses: take them away")
        tree = tree.this
    naming = Naming(datasets, channel.new, place)
    for hint in list(tree.find_all(exp.Hint)):
        hint.pop()  # how a query is executed is for the cluster to say
    _check_nodes(tree, naming)
    _check_markers(tree, channel, naming)
    columns = name_columns(tree, naming)
    inline_common(tree)
    _check_columns(columns, place)
    _check_order(tree, naming)
    assert columns is not None
    tables = list(tree.find_all(exp.Table))
    for table in tables:
        if not isinstance(table.this, exp.Func) and (table.db not in (NEW, STORED) or table.name not in datasets):
            raise naming.refuse(table, f"'{table.sql()}' is no dataset")
    for column in tree.find_all(exp.Column):
        if not column.table and column.name.lower() in REFUSED:
            raise naming.refuse(column, f"'{column.name}' is refused: {REFUSED[column.name.lower()]}")
    if not any(table.db == NEW for table in tables):
        if any(table.name == channel.new for table in tables):
            but = f" outside of '{STORED}.'"
            instead = f"write FROM {channel.new}, and join {STORED}.{channel.new} to it if earlier records matter"
        else:
            but, instead = "", f"write FROM {channel.new}, or name another dataset in 'new'"
        raise BadQuery(f"{place}: its new dataset '{channel.new}' is not read{but}; {instead}")
    stored = frozenset(table.name for table in tables if table.db == STORED)
    write_sql(tree)  # what is read without recursion, such as a[0][0]…, may be too deep to be written
    return Body(channel, tree, columns, stored, frozenset(name for _, name in _calls(tree)))


def parse_channel(
    name: str, table: Mapping[str, object], datasets: Mapping[str, Dataset], defaults: Mapping[str, object]
) -> Channel:
    """A channel out of its table in TOML or JSON, its query checked; `defaults` has what the table leaves out."""
    new = table.get("new")
    if new is None:
        new = _only_new(name, query_of(name, table), datasets)
    elif not isinstance(new, str) or new not in datasets:
        raise BadApp(f"channels.{name}.new: no dataset {new!r}; there are: {', '.join(datasets) or 'none'}")
    channel = read_channel(name, table, new, defaults)
    parse_body(channel, datasets)
    return channel


def datasets_read(query: str, place: str) -> frozenset[str]:
    """The names in a query, outside of `stored.`, that may be datasets."""
    tree = read_query(query, place)
    return frozenset(table.name.lower() for table in tree.find_all(exp.Table) if not table.db)


def _named_inside(name: str, query: str) -> frozenset[str]:
    """The names that a query gives to queries of its own, with WITH."""
    return frozenset(one.alias.lower() for one in read_query(query, f"channels.{name}.query").find_all(exp.CTE))


def _only_stored(name: str, query: str, datasets: Mapping[str, Dataset]) -> str:
    """An append dataset that a query reads as stored."""
    tables = read_query(query, f"channels.{name}.query").find_all(exp.Table)
    stored = {table.name.lower() for table in tables if table.db == STORED}
    return min((one for one in stored if one in datasets and not datasets[one].keyed), default="")


def _only_new(name: str, query: str, datasets: Mapping[str, Dataset]) -> str:
    """The one append dataset that a query reads, where it is clear."""
    read = datasets_read(query, f"channels.{name}.query")
    known = sorted(one for one in read if one in datasets and not datasets[one].keyed)
    if not known and (absent := sorted(read - datasets.keys() - _named_inside(name, query))):
        hint = f"there are: {', '.join(datasets) or 'none'}"
        if close := difflib.get_close_matches(absent[0], datasets, 1):
            hint = f"did you mean '{close[0]}'?"
        raise BadApp(f"channels.{name}.query: no dataset '{absent[0]}'; {hint}")
    if not known and (only := _only_stored(name, query, datasets)):
        raise BadApp(
            f"channels.{name}.query: reads {STORED}.{only} alone; a channel needs a dataset of which it "
            f"sees what is new: write {only} instead of {STORED}.{only}, or join {STORED}.{only} with it"
        )
    if len(known) != 1:
        why = f"reads no append dataset outside of '{STORED}.'" if not known else f"reads {' and '.join(known)}"
        raise BadApp(f"channels.{name}.new: say which dataset is the new one; the query {why}")
    return known[0]


def _calls(tree: exp.Expr) -> list[tuple[exp.Func, str]]:
    calls: list[tuple[exp.Func, str]] = []
    for call in tree.find_all(exp.Func):
        if isinstance(call, exp.Anonymous):
            calls.append((call, call.name.lower()))
        elif not isinstance(call, exp.Connector | exp.Binary):
            calls.append((call, call.sql_name().lower()))
    return calls


def _check_nodes(tree: exp.Expr, naming: Naming) -> None:
    for node in tree.walk():
        for refused, (name, instead) in _REFUSED_NODES.items():
            if isinstance(node, refused):
                raise naming.refuse(node, f"{name} cannot stand in a channel's query; {instead}")
        if isinstance(node, exp.Table) and (node.args.get("version") or node.args.get("when")):
            name, instead = _REFUSED_NODES[exp.Version]
            raise naming.refuse(node, f"{name} cannot stand in a channel's query; {instead}")
        if isinstance(node, exp.With) and node.args.get("recursive"):
            raise naming.refuse(
                node, "WITH RECURSIVE cannot stand in a channel's query; write one join for each step"
            )
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
            called = node.expression.name or node.expression.sql_name()
            raise naming.refuse(node, f"functions are called by their plain names; write {called}(…)")
        if node.args.get("joins") and not isinstance(node, exp.Select):
            raise naming.refuse(node, "a join inside of another: write one join after the other")
        if isinstance(node, exp.Join) and node.args.get("method"):
            raise naming.refuse(node, f"{node.args['method']} JOIN: write the condition after ON")
    for call, name in _calls(tree):
        if name in REFUSED:
            raise naming.refuse(call, f"function '{name}' is refused: {REFUSED[name]}")
        if name == DISTANCE and len(call.expressions) != 4:
            raise naming.refuse(call, f"{DISTANCE} takes (lat1, lon1, lat2, lon2)")


def _check_markers(tree: exp.Expr, channel: Channel, naming: Naming) -> None:
    declared = [parameter.name for parameter in channel.parameters]
    used = set()
    for marker in tree.find_all(exp.Placeholder):
        if not isinstance(marker.this, str):
            raise BadQuery(f"{naming.place}: '?' has no name: write :name and declare it in parameters")
        if marker.this not in declared:
            known = ", ".join(f":{name}" for name in declared) or "none"
            raise BadQuery(f"{naming.place}: :{marker.this} is not declared in parameters ({known})")
        used.add(marker.this)
    for name in declared:
        if name not in used:
            raise BadQuery(f"channels.{channel.name}.parameters.{name}: the query does not use :{name}")


def _check_columns(columns: tuple[str, ...] | None, place: str) -> None:
    if not columns:
        raise BadQuery(f"{place}: it selects nothing")
    seen: set[str] = set()
    for number, column in enumerate(columns, 1):
        if not column:
            raise BadQuery(f"{place}: column {number} of SELECT has no name: add AS and a name")
        if column.lower() in seen:
            raise BadQuery(f"{place}: two columns are called '{column}': give one another name with AS")
        if column.startswith("__"):
            raise BadQuery(f"{place}: column '{column}': names that begin with two underscores are taken")
        seen.add(column.lower())


def _check_order(tree: exp.Query, naming: Naming) -> None:
    """LIMIT belongs to each stream: outside that is seen to, inside of a query with markers Spark would not."""
    for query in tree.find_all(exp.Query):
        limits = [node for node in (query.args.get("limit"), query.args.get("offset")) if node is not None]
        for limit in limits:
            if not (isinstance(limit.expression, exp.Literal) and limit.expression.is_int):
                raise naming.refuse(limit, "LIMIT and OFFSET take a whole number")
        if limits and query is not tree and query.find(exp.Placeholder) is not None:
            raise naming.refuse(query, "LIMIT in an inner query that uses a parameter: put it at the query's end")
