"""Names in a query: which dataset a table is, which source a column comes from, what a star stands for.

After `name_columns` every dataset in the tree is `new.NAME` or `stored.NAME` with an alias, every column of a
known source is written with its source's alias, and stars are gone, and with them what is hidden: `_seq`, `_at`
and `_page` are there only for a query that names them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from newsstand.cluster.functions import GENERATORS
from newsstand.errors import BadQuery
from newsstand.model import Dataset

HIDDEN = ("_seq", "_at", "_page")
"""What the log adds to a record's fields."""

NEW, STORED = "new", "stored"
"""Where a dataset's records in a query come from: this execution's, or all there are."""


@dataclass(frozen=True)
class Source:
    """Something in FROM: its alias, its columns (None if they cannot be told), those hidden from stars."""

    alias: str
    columns: tuple[str, ...] | None
    hidden: tuple[str, ...] = ()
    what: str = "query"


@dataclass(frozen=True)
class Naming:
    """What names mean: the datasets, which of them is new, and where errors are."""

    datasets: Mapping[str, Dataset]
    new: str
    place: str

    def refuse(self, node: exp.Expr, message: str) -> BadQuery:
        """The error for a node, with its line and column where they are known."""
        known = next((part.meta for part in node.find_all(exp.Identifier) if "line" in part.meta), None)
        where = f"line {known['line']}, column {known['col']}: " if known else ""
        return BadQuery(f"{self.place}: {where}{message}")


