"""The table of values in a body's own FROM: Spark then joins publications, stored records and values as it likes.

Groups, windows and duplicates are taken per stream. This is done where it cannot change what the body means;
`flat` gives None elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from newsstand.cluster.body import Body
from newsstand.cluster.cells import add_cells, conjuncts, tables_of
from newsstand.cluster.columns import NEW, from_items, own_nodes
from newsstand.cluster.dialect import read_expression
from newsstand.cluster.functions import AGGREGATES

VALUES = "__v"
"""The alias of the table of values."""

JOINED = "__r"
"""The alias of what is joined before the values are."""

STREAM, PUBLICATION, PAGE, SIZE = "__stream", "__publication", "__page_id", "__page_size"
"""Columns that rows carry beside the body's own."""


def flat(
    query: exp.Query, body: Body, hidden: Sequence[exp.Expr], traced: bool, broadcast_new: bool
) -> exp.Query | None:
    """A query's rows for all values, with the columns of ours and `hidden` ones; None if it must stay as it is.

    `traced` says whether rows may carry their publication.
    """
    if isinstance(query, exp.Subquery):
        plain = not query.args.get("order") and not query.args.get("limit") and not query.args.get("offset")
        return flat(query.this.copy(), body, hidden, traced, broadcast_new) if plain else None
    if isinstance(query, exp.SetOperation):
        # Rows that are compared with each other cannot carry their publications along.
        traced = traced and isinstance(query, exp.Union) and not query.args.get("distinct")
        left, right = query.args["this"], query.args["expression"]
        if query.args.get("by_name"):
            return None
        sides = [flat(side.copy(), body, (), traced, broadcast_new) for side in (left, right)]
        if sides[0] is None or sides[1] is None:
            return None
        left.replace(sides[0])
        right.replace(sides[1])
        return query
    assert isinstance(query, exp.Select)
    return _flat_select(query, body, hidden, traced, broadcast_new) if _can_be_flat(query) else None


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
    """Whether a block makes one row out of many without saying GROUP BY."""
    parts = [*select.expressions, *filter(None, [select.args.get("having")])]
    for part in parts:
        for node in [part, *own_nodes(part)]:
            if isinstance(node, exp.Anonymous):
                aggregates = node.name.lower() in AGGREGATES
            else:
                aggregates = isinstance(node, exp.AggFunc) or (
                    isinstance(node, exp.Any) and not isinstance(node.this, exp.Query)
                )
            if aggregates and node.find_ancestor(exp.Query) is select and not _is_windowed(node):
                return True
    return False


def _is_windowed(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        node, parent = parent, parent.parent
    return isinstance(parent, exp.Window) and parent.this is node


def _flat_select(
    select: exp.Select, body: Body, hidden: Sequence[exp.Expr], traced: bool, broadcast_new: bool
) -> exp.Select:
    stream = exp.column(STREAM, table=VALUES)
    new = _new_alias(select)
    append_ours(select, traced, hidden)
    for window in [node for node in own_nodes(select) if isinstance(node, exp.Window)]:
        window.set("partition_by", [stream.copy(), *(window.args.get("partition_by") or [])])
    if select.args.get("group"):
        given = [exp.column(f"__p_{parameter.name}", table=VALUES) for parameter in body.channel.parameters]
        group = select.args["group"]
        group.set("expressions", [stream.copy(), *given, *group.expressions])
    select.append("expressions", exp.alias_(stream.copy(), STREAM))
    fill_markers(select)
    add_cells(select, VALUES)
    _join_values(select, values_source(body), new, broadcast_new)
    return select


def _join_values(select: exp.Select, values: exp.Subquery, new: str | None, broadcast_new: bool) -> None:
    joins = select.args.get("joins") or []
    inner = all(
        not join.side and join.kind in ("", "INNER", "CROSS") and not join.args.get("using") for join in joins
    )
    broadcast = [new] if new else []
    laterals = any(isinstance(item, exp.Lateral) for item in from_items(select))
    if inner and not laterals:
        broadcast += _arrange(select, values, new)
    elif inner and not any(
        item.find(exp.Column, exp.Query) and VALUES in tables_of(item) for item in from_items(select)
    ):
        parts = _parts(select)
        rows = [part for part in parts if VALUES not in tables_of(part)]
        _join_first(select, from_items(select), rows, [part for part in parts if part not in rows], [values])
        broadcast += [JOINED]
    else:
        select.set("joins", [exp.Join(this=values, kind="CROSS"), *joins])
    if broadcast_new:
        for block in select.find_all(exp.Select):
            here = {item.alias_or_name for item in from_items(block)}
            _hint(block, [alias for alias in broadcast if alias in here])


def _hint(select: exp.Select, aliases: Sequence[str]) -> None:
    if aliases:
        names = [exp.to_identifier(alias, quoted=True) for alias in aliases]
        select.set("hint", exp.Hint(expressions=[exp.Anonymous(this="BROADCAST", expressions=names)]))


def _parts(select: exp.Select) -> list[exp.Expr]:
    """What must hold for rows of a block with inner joins only."""
    where = select.args.get("where")
    conditions = [where.this] if where else []
    conditions += [join.args["on"] for join in select.args.get("joins") or () if join.args.get("on") is not None]
    return [deep for condition in conditions for part in conjuncts(condition) for deep in conjuncts(part)]


def _arrange(select: exp.Select, values: exp.Subquery, new: str | None) -> list[str]:
    """Choose the order of inner joins, which Spark keeps; return what is to be broadcast besides the new dataset.

    Publications meet values first where predicates hold between these alone. Where values meet stored records,
    too, the publications meet these records first, which leaves little for the values to meet.
    """
    items = {item.alias_or_name: item for item in from_items(select)}
    parts = _parts(select)
    bound = [part for part in parts if VALUES in tables_of(part)]
    met = {alias for part in bound for alias in tables_of(part) if alias in items}
    if new is not None and met - {new}:
        group = {new} | met
        loose = [part for part in parts if part not in bound and tables_of(part) & set(items) <= group]
        if _connected(new, group, loose):
            rest = [item for alias, item in items.items() if alias not in group]
            rows = [part for part in parts if part not in loose]
            _join_first(select, [items[alias] for alias in items if alias in group], loose, rows, [values, *rest])
            return [JOINED]
    first = (
        [new] if new is not None and (new in met or not met) else [alias for alias in items if alias in met][:1]
    )
    order = [*first, *(alias for alias in items if alias not in first)]
    sources: list[exp.Expr] = [items[alias] for alias in order]
    sources.insert(1 if first else 0, values)
    _set_from(select, sources, parts)
    return []


def _connected(new: str, group: set[str], parts: Sequence[exp.Expr]) -> bool:
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
    loose: Sequence[exp.Expr],
    bound: Sequence[exp.Expr],
    others: Sequence[exp.Expr],
) -> None:
    """Put some of FROM's items, with the predicates among them, into an inner query, joined with the others."""
    inner = exp.Select()
    laterals = [item.copy() for item in items if isinstance(item, exp.Lateral) and item.args.get("view")]
    tables = [item.copy() for item in items if not (isinstance(item, exp.Lateral) and item.args.get("view"))]
    moved = {item.alias_or_name for item in items}
    _set_from(inner, tables, loose)
    inner.set("laterals", laterals)
    select.set("laterals", None)
    _set_from(select, others, bound)
    names: dict[tuple[str, str], str] = {}
    for column in list(select.find_all(exp.Column)):
        if column.table in moved and not isinstance(column.this, exp.Star):
            name = names.setdefault((column.table, column.name.lower()), f"__{len(names)}_{column.name}")
            listed = column.parent is select and column.arg_key == "expressions"
            there = exp.column(name, table=JOINED, quoted=True)
            column.replace(exp.alias_(there, column.name, quoted=True) if listed else there)
    inner.set(
        "expressions",
        [exp.alias_(exp.column(name, table=table, quoted=True), new) for (table, name), new in names.items()]
        or [exp.Literal.number(1)],
    )
    joined = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(JOINED)))
    select.set("joins", [exp.Join(this=joined, kind="CROSS"), *select.args["joins"]])


