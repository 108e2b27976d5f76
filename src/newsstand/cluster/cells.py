"""Predicates `distance_km(…) < r` in a query get an equality on grid cells beside them, so that Spark can hash.

One side of the pair is exploded into the cells that its circle touches, the other side is given its one cell (see
`spatial`). The new dataset is exploded where it is one of the two: an execution's publications are few.
"""

from __future__ import annotations

from itertools import count

from sqlglot import exp

from newsstand.cluster import spatial
from newsstand.cluster.columns import NEW, from_items
from newsstand.cluster.dialect import read_expression, write_sql
from newsstand.cluster.functions import DISTANCE

_INSIDE = "__x"


def add_cells(query: exp.Query, values: str) -> None:
    """Add the equalities in place, and write `distance_km` out; `values` is the alias of the subscribed values."""
    numbers = count(1)
    for select in list(query.find_all(exp.Select)):
        for join in select.args.get("joins") or ():
            if join.args.get("on") is not None and join.side in ("", "LEFT"):
                # An outer join keeps its left side's rows: only its right side can be exploded.
                only = join.this.alias_or_name if join.side or join.kind in ("SEMI", "ANTI") else None
                for predicate in conjuncts(join.args["on"]):
                    _add_cell(select, predicate, values, only, numbers)
        if select.args.get("where"):
            for predicate in conjuncts(select.args["where"].this):
                _add_cell(select, predicate, values, None, numbers)
    for call in list(query.find_all(exp.Anonymous)):
        if is_distance(call):
            call.replace(exp.Paren(this=read_expression(spatial.distance_sql(*map(write_sql, call.expressions)))))


def conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    """The parts of a condition that must all hold."""
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        return [*conjuncts(condition.left), *conjuncts(condition.right)]
    return [condition]


def tables_of(node: exp.Expr) -> set[str]:
    """The aliases of the sources whose columns a node names."""
    return {column.table for column in node.find_all(exp.Column)}


def is_distance(node: exp.Expr) -> bool:
    """Whether a node is a call of `distance_km`."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == DISTANCE


def _add_cell(select: exp.Select, predicate: exp.Expr, values: str, only: str | None, numbers: count[int]) -> None:
    if isinstance(predicate, exp.LT | exp.LTE):
        distance, radius = predicate.left.unnest(), predicate.right.unnest()
    elif isinstance(predicate, exp.GT | exp.GTE):
        radius, distance = predicate.left.unnest(), predicate.right.unnest()
    else:
        return
    if not is_distance(distance):
        return
    places = distance.expressions[:2], distance.expressions[2:]
    sides = [tables_of(place[0]) | tables_of(place[1]) for place in places]
    if any(len(side) != 1 for side in sides) or sides[0] == sides[1]:
        return
    names = [side.pop() for side in sides]
    fixed = float(radius.this) if isinstance(radius, exp.Literal) and not radius.is_string else None
    if fixed is None and (tables_of(radius) - {values} or values not in names or radius.find(exp.Query)):
        return  # a radius that is known for neither side: the plain predicate has to do
    chosen = _exploded(select, names, values, only)
    if chosen is None:
        return
    column = f"__c{next(numbers)}"
    lat, lon = (f"CAST({write_sql(part)} AS DOUBLE)" for part in places[chosen])
    point_lat, point_lon = (f"CAST({write_sql(part)} AS DOUBLE)" for part in places[1 - chosen])
    if fixed is not None:
        circle, cell = spatial.circle_sql(lat, lon, fixed), spatial.cell_sql(point_lat, point_lon, fixed)
    else:
        circle = spatial.ladder_circle_sql(lat, lon)
        cell = spatial.ladder_cell_sql(point_lat, point_lon, f"CAST({write_sql(radius)} AS DOUBLE)")
    _explode(select, names[chosen], circle, column)
    equality = exp.EQ(this=exp.column(column, table=names[chosen], quoted=True), expression=read_expression(cell))
    predicate.replace(exp.Paren(this=exp.And(this=equality, expression=predicate.copy())))


def _exploded(select: exp.Select, names: list[str], values: str, only: str | None) -> int | None:
    """Which of the two sides is exploded: the new dataset, else what was joined last; never the values."""
    items = {item.alias_or_name: item for item in from_items(select) if isinstance(item, exp.Table | exp.Subquery)}
    order = list(items)
    able = [
        side for side in (0, 1) if names[side] in items and names[side] != values and only in (None, names[side])
    ]
    if not able:
        return None
    return max(able, key=lambda side: (_is_new(items[names[side]]), order.index(names[side])))


def _is_new(item: exp.Expr) -> bool:
    inner = item
    while isinstance(inner, exp.Subquery) and isinstance(inner.this, exp.Select) and inner.this.args.get("from_"):
        inner = inner.this.args["from_"].this
    return isinstance(inner, exp.Table) and inner.db == NEW


def _explode(select: exp.Select, alias: str, circle: str, column: str) -> None:
    item = next(item for item in from_items(select) if item.alias_or_name == alias)
    cells = read_expression(f"EXPLODE({circle})")
    for part in cells.find_all(exp.Column):
        if part.table == alias:
            part.set("table", exp.to_identifier(_INSIDE))
    inside = item.copy()
    inside.set("alias", exp.TableAlias(this=exp.to_identifier(_INSIDE)))
    wrapped = exp.select(exp.Column(this=exp.Star(), table=exp.to_identifier(_INSIDE)), exp.alias_(cells, column))
    wrapped.set("from_", exp.From(this=inside))
    item.replace(exp.Subquery(this=wrapped, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True))))