def own_nodes(select: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of one query block: queries inside it are given, but not what is in them."""
    for node in select.walk(prune=lambda node: node is not select and isinstance(node, exp.Query)):
        if node is not select:
            yield node


def name_columns(
    query: exp.Query,
    naming: Naming,
    tables: Mapping[str, tuple[str, ...] | None] | None = None,
    around: Sequence[Sequence[Source]] = (),
) -> tuple[str, ...] | None:
    """Resolve names in place; return the names of the columns that the query gives ('' for one without a name)."""
    tables = dict(tables or {})
    for common in query.ctes:
        given = name_columns(common.this, naming, tables, around)
        renamed = tuple(identifier.name for identifier in common.args["alias"].args.get("columns") or ())
        tables[common.alias.lower()] = renamed or given
    if isinstance(query, exp.Subquery):
        if not isinstance(query.this, exp.Query):
            raise naming.refuse(query, "a join in parentheses: write the joins one after another")
        return name_columns(query.this, naming, tables, around)
    if isinstance(query, exp.SetOperation):
        left, right = query.args["this"], query.args["expression"]
        columns = name_columns(left, naming, tables, around)
        name_columns(right, naming, tables, around)
        return columns
    assert isinstance(query, exp.Select)
    sources: list[Source] = []
    for item in from_items(query):
        sources.append(_source(item, naming, tables, [sources, *around]))
    _expand_stars(query, sources, naming)
    aliases = {item.alias.lower() for item in query.expressions if isinstance(item, exp.Alias)}
    for node in list(own_nodes(query)):
        if isinstance(node, exp.Query):
            if not isinstance(node.parent, exp.From | exp.Join | exp.CTE | exp.Lateral | exp.With):
                name_columns(node, naming, tables, [sources, *around])
        elif isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            _qualify(node, [sources, *around], aliases, naming)
    return _outputs(query)


def inline_common(query: exp.Query) -> None:
    """Put the queries of WITH where they are named, in place: after `name_columns`, which has checked them."""
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
    """What stands in FROM, joins and lateral views of a block, in order."""
    first = select.args.get("from_")
    items = [first.this] if first else []
    items += [join.this for join in select.args.get("joins") or ()]
    return items + list(select.args.get("laterals") or ())


def _source(
    item: exp.Expr,
    naming: Naming,
    tables: Mapping[str, tuple[str, ...] | None],
    around: Sequence[Sequence[Source]],
) -> Source:
    renamed = _column_aliases(item)
    if isinstance(item, exp.Lateral):
        if isinstance(item.this, exp.Query):
            return Source(item.alias, renamed or name_columns(item.this, naming, tables, around))
        _require_generator(item.this, naming)
        return Source(item.alias, renamed or None)
    if isinstance(item, exp.Query):
        given = name_columns(item, naming, tables, around[1:])
        return Source(item.alias, renamed or given)
    if isinstance(item, exp.Values):
        return Source(item.alias, renamed or None)
    if not isinstance(item, exp.Table):
        raise naming.refuse(item, "only datasets and queries can stand in FROM")
    if not isinstance(item.this, exp.Identifier):
        _require_generator(item.this, naming)
        return Source(item.alias, renamed or None)
    return _dataset(item, naming, tables, renamed)


def _dataset(
    table: exp.Table, naming: Naming, tables: Mapping[str, tuple[str, ...] | None], renamed: tuple[str, ...]
) -> Source:
    name, folder = table.name.lower(), table.db.lower()
    if not folder and not table.catalog and name in tables:
        return Source(table.alias_or_name, renamed or tables[name], (), f"query '{name}'")
    if table.catalog or folder not in ("", STORED) or name not in naming.datasets:
        written = ".".join(part.name for part in table.parts)
        near = difflib.get_close_matches(name, naming.datasets, 1)
        hint = (
            f"; did you mean '{near[0]}'?"
            if near
            else f"; datasets: {', '.join(sorted(naming.datasets)) or 'none'}"
        )
        raise naming.refuse(table, f"no dataset '{written}'{hint}")
    kind = NEW if name == naming.new and not folder else STORED
    alias = table.alias or table.name
    if renamed:
        raise naming.refuse(table, f"the columns of dataset '{name}' cannot be renamed in FROM")
    table.set("this", exp.to_identifier(name, quoted=True))
    table.set("db", exp.to_identifier(kind, quoted=True))
    table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    fields = tuple(field.name for field in naming.datasets[name].fields)
    return Source(alias, (*fields, *HIDDEN), HIDDEN, f"dataset '{name}'")


def _column_aliases(item: exp.Expr) -> tuple[str, ...]:
    alias = item.args.get("alias")
    columns = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    return tuple(identifier.name for identifier in columns or ())


def _require_generator(call: exp.Expr, naming: Naming) -> None:
    name = call.name.lower() if isinstance(call, exp.Anonymous) else type(call).__name__.lower()
    if name not in GENERATORS:
        allowed = ", ".join(sorted(GENERATORS))
        raise naming.refuse(call, f"'{name}' cannot stand in FROM; of functions only {allowed} can")


def _expand_stars(select: exp.Select, sources: Sequence[Source], naming: Naming) -> None:
    items: list[exp.Expr] = []
    for item in select.expressions:
        star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
        if not isinstance(star, exp.Star):
            items.append(item)
            continue
        if star.args.get("replace") or star.args.get("rename"):
            raise naming.refuse(item, "* can be followed by EXCEPT only: write the columns one by one")
        wanted = item.table.lower() if isinstance(item, exp.Column) else None
        merged = any(join.args.get("using") for join in select.args.get("joins") or ())
        if wanted is None and merged:
            raise naming.refuse(item, "* after JOIN … USING: write the columns one by one")
        left_out = {part.name.lower() for part in star.args.get("except_") or ()}
        found = [source for source in sources if wanted in (None, source.alias.lower())]
        if not found:
            raise naming.refuse(item, f"nothing in FROM is called '{wanted}'")
        for source in found:
            if source.columns is None or "" in source.columns or not source.alias:
                raise naming.refuse(item, "what * stands for cannot be told here: write the columns one by one")
            shown = [one for one in source.columns if one not in source.hidden and one.lower() not in left_out]
            items += [exp.column(column, table=source.alias, quoted=True) for column in shown]
    select.set("expressions", items)


def _qualify(column: exp.Column, scopes: Sequence[Sequence[Source]], aliases: set[str], naming: Naming) -> None:
    if _is_unit(column):
        return
    parts = [part.name for part in column.parts]
    if parts[0].lower() == STORED and len(parts) > 2:
        parts = parts[1:]
    everything = [source for scope in scopes for source in scope]
    named = next((source for source in everything if source.alias.lower() == parts[0].lower()), None)
    if named is not None and len(parts) > 1:
        if named.columns is not None and parts[1].lower() not in {name.lower() for name in named.columns}:
            raise naming.refuse(column, _unknown(parts[1], [named]))
        _rewrite(column, named.alias, parts[1:])
        return
    if _may_be_alias(column) and parts[0].lower() in aliases:
        return
    for scope in scopes:
        holders = [
            source for source in scope if parts[0].lower() in {name.lower() for name in source.columns or ()}
        ]
        if len(holders) > 1 and not _is_merged(column, parts[0]):
            choices = " or ".join(f"{holder.alias}.{parts[0]}" for holder in holders)
            raise naming.refuse(column, f"'{parts[0]}' may be {choices}")
        if len(holders) == 1 and holders[0].alias:
            _rewrite(column, holders[0].alias, parts)
            return
        if holders or any(source.columns is None for source in scope):
            return
    if parts[0].lower() not in aliases:
        raise naming.refuse(column, _unknown(parts[0], everything))


def _rewrite(column: exp.Column, alias: str, parts: Sequence[str]) -> None:
    whole: exp.Expr = exp.column(
        exp.to_identifier(parts[0], quoted=True), table=exp.to_identifier(alias, quoted=True)
    )
    for part in parts[1:]:
        whole = exp.Dot(this=whole, expression=exp.to_identifier(part, quoted=True))
    column.replace(whole)


def _may_be_alias(column: exp.Column) -> bool:
    """ORDER BY looks at the names of the result first."""
    order = column.find_ancestor(exp.Order, exp.Query, exp.Window)
    return isinstance(order, exp.Order) and not isinstance(order.parent, exp.Window)


def _is_unit(column: exp.Column) -> bool:
    """DAY in DATEADD(DAY, 1, at) is a word, not a column."""
    call = column.parent
    return isinstance(call, exp.Anonymous) and call.name.lower() in _WITH_UNIT and call.expressions[0] is column


_WITH_UNIT = ("dateadd", "date_add", "datediff", "date_diff", "timestampadd", "timestampdiff")


def _is_merged(column: exp.Column, name: str) -> bool:
    select = column.find_ancestor(exp.Select)
    joins = select.args.get("joins") or () if select else ()
    return any(name.lower() == part.name.lower() for join in joins for part in join.args.get("using") or ())


def _unknown(name: str, sources: Sequence[Source]) -> str:
    known = [column for source in sources for column in source.columns or () if column]
    near = difflib.get_close_matches(name.lower(), known, 1)
    places = " or ".join(dict.fromkeys(source.what for source in sources)) or "FROM"
    return f"no column '{name}' in {places}" + (f"; did you mean '{near[0]}'?" if near else "")


def _outputs(select: exp.Select) -> tuple[str, ...]:
    names: list[str] = []
    for item in select.expressions:
        if isinstance(item, exp.Aliases):
            names += [identifier.name for identifier in item.args["expressions"]]
        else:
            names.append(item.alias_or_name if isinstance(item, exp.Alias | exp.Column | exp.Dot) else "")
    return tuple(names)
