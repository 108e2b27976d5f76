"""Name resolution in a query: the dataset of each table, the source of each column, the columns of each star.

After `name_columns` every dataset in the tree is `new.NAME` or `stored.NAME` with an alias, every column of a
known source is qualified with the alias of its source, and stars are expanded. A star does not include `_seq`,
`_at` and `_page`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from newsstand.cluster.query.dialect import GENERATORS
from newsstand.errors import BadQuery
from newsstand.model import Dataset

HIDDEN = ("_seq", "_at", "_page")
"""The columns that the log adds to the fields of a record."""

NEW, STORED = "new", "stored"
"""The records of a dataset that a query reads: those of this execution, or all."""


@dataclass(frozen=True)
class Source:
    """An item of FROM: its alias, its columns (None if they are unknown), those hidden from stars."""

    alias: str
    columns: tuple[str, ...] | None
    hidden: tuple[str, ...] = ()
    what: str = "query"


@dataclass(frozen=True)
class NameContext:
    """The context of name resolution: the datasets, the new one, and the place for errors."""

    datasets: Mapping[str, Dataset]
    new: str
    place: str

    def error(self, node: exp.Expr, message: str) -> BadQuery:
        """Return the error for a node, with its line and column where they are known."""
        known = next((part.meta for part in node.find_all(exp.Identifier) if "line" in part.meta), None)
        where = f"line {known['line']}, column {known['col']}: " if known else ""
        return BadQuery(f"{self.place}: {where}{message}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error that names the known name which an unknown one resembles; empty without one."""
    near = difflib.get_close_matches(name.lower(), list(known), 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def own_nodes(select: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of one query block; inner queries are included, their nodes are not."""
    for node in select.walk(prune=lambda node: node is not select and isinstance(node, exp.Query)):
        if node is not select:
            yield node


def name_columns(
    query: exp.Query,
    context: NameContext,
    tables: Mapping[str, tuple[str, ...] | None] | None = None,
    around: Sequence[Sequence[Source]] = (),
) -> tuple[str, ...] | None:
    """Resolve names in place; return the names of the output columns ('' for one without a name)."""
    tables = dict(tables or {})
    for common in query.ctes:
        given = name_columns(common.this, context, tables, around)
        renamed = tuple(identifier.name for identifier in common.args["alias"].args.get("columns") or ())
        tables[common.alias.lower()] = renamed or given
    if isinstance(query, exp.Subquery):
        if not isinstance(query.this, exp.Query):
            raise context.error(query, "a join in parentheses is not allowed: write the joins one after another")
        return name_columns(query.this, context, tables, around)
    if isinstance(query, exp.SetOperation):
        left, right = query.args["this"], query.args["expression"]
        columns = name_columns(left, context, tables, around)
        name_columns(right, context, tables, around)
        return columns
    assert isinstance(query, exp.Select)
    sources: list[Source] = []
    for item in from_items(query):  # a lateral item reads those before it
        sources.append(_source(item, context, tables, [sources, *around]))
    _expand_stars(query, sources, context)
    aliases = {item.alias.lower() for item in query.expressions if isinstance(item, exp.Alias)}
    for node in list(own_nodes(query)):
        if isinstance(node, exp.Query):
            if not isinstance(node.parent, exp.From | exp.Join | exp.CTE | exp.Lateral | exp.With):
                name_columns(node, context, tables, [sources, *around])
        elif isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            _qualify(node, [sources, *around], aliases, context)
    return _outputs(query)


def inline_common(query: exp.Query) -> None:
    """Inline the queries of WITH in place; call it after `name_columns`, which checks them."""
    for inner in reversed(list(query.find_all(exp.Query))):
        if inner.args.get("with_") is None:
            continue
        commons = inner.args["with_"].pop().expressions
        for number, common in enumerate(commons):
            for place in [*(later.this for later in commons[number + 1 :]), inner]:
                _inline(place, common)


def _inline(query: exp.Query, common: exp.CTE) -> None:
    for table in list(query.find_all(exp.Table)):
        if table.db or not isinstance(table.this, exp.Identifier) or table.name.lower() != common.alias.lower():
            continue
        columns = _column_aliases(table) or _column_aliases(common)
        alias = exp.TableAlias(
            this=exp.to_identifier(table.alias_or_name, quoted=True),
            columns=[exp.to_identifier(column, quoted=True) for column in columns],
        )
        table.replace(exp.Subquery(this=common.this.copy(), alias=alias))


def from_items(select: exp.Select) -> list[exp.Expr]:
    """Return the items of FROM, joins and lateral views of a block, in order."""
    first = select.args.get("from_")
    items = [first.this] if first else []
    items += [join.this for join in select.args.get("joins") or ()]
    return items + list(select.args.get("laterals") or ())


def _source(
    item: exp.Expr,
    context: NameContext,
    tables: Mapping[str, tuple[str, ...] | None],
    around: Sequence[Sequence[Source]],
) -> Source:
    renamed = _column_aliases(item)
    if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
        return _dataset(item, context, tables, renamed)
    lateral = isinstance(item, exp.Lateral)
    inner = item.this if lateral else item
    if isinstance(inner, exp.Query):
        given = name_columns(inner, context, tables, around if lateral else around[1:])
        return Source(item.alias, renamed or given)
    if isinstance(item, exp.Lateral | exp.Table):
        _require_generator(item.this, context)
    elif not isinstance(item, exp.Values):
        raise context.error(item, "only datasets and queries are allowed in FROM")
    return Source(item.alias, renamed or None)


def _dataset(
    table: exp.Table, context: NameContext, tables: Mapping[str, tuple[str, ...] | None], renamed: tuple[str, ...]
) -> Source:
    name, folder = table.name.lower(), table.db.lower()
    if not folder and not table.catalog and name in tables:
        return Source(table.alias_or_name, renamed or tables[name], (), f"query '{name}'")
    if table.catalog or folder not in ("", STORED) or name not in context.datasets:
        written = ".".join(part.name for part in table.parts)
        known = ", ".join(sorted(context.datasets)) or "none"
        hint = did_you_mean(name, context.datasets) or f"; datasets: {known}"
        raise context.error(table, f"no dataset '{written}'{hint}")
    kind = NEW if name == context.new and not folder else STORED
    alias = table.alias or table.name
    if renamed:
        raise context.error(table, f"the columns of dataset '{name}' cannot be renamed in FROM")
    table.set("this", exp.to_identifier(name, quoted=True))
    table.set("db", exp.to_identifier(kind, quoted=True))
    table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    fields = tuple(field.name for field in context.datasets[name].fields)
    return Source(alias, (*fields, *HIDDEN), HIDDEN, f"dataset '{name}'")


def _column_aliases(item: exp.Expr) -> tuple[str, ...]:
    alias = item.args.get("alias")
    columns = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    return tuple(identifier.name for identifier in columns or ())


def _require_generator(call: exp.Expr, context: NameContext) -> None:
    name = call.name.lower() if isinstance(call, exp.Anonymous) else type(call).__name__.lower()
    if name not in GENERATORS:
        allowed = ", ".join(sorted(GENERATORS))
        raise context.error(call, f"'{name}' is not allowed in FROM; the only functions there are {allowed}")


def _expand_stars(select: exp.Select, sources: Sequence[Source], context: NameContext) -> None:
    items: list[exp.Expr] = []
    for item in select.expressions:
        star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
        if not isinstance(star, exp.Star):
            items.append(item)
            continue
        if star.args.get("replace") or star.args.get("rename"):
            raise context.error(item, "only EXCEPT can follow *: list the columns")
        wanted = item.table.lower() if isinstance(item, exp.Column) else None
        merged = any(join.args.get("using") for join in select.args.get("joins") or ())
        if wanted is None and merged:
            raise context.error(item, "* after JOIN … USING is not supported: list the columns")
        left_out = {part.name.lower() for part in star.args.get("except_") or ()}
        found = [source for source in sources if wanted in (None, source.alias.lower())]
        if not found:
            raise context.error(item, f"no '{wanted}' in FROM")
        for source in found:
            if source.columns is None or "" in source.columns or not source.alias:
                raise context.error(item, "the columns of * are unknown here: list the columns")
            shown = [one for one in source.columns if one not in source.hidden and one.lower() not in left_out]
            items += [exp.column(column, table=source.alias, quoted=True) for column in shown]
    select.set("expressions", items)


def _qualify(
    column: exp.Column, scopes: Sequence[Sequence[Source]], aliases: set[str], context: NameContext
) -> None:
    if _is_unit(column):
        return
    parts = [part.name for part in column.parts]
    if parts[0].lower() == STORED and len(parts) > 2:
        parts = parts[1:]
    everything = [source for scope in scopes for source in scope]
    named = next((source for source in everything if source.alias.lower() == parts[0].lower()), None)
    if named is not None and len(parts) > 1:
        if named.columns is not None and parts[1].lower() not in map(str.lower, named.columns):
            raise context.error(column, _unknown(parts[1], [named]))
        _rewrite(column, named.alias, parts[1:])
        return
    if _may_be_alias(column) and parts[0].lower() in aliases:
        return
    for scope in scopes:
        holders = [source for source in scope if parts[0].lower() in map(str.lower, source.columns or ())]
        if len(holders) > 1 and not _is_merged(column, parts[0]):
            choices = " or ".join(f"{holder.alias}.{parts[0]}" for holder in holders)
            raise context.error(column, f"'{parts[0]}' is ambiguous: {choices}")
        if len(holders) == 1 and holders[0].alias:
            _rewrite(column, holders[0].alias, parts)
            return
        if holders or any(source.columns is None for source in scope):
            return
    if parts[0].lower() not in aliases:
        raise context.error(column, _unknown(parts[0], everything))


def _rewrite(column: exp.Column, alias: str, parts: Sequence[str]) -> None:
    qualified: exp.Expr = exp.column(parts[0], table=alias, quoted=True)
    for part in parts[1:]:
        qualified = exp.Dot(this=qualified, expression=exp.to_identifier(part, quoted=True))
    column.replace(qualified)


def _may_be_alias(column: exp.Column) -> bool:
    """Return whether a column may be an output name: ORDER BY resolves these first."""
    order = column.find_ancestor(exp.Order, exp.Query, exp.Window)
    return isinstance(order, exp.Order) and not isinstance(order.parent, exp.Window)


def _is_unit(column: exp.Column) -> bool:
    """Return whether a column is a keyword such as DAY in DATEADD(DAY, 1, at)."""
    call = column.parent
    return isinstance(call, exp.Anonymous) and call.name.lower() in _WITH_UNIT and call.expressions[0] is column


_WITH_UNIT = ("dateadd", "date_add", "datediff", "date_diff", "timestampadd", "timestampdiff")


def _is_merged(column: exp.Column, name: str) -> bool:
    select = column.find_ancestor(exp.Select)
    joins = select.args.get("joins") or () if select else ()
    return any(name.lower() == part.name.lower() for join in joins for part in join.args.get("using") or ())


def _unknown(name: str, sources: Sequence[Source]) -> str:
    known = [column for source in sources for column in source.columns or () if column]
    places = " or ".join(dict.fromkeys(source.what for source in sources)) or "FROM"
    return f"no column '{name}' in {places}{did_you_mean(name, known)}"


def _outputs(select: exp.Select) -> tuple[str, ...]:
    names: list[str] = []
    for item in select.expressions:
        if isinstance(item, exp.Aliases):
            names += [identifier.name for identifier in item.args["expressions"]]
        else:
            names.append(item.alias_or_name if isinstance(item, exp.Alias | exp.Column | exp.Dot) else "")
    return tuple(names)
