"""Rewriting a channel's query for one list of values into a query for all of them: its rows, each with its stream.

Where possible, the table of values joins the body's own FROM (`flatten`), so that Spark can order the joins of
publications, stored records and values: the new dataset is broadcast; groups, windows and duplicates are evaluated
per stream. A body with parameters in inner queries, right outer joins or aggregates without groups is put behind
LATERAL unchanged, and Spark decorrelates it. ORDER BY and LIMIT at the end of the body apply per stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from newsstand.cluster.query.dialect import AGGREGATES, not_too_deep, read_expression, write_sql
from newsstand.cluster.query.name_resolution import NEW, STORED, from_items, own_nodes
from newsstand.cluster.query.parser import Body
from newsstand.cluster.query.spatial import add_cells, conjuncts, tables_of
from newsstand.errors import BadQuery

VALUES = "__v"
"""The alias of the table of values."""

JOINED = "__r"
"""The alias of what is joined before the values."""

Broadcast = Literal["new", "others"]
"""Which side of the joins is sent to all executors: the new publications, or the values and the stored records."""

STREAM, PUBLICATION, PAGE, SIZE = "__stream", "__publication", "__page_id", "__page_size"
"""Columns that are added to those of the body."""


def flatten(
    query: exp.Query, body: Body, hidden: Sequence[exp.Expr], with_provenance: bool, broadcast: Broadcast | None
) -> exp.Query | None:
    """Return a query with its rows for all values, and more columns; None if it cannot be flattened.

    The additional columns are the stream, the `hidden` ones, and the publication, null without `with_provenance`.
    """
    if isinstance(query, exp.Subquery):
        plain = not query.args.get("order") and not query.args.get("limit") and not query.args.get("offset")
        return flatten(query.this.copy(), body, hidden, with_provenance, broadcast) if plain else None
    if isinstance(query, exp.SetOperation):
        # Rows that are compared with each other cannot have the column of their publication.
        with_provenance = with_provenance and isinstance(query, exp.Union) and not query.args.get("distinct")
        left, right = query.args["this"], query.args["expression"]
        if query.args.get("by_name"):
            return None
        sides = [flatten(side.copy(), body, (), with_provenance, broadcast) for side in (left, right)]
        if sides[0] is None or sides[1] is None:
            return None
        left.replace(sides[0])
        right.replace(sides[1])
        return query
    assert isinstance(query, exp.Select)
    return _flat_select(query, body, hidden, with_provenance, broadcast) if _can_be_flat(query) else None


def _can_be_flat(select: exp.Select) -> bool:
    if any(select.args.get(part) for part in ("windows", "limit", "offset", "order")):
        return False
    joins = select.args.get("joins") or []
    if any(join.side not in ("", "LEFT") for join in joins) or not select.args.get("from_"):
        return False
    if any(item.find(exp.Placeholder) for item in from_items(select) if not isinstance(item, exp.Lateral)):
        return False
    group = select.args.get("group")
    if group is None:
        return not is_aggregate(select) and not select.args.get("having")
    return bool(group.expressions) and not any(value for key, value in group.args.items() if key != "expressions")


def is_aggregate(select: exp.Select) -> bool:
    """Return whether a block aggregates its rows without GROUP BY."""
    parts = [*select.expressions, *filter(None, [select.args.get("having")])]
    nodes = [node for part in parts for node in (part, *own_nodes(part)) if _is_aggregate_call(node)]
    return any(node.find_ancestor(exp.Query) is select and not _is_windowed(node) for node in nodes)


def _is_aggregate_call(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in AGGREGATES
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Any) and not isinstance(node.this, exp.Query))


def _is_windowed(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        node, parent = parent, parent.parent
    return isinstance(parent, exp.Window) and parent.this is node


def _flat_select(
    select: exp.Select, body: Body, hidden: Sequence[exp.Expr], with_provenance: bool, broadcast: Broadcast | None
) -> exp.Select:
    stream = exp.column(STREAM, table=VALUES)
    new = _new_alias(select)
    append_provenance(select, with_provenance, hidden)
    for window in [node for node in own_nodes(select) if isinstance(node, exp.Window)]:
        window.set("partition_by", [stream.copy(), *(window.args.get("partition_by") or [])])
    if select.args.get("group"):
        given = [exp.column(f"__p_{parameter.name}", table=VALUES) for parameter in body.channel.parameters]
        group = select.args["group"]
        group.set("expressions", [stream.copy(), *given, *group.expressions])
    select.append("expressions", exp.alias_(stream.copy(), STREAM))
    fill_markers(select)
    add_cells(select, VALUES)
    _join_values(select, values_source(body), new, broadcast)
    return select


def _join_values(select: exp.Select, values: exp.Subquery, new: str | None, broadcast: Broadcast | None) -> None:
    """Add the table of values to FROM, and the hint which tables to broadcast."""
    joins = select.args.get("joins") or []
    inner = all(
        not join.side and join.kind in ("", "INNER", "CROSS") and not join.args.get("using") for join in joins
    )
    of_new = [new] if new else []  # the aliases of tables with publications
    laterals = any(isinstance(item, exp.Lateral) for item in from_items(select))
    if inner and not laterals:
        of_new += _order_joins(select, values, new)
    elif inner and not any(
        item.find(exp.Column, exp.Query) and VALUES in tables_of(item) for item in from_items(select)
    ):
        parts = _predicates(select)
        free = [part for part in parts if VALUES not in tables_of(part)]
        _join_first(select, from_items(select), free, [part for part in parts if part not in free], [values])
        of_new += [JOINED]
    else:
        select.set("joins", [exp.Join(this=values, kind="CROSS"), *joins])
    if broadcast is not None:
        for block in select.find_all(exp.Select):
            here = [item.alias_or_name for item in from_items(block)]
            _hint(block, [alias for alias in here if (alias in of_new) == (broadcast == "new")])


def _hint(select: exp.Select, aliases: Sequence[str]) -> None:
    if aliases:
        names = [exp.to_identifier(alias, quoted=True) for alias in aliases]
        select.set("hint", exp.Hint(expressions=[exp.Anonymous(this="BROADCAST", expressions=names)]))


def _predicates(select: exp.Select) -> list[exp.Expr]:
    """Return the predicates of a block with inner joins only."""
    where = select.args.get("where")
    conditions = [where.this] if where else []
    conditions += [join.args["on"] for join in select.args.get("joins") or () if join.args.get("on") is not None]
    return [deep for condition in conditions for part in conjuncts(condition) for deep in conjuncts(part)]


def _order_joins(select: exp.Select, values: exp.Subquery, new: str | None) -> list[str]:
    """Choose the order of inner joins, which Spark keeps; return further aliases of tables with publications.

    Publications are joined with values first if predicates connect only these. If values are also connected with
    stored records, publications are joined with these records first, which leaves few rows for the values.
    """
    items = {item.alias_or_name: item for item in from_items(select)}
    parts = _predicates(select)
    with_values = [part for part in parts if VALUES in tables_of(part)]
    compared = {alias for part in with_values for alias in tables_of(part) if alias in items}
    if new is not None and compared - {new}:
        group = {new} | compared
        inner = [part for part in parts if part not in with_values and tables_of(part) & set(items) <= group]
        if _connected(new, group, inner):
            rest = [item for alias, item in items.items() if alias not in group]
            outer = [part for part in parts if part not in inner]
            _join_first(select, [items[alias] for alias in items if alias in group], inner, outer, [values, *rest])
            return [JOINED]
    if new is not None and (new in compared or not compared):
        first = [new]
    else:
        first = [alias for alias in items if alias in compared][:1]
    order = [*first, *(alias for alias in items if alias not in first)]
    sources: list[exp.Expr] = [items[alias] for alias in order]
    sources.insert(1 if first else 0, values)
    _set_from(select, sources, parts)
    return []


def _connected(new: str, group: set[str], parts: Sequence[exp.Expr]) -> bool:
    """Return whether equalities lead from the new dataset to every table of a group."""
    reached, before = {new}, 0
    while len(reached) > before:
        before = len(reached)
        for part in parts:
            names = tables_of(part) & group
            if isinstance(part, exp.EQ) and names & reached:
                reached |= names
    return reached == group


def _join_first(
    select: exp.Select,
    items: Sequence[exp.Expr],
    inner: Sequence[exp.Expr],
    outer: Sequence[exp.Expr],
    others: Sequence[exp.Expr],
) -> None:
    """Move items of FROM into an inner query, with the `inner` predicates, and join it with the others.

    The `outer` predicates stay, on the columns of the inner query.
    """
    query = exp.Select()
    laterals = [item.copy() for item in items if isinstance(item, exp.Lateral) and item.args.get("view")]
    tables = [item.copy() for item in items if not (isinstance(item, exp.Lateral) and item.args.get("view"))]
    moved = {item.alias_or_name for item in items}
    _set_from(query, tables, inner)
    query.set("laterals", laterals)
    select.set("laterals", None)
    _set_from(select, others, outer)
    names: dict[tuple[str, str], str] = {}
    for column in list(select.find_all(exp.Column)):
        if column.table in moved and not isinstance(column.this, exp.Star):
            name = names.setdefault((column.table, column.name.lower()), f"__{len(names)}_{column.name}")
            listed = column.parent is select and column.arg_key == "expressions"
            there = exp.column(name, table=JOINED, quoted=True)
            column.replace(exp.alias_(there, column.name, quoted=True) if listed else there)
    query.set(
        "expressions",
        [exp.alias_(exp.column(name, table=table, quoted=True), new) for (table, name), new in names.items()]
        or [exp.Literal.number(1)],
    )
    select.set("joins", [exp.Join(this=query.subquery(JOINED), kind="CROSS"), *select.args["joins"]])


def _set_from(select: exp.Select, sources: Sequence[exp.Expr], parts: Sequence[exp.Expr]) -> None:
    parts = [part.copy() for part in parts]
    select.set("from_", exp.From(this=sources[0]))
    select.set("joins", [exp.Join(this=source, kind="CROSS") for source in sources[1:]])
    select.set("where", exp.Where(this=exp.and_(*parts)) if parts else None)


def append_provenance(select: exp.Select, with_provenance: bool, hidden: Sequence[exp.Expr]) -> None:
    """Add columns after those of the body, to whose positions GROUP BY may refer."""
    select.set(
        "expressions", [*select.expressions, *provenance(select, with_provenance), *(one.copy() for one in hidden)]
    )


def provenance(select: exp.Select | None, with_provenance: bool) -> list[exp.Expr]:
    """Return the columns of the publication of a row and its page; null where they are unknown."""
    alias = None
    if select is not None and with_provenance and not any(map(select.args.get, ("group", "distinct", "having"))):
        alias = None if is_aggregate(select) else _new_alias(select)
    if alias is None:
        columns = [read_expression(f"CAST(NULL AS {type})") for type in ("BIGINT", "STRING", "BIGINT")]
    else:
        page = exp.column("_page", table=alias, quoted=True)
        parts = [exp.Dot(this=page.copy(), expression=exp.to_identifier(part)) for part in ("id", "size")]
        columns = [exp.column("_seq", table=alias, quoted=True), *parts]
    return [exp.alias_(one, name) for one, name in zip(columns, (PUBLICATION, PAGE, SIZE), strict=True)]


def _new_alias(select: exp.Select) -> str | None:
    """Return the alias of the new dataset if FROM has it once."""
    hidden = {join.this.alias_or_name for join in select.args.get("joins") or () if join.kind in ("SEMI", "ANTI")}
    tables = [item for item in from_items(select) if isinstance(item, exp.Table) and item.db == NEW]
    found = [table.alias for table in tables if table.alias not in hidden]
    return found[0] if len(found) == 1 else None


def fill_markers(query: exp.Query) -> None:
    """Replace markers by columns of the values, in place."""
    for marker in list(query.find_all(exp.Placeholder)):
        marker.replace(exp.column(f"__p_{marker.this}", table=VALUES))


def values_source(body: Body) -> exp.Subquery:
    """Return the table of values, with names that no field of a dataset can have."""
    names = [parameter.name for parameter in body.channel.parameters]
    columns = [exp.alias_(exp.column(f"p_{name}", quoted=True), f"__p_{name}") for name in names]
    select = exp.select(exp.alias_(exp.column("stream"), STREAM), *columns)
    return select.from_(exp.table_("values", VALUES)).subquery(VALUES)


_JSON = (
    """MAP('ignoreNullFields', 'false', 'timeZone', 'UTC', 'timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX")"""
)