def _set_from(select: exp.Select, sources: Sequence[exp.Expr], parts: Sequence[exp.Expr]) -> None:
    parts = [part.copy() for part in parts]
    select.set("from_", exp.From(this=sources[0]))
    select.set("joins", [exp.Join(this=source, kind="CROSS") for source in sources[1:]])
    select.set("where", exp.Where(this=exp.and_(*parts)) if parts else None)


def append_ours(select: exp.Select, traced: bool, hidden: Sequence[exp.Expr]) -> None:
    """Add what is ours after the body's own columns, which GROUP BY may count."""
    select.set("expressions", [*select.expressions, *provenance(select, traced), *(one.copy() for one in hidden)])


def provenance(select: exp.Select | None, traced: bool) -> list[exp.Expr]:
    """The publication that a row comes from and its page, where they can be told."""
    alias = None
    if select is not None and traced and not select.args.get("group") and not select.args.get("distinct"):
        alias = None if is_aggregate(select) or select.args.get("having") else _new_alias(select)
    if alias is None:
        unknown = ("CAST(NULL AS BIGINT)", "CAST(NULL AS STRING)", "CAST(NULL AS BIGINT)")
        told = [read_expression(text) for text in unknown]
    else:
        page = exp.column("_page", table=alias, quoted=True)
        parts = [exp.Dot(this=page.copy(), expression=exp.to_identifier(part)) for part in ("id", "size")]
        told = [exp.column("_seq", table=alias, quoted=True), *parts]
    return [exp.alias_(one, name) for one, name in zip(told, (PUBLICATION, PAGE, SIZE), strict=True)]


def _new_alias(select: exp.Select) -> str | None:
    """The alias of the new dataset in FROM, if it stands there once."""
    hidden = {join.this.alias_or_name for join in select.args.get("joins") or () if join.kind in ("SEMI", "ANTI")}
    tables = [item for item in from_items(select) if isinstance(item, exp.Table) and item.db == NEW]
    found = [table.alias for table in tables if table.alias not in hidden]
    return found[0] if len(found) == 1 else None


def fill_markers(query: exp.Query) -> None:
    """Make columns of the values out of markers, in place."""
    for marker in list(query.find_all(exp.Placeholder)):
        marker.replace(exp.column(f"__p_{marker.this}", table=VALUES))


def values_source(body: Body) -> exp.Subquery:
    """The table of values under names that no field of a dataset can have."""
    names = [parameter.name for parameter in body.channel.parameters]
    columns = [exp.alias_(exp.column(f"p_{name}", quoted=True), f"__p_{name}") for name in names]
    select = exp.select(exp.alias_(exp.column("stream"), STREAM), *columns)
    select.set("from_", exp.From(this=exp.Table(this=exp.to_identifier("values"), db=exp.to_identifier(VALUES))))
    return exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(VALUES)))
