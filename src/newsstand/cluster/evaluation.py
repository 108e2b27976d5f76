"""A channel's body for one set of values becomes a query for all of them: its rows, each with its stream.

Where it can, the table of values joins the body's own FROM ("flat"): the new dataset is broadcast to it, groups,
windows and duplicates are taken per stream. A body with parameters in inner queries, outer joins to the right or
aggregates without groups is put behind LATERAL as it is, and Spark decorrelates it. ORDER BY and LIMIT at the end
of the body hold per stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from newsstand.cluster.body import Body
from newsstand.cluster.cells import add_cells
from newsstand.cluster.columns import NEW, STORED
from newsstand.cluster.dialect import write_sql
from newsstand.cluster.flat import (
    JOINED,
    PAGE,
    PUBLICATION,
    SIZE,
    STREAM,
    VALUES,
    append_ours,
    fill_markers,
    flat,
    provenance,
    values_source,
)
from newsstand.errors import BadQuery

_JSON = (
    """MAP('ignoreNullFields', 'false', 'timeZone', 'UTC', 'timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX")"""
)


@dataclass(frozen=True)
class Views:
    """Names under which Spark finds the data: the new dataset, the stored ones, the values."""

    new: str
    stored: Mapping[str, str]
    values: str


def evaluation_sql(body: Body, views: Views, broadcast_new: bool = True, as_json: bool = True) -> str:
    """The query whose rows are those of `results.MATCHED`; without `as_json` the payload is left a struct."""
    query = body.tree.copy()
    keys, hidden = _order(body, query)
    amount, skipped = _taken(query, "limit"), _taken(query, "offset")
    inner = flat(query.copy(), body, hidden, True, broadcast_new) or _lateral(query, body, hidden)
    _name_views(inner, views)
    return _results(body, write_sql(inner), keys, amount, skipped, as_json)


def _results(
    body: Body, inner: str, keys: Sequence[str], amount: int | None, skipped: int | None, as_json: bool
) -> str:
    columns = f"STRUCT({', '.join(_quoted(column) for column in body.columns)})"
    value = f"TO_JSON({columns}, {_JSON})" if as_json else columns
    given = f"{STREAM}, {PUBLICATION}, {PAGE}, {SIZE}"
    sorting = "".join(f", __k{number}" for number in range(len(keys)))
    named = "".join(f", {_sortable(key)[0]} AS __k{number}" for number, key in enumerate(keys))
    payload = f"SELECT {given}{named}, {value} AS payload FROM ({inner})"
    ordinal = "CAST(0 AS BIGINT)"
    where = ""
    if keys or amount is not None or skipped is not None:
        order = ", ".join(f"__k{number}{_sortable(key)[1]}" for number, key in enumerate(keys))
        order += ", " if order else ""
        row = f"ROW_NUMBER() OVER (PARTITION BY {STREAM} ORDER BY {order}{PUBLICATION}, payload)"
        payload = f"SELECT {given}{sorting}, payload, CAST({row} AS BIGINT) AS __row FROM ({payload})"
        ordinal = "__row" if keys else ordinal
        bounds = [f"__row > {skipped}"] if skipped else []
        bounds += [f"__row <= {(skipped or 0) + amount}"] if amount is not None else []
        where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    return (
        f"SELECT {STREAM} AS stream, {PUBLICATION} AS publication, {PAGE} AS page_id, {SIZE} AS page_size, "
        f"{ordinal} AS ordinal, payload FROM ({payload}){where}"
    )


def _sortable(key: str) -> tuple[str, str]:
    """An order key's column, and its direction."""
    name, _, direction = key.partition(" ")
    return name, f" {direction}" if direction else ""


def _order(body: Body, query: exp.Query) -> tuple[list[str], list[exp.Expr]]:
    """Take ORDER BY off: the columns to sort by with their directions, and those that are added for it."""
    order = query.args.get("order")
    if order is None:
        return [], []
    order.pop()
    keys: list[str] = []
    hidden: list[exp.Expr] = []
    outputs = {column.lower(): column for column in body.columns}
    plain = isinstance(query, exp.Select) and not query.args.get("distinct")
    for item in order.expressions:
        key = item.this
        name = None
        if isinstance(key, exp.Literal) and key.is_int and 0 < int(key.this) <= len(body.columns):
            name = body.columns[int(key.this) - 1]
        elif isinstance(key, exp.Column) and not key.table and key.name.lower() in outputs:
            name = outputs[key.name.lower()]
        elif isinstance(query, exp.Select):
            same = (one for one in query.expressions if one.unalias() == key)
            name = next((one.alias_or_name for one in same if one.alias_or_name), None)
        if name is None and not plain:
            raise BadQuery(f"channels.{body.channel.name}.query: ORDER BY can only name columns of this SELECT")
        if name is None:
            name = f"__o{len(hidden)}"
            hidden.append(exp.alias_(key.copy(), name))
        direction = "DESC" if item.args.get("desc") else "ASC"
        nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
        keys.append(f"{_quoted(name)} {direction} NULLS {nulls}")
    return keys, hidden


def _taken(query: exp.Query, what: str) -> int | None:
    node = query.args.get(what)
    return int(node.pop().expression.this) if node is not None else None


def _lateral(query: exp.Query, body: Body, hidden: Sequence[exp.Expr]) -> exp.Select:
    traced = isinstance(query, exp.Select)
    if isinstance(query, exp.Select):
        append_ours(query, True, hidden)
    fill_markers(query)
    add_cells(query, VALUES)
    lateral = exp.Lateral(
        this=exp.Subquery(this=query),
        view=False,
        outer=False,
        alias=exp.TableAlias(this=exp.to_identifier(JOINED)),
    )
    outer = exp.select(exp.column(STREAM, table=VALUES))
    unknown = [] if traced else provenance(None, False)
    outer.set("expressions", [*outer.expressions, *unknown, exp.Column(this=exp.Star(), table=JOINED)])
    outer.set("from_", exp.From(this=values_source(body)))
    outer.set("joins", [exp.Join(this=lateral, kind="CROSS")])
    return outer


def _name_views(tree: exp.Expr, views: Views) -> None:
    for table in tree.find_all(exp.Table):
        if table.db == VALUES:
            name = views.values
        elif table.db == NEW:
            name = views.new
        elif table.db == STORED:
            name = views.stored[table.name]
        else:
            continue
        table.set("db", exp.to_identifier("global_temp"))
        table.set("this", exp.to_identifier(name, quoted=True))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