@dataclass(frozen=True)
class Views:
    """Names of Spark views: the new dataset, the stored ones, the values."""

    new: str
    stored: Mapping[str, str]
    values: str


def evaluation_sql(body: Body, views: Views, broadcast: Broadcast | None = "new", as_json: bool = True) -> str:
    """Return the query whose columns are those of `MATCH_SCHEMA`; without `as_json` the payload is a struct."""
    with not_too_deep(f"channels.{body.channel.name}.query"):
        query = body.tree.copy()
        keys, hidden = _order(body, query)
        limit, offset = _pop_count(query, "limit"), _pop_count(query, "offset")
        inner = flatten(query.copy(), body, hidden, True, broadcast) or _lateral(query, body, hidden)
        _name_views(inner, views)
        return _results(body, write_sql(inner), keys, limit, offset, as_json)


def _results(
    body: Body, inner: str, keys: Sequence[tuple[str, str]], limit: int | None, offset: int | None, as_json: bool
) -> str:
    columns = f"STRUCT({', '.join(_quoted(column) for column in body.columns)})"
    value = f"TO_JSON({columns}, {_JSON})" if as_json else columns
    given = f"{STREAM}, {PUBLICATION}, {PAGE}, {SIZE}"
    sorting = "".join(f", __k{number}" for number in range(len(keys)))
    named = "".join(f", {column} AS __k{number}" for number, (column, _) in enumerate(keys))
    payload = f"SELECT {given}{named}, {value} AS payload FROM ({inner})"
    ordinal = "CAST(0 AS BIGINT)"
    where = ""
    if keys or limit is not None or offset is not None:
        order = "".join(f"__k{number} {direction}, " for number, (_, direction) in enumerate(keys))
        row = f"ROW_NUMBER() OVER (PARTITION BY {STREAM} ORDER BY {order}{PUBLICATION}, payload)"
        payload = f"SELECT {given}{sorting}, payload, CAST({row} AS BIGINT) AS __row FROM ({payload})"
        ordinal = "__row" if keys else ordinal
        bounds = [f"__row > {offset}"] if offset else []
        bounds += [f"__row <= {(offset or 0) + limit}"] if limit is not None else []
        where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    return (
        f"SELECT {STREAM} AS stream, {PUBLICATION} AS publication, {PAGE} AS page_id, {SIZE} AS page_size, "
        f"{ordinal} AS ordinal, payload FROM ({payload}){where}"
    )


def _order(body: Body, query: exp.Query) -> tuple[list[tuple[str, str]], list[exp.Expr]]:
    """Remove ORDER BY; return the columns to sort by with their directions, and those that are added for it."""
    order = query.args.get("order")
    keys: list[tuple[str, str]] = []
    hidden: list[exp.Expr] = []
    if order is None:
        return keys, hidden
    order.pop()
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
            raise BadQuery(f"channels.{body.channel.name}.query: ORDER BY is limited to columns of this SELECT")
        if name is None:
            name = f"__o{len(hidden)}"
            hidden.append(exp.alias_(key.copy(), name))
        direction = "DESC" if item.args.get("desc") else "ASC"
        nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
        keys.append((_quoted(name), f"{direction} NULLS {nulls}"))
    return keys, hidden


def _pop_count(query: exp.Query, what: str) -> int | None:
    node = query.args.get(what)
    return int(node.pop().expression.this) if node is not None else None


def _lateral(query: exp.Query, body: Body, hidden: Sequence[exp.Expr]) -> exp.Select:
    unknown: list[exp.Expr] = []
    if isinstance(query, exp.Select):
        append_provenance(query, True, hidden)
    else:
        unknown = provenance(None, False)
    fill_markers(query)
    add_cells(query, VALUES)
    alias = exp.TableAlias(this=exp.to_identifier(JOINED))
    lateral = exp.Lateral(this=exp.Subquery(this=query), view=False, outer=False, alias=alias)
    columns = [exp.column(STREAM, table=VALUES), *unknown, exp.Column(this=exp.Star(), table=JOINED)]
    return exp.select(*columns).from_(values_source(body)).join(lateral, join_type="cross")


def _name_views(tree: exp.Expr, views: Views) -> None:
    for table in tree.find_all(exp.Table):
        name = {VALUES: views.values, NEW: views.new, STORED: views.stored.get(table.name)}.get(table.db)
        if name is not None:
            table.set("db", exp.to_identifier("global_temp"))
            table.set("this", exp.to_identifier(name, quoted=True))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
