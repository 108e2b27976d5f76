"""Distances in a query: `distance_km` as Spark SQL, and a grid that turns "nearer than r" into a hash join.

`distance_km(lat1, lon1, lat2, lon2)` in a channel's query is the haversine distance in kilometres on a sphere of
the Earth's mean radius. It is null, so that nothing matches, for a latitude outside [-90, 90] or a longitude
outside [-360, 360]; longitudes wrap.

The grid has rows of equal height h from pole to pole; row j has n(j) equal columns. A point lies in one cell. A
circle is assigned the cells that it touches, each once. So for two points at most r apart exactly one of the
circle's cells is the other point's cell, and an equality on cells, in addition to the predicate, changes no
result. n(j) takes additions, multiplications and divisions only, which give the same bits on every machine.

`add_cells` adds these equalities to predicates `distance_km(…) < r`: one side is exploded into the cells of its
circle, the other side gets its cell. The new dataset is exploded if it is one of the sides: it has few rows.
"""

from __future__ import annotations

import math
from itertools import count
from typing import NamedTuple

from sqlglot import exp

from newsstand.cluster.query.dialect import DISTANCE, read_expression, write_sql
from newsstand.cluster.query.name_resolution import NEW, from_items

EARTH_KM = 6371.0088
"""The mean radius of the Earth."""

LADDER_KM = (0.25, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)
"""Radii of the grids for a radius that is a parameter; one more grid is for all larger radii."""

_RADII_KM = (*LADDER_KM, math.pi * EARTH_KM)
_KM_PER_DEGREE = EARTH_KM * math.pi / 180
_LEAST_HEIGHT = 4e-6
_SLACK = 1e-6  # degrees, about 0.1 m: far more than rounding can do
_ROW = 2**29  # more than the columns of any row
_LEVEL = 2**57  # more than the cells of any grid


def distance_sql(lat1: str, lon1: str, lat2: str, lon2: str) -> str:
    """Return the haversine distance in kilometres between two points; each coordinate is a SQL expression."""
    lat1, lon1, lat2, lon2 = (f"CAST({text} AS DOUBLE)" for text in (lat1, lon1, lat2, lon2))
    north = f"SIN(RADIANS({lat2} - {lat1}) / 2)"
    east = f"SIN(RADIANS({lon2} - {lon1}) / 2)"
    square = f"{north} * {north} + COS(RADIANS({lat1})) * COS(RADIANS({lat2})) * {east} * {east}"
    kilometres = f"{_double(2 * EARTH_KM)} * ASIN(LEAST({_double(1)}, SQRT({square})))"
    return f"CASE WHEN {_on_earth(lat1, lon1)} AND {_on_earth(lat2, lon2)} THEN {kilometres} END"


def cell_sql(lat: str, lon: str, radius: float | str) -> str:
    """Return the cell of a point in the grid for circles of this radius; null for an invalid point.

    A radius that is known at run time only is a SQL expression; it selects a grid of the ladder.
    """
    if not isinstance(radius, str):
        cell = _cell(lat, lon, _Grid.of(radius))
    else:
        *grids, largest = (_Grid.of(limit, level).sql() for level, limit in enumerate(_RADII_KM))
        limits = zip(LADDER_KM, grids, strict=True)
        cases = " ".join(f"WHEN {radius} <= {_double(limit)} THEN {grid}" for limit, grid in limits)
        cell = f"TRANSFORM(ARRAY(CASE {cases} ELSE {largest} END), __grid -> {_cell(lat, lon, _LAMBDA)})[0]"
    return f"CASE WHEN {_on_earth(lat, lon)} THEN {cell} END"


def circle_sql(lat: str, lon: str, radius_km: float | None) -> str:
    """Return the cells that the circle around a point touches, each once; for all grids of the ladder if None."""
    if radius_km is not None:
        cells = _circle(lat, lon, _Grid.of(radius_km))
    else:
        grids = ", ".join(_Grid.of(limit, level).sql() for level, limit in enumerate(_RADII_KM))
        cells = f"FLATTEN(TRANSFORM(ARRAY({grids}), __grid -> {_circle(lat, lon, _LAMBDA)}))"
    return f"CASE WHEN {_on_earth(lat, lon)} THEN {cells} END"


class _Grid(NamedTuple):
    """A grid for circles of one radius: SQL expressions, literals or fields of a struct."""

    first_cell: str
    height: str
    last_row: str
    per_degree: str
    """Columns of a row at the equator."""
    angle: str
    """The radius of a circle in degrees, rounded up."""
    sine: str
    """The sine of this angle."""

    @classmethod
    def of(cls, radius_km: float, level: int = 0) -> _Grid:
        # Twice a circle's radius in degrees: the circle then touches about four cells.
        height = min(180.0, max(_LEAST_HEIGHT, 2 * radius_km / _KM_PER_DEGREE))
        angle = max(0.0, radius_km) / _KM_PER_DEGREE
        angle += _SLACK + 1e-9 * angle
        return cls(
            _long(level * _LEVEL),
            _double(height),
            _long(max(1, math.ceil(180 / height)) - 1),
            _double(360 / height),
            _double(angle),
            _double(math.sin(math.radians(min(90.0, angle)))),
        )

    def sql(self) -> str:
        """Return the grid as a struct."""
        fields = ", ".join(f"'{name}', {value}" for name, value in self._asdict().items())
        return f"NAMED_STRUCT({fields})"


_LAMBDA = _Grid(*(f"__grid.{name}" for name in _Grid._fields))
"""The grid that is the argument of a lambda, so that an expression for several grids is planned once."""


def _on_earth(lat: str, lon: str) -> str:
    return f"{_within(lat, 90)} AND {_within(lon, 360)}"


def _within(angle: str, most: float) -> str:
    # With BETWEEN Spark would not recognize the equality on cells.
    return f"{angle} >= {_double(-most)} AND {angle} <= {_double(most)}"


def _row(lat: str, grid: _Grid) -> str:
    """Return the row of a latitude; latitudes beyond a pole are in the row of the pole."""
    row = f"FLOOR(({lat} + {_double(90)}) / {grid.height})"
    return f"GREATEST({_long(0)}, LEAST({grid.last_row}, {row}))"


def _columns(row: str, grid: _Grid) -> str:
    """Return the number of columns of a row, by a parabola below the cosine, whose factors are exact."""
    south = f"ABS({row} * {grid.height} - {_double(90)})"
    north = f"ABS(({row} + 1) * {grid.height} - {_double(90)})"
    outer = f"LEAST({_double(90)}, GREATEST({south}, {north})) / {_double(90)}"
    return f"GREATEST({_long(1)}, FLOOR({grid.per_degree} * ({_double(1)} - ({outer}) * ({outer}))))"


def _column(lon: str, columns: str) -> str:
    return f"FLOOR(({lon} + {_double(180)}) / {_double(360)} * {columns})"


def _cell(lat: str, lon: str, grid: _Grid) -> str:
    row = _row(lat, grid)
    columns = _columns(row, grid)
    return f"{grid.first_cell} + {row} * {_long(_ROW)} + PMOD({_column(lon, columns)}, {columns})"


def _circle(lat: str, lon: str, grid: _Grid) -> str:
    first, last = _row(f"({lat} - {grid.angle})", grid), _row(f"({lat} + {grid.angle})", grid)
    # A circle that includes a pole has points at every longitude.
    reach = f"DEGREES(ASIN(LEAST({_double(1)}, {grid.sine} / COS(RADIANS({lat}))))) + {_double(_SLACK)}"
    width = f"CASE WHEN ABS({lat}) + {grid.angle} >= {_double(89.999999)} THEN {_double(360)} ELSE {reach} END"
    columns, west, east = "__ring.columns", "__ring.west", "__ring.east"
    rings = (
        f"TRANSFORM(SEQUENCE({first}, {last}), __row -> NAMED_STRUCT("
        f"'row', __row, 'columns', {_columns('__row', grid)}, "
        f"'from', {lon} - ({width}), 'until', {lon} + ({width})))"
    )
    spans = (
        f"TRANSFORM({rings}, __ring -> NAMED_STRUCT('row', __ring.row, 'columns', __ring.columns, "
        f"'west', {_column('__ring.from', columns)}, 'east', {_column('__ring.until', columns)}))"
    )
    start = f"IF({east} - {west} >= {columns}, {_long(0)}, {west})"
    end = f"IF({east} - {west} >= {columns}, {columns} - 1, {east})"
    place = f"{grid.first_cell} + __ring.row * {_long(_ROW)} + PMOD(__column, {columns})"
    return f"FLATTEN(TRANSFORM({spans}, __ring -> TRANSFORM(SEQUENCE({start}, {end}), __column -> {place})))"


def _double(value: float) -> str:
    return f"CAST({float(value)!r} AS DOUBLE)" if value >= 0 else f"(-CAST({-float(value)!r} AS DOUBLE))"


def _long(value: int) -> str:
    return f"CAST({value} AS BIGINT)"


_INSIDE = "__x"


def add_cells(query: exp.Query, values: str) -> None:
    """Add the equalities and replace `distance_km`, in place; `values` is the alias of the subscribed values."""
    numbers = count(1)
    for select in list(query.find_all(exp.Select)):
        for join in select.args.get("joins") or ():
            if join.args.get("on") is not None and join.side in ("", "LEFT"):
                # An outer join keeps the rows of its left side: only its right side can be exploded.
                only = join.this.alias_or_name if join.side or join.kind in ("SEMI", "ANTI") else None
                for predicate in conjuncts(join.args["on"]):
                    _add_cell(select, predicate, values, only, numbers)
        if select.args.get("where"):
            for predicate in conjuncts(select.args["where"].this):
                _add_cell(select, predicate, values, None, numbers)
    for call in list(query.find_all(exp.Anonymous)):
        if is_distance(call):
            call.replace(exp.Paren(this=read_expression(distance_sql(*map(write_sql, call.expressions)))))


def conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    """Return the parts of a condition that must all hold, from left to right; a chain may be long."""
    found, pending = [], [condition]
    while pending:
        one = pending.pop().unnest()
        if isinstance(one, exp.And):
            pending += [one.right, one.left]
        else:
            found.append(one)
    return found


def tables_of(node: exp.Expr) -> set[str]:
    """Return the aliases of the sources whose columns a node uses."""
    return {column.table for column in node.find_all(exp.Column)}


def is_distance(node: exp.Expr) -> bool:
    """Return whether a node is a call of `distance_km`."""
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
        return  # the radius is known for neither side: only the predicate remains
    chosen = _exploded(select, names, values, only)
    if chosen is None:
        return
    column = f"__c{next(numbers)}"
    lat, lon = (f"CAST({write_sql(part)} AS DOUBLE)" for part in places[chosen])
    point_lat, point_lon = (f"CAST({write_sql(part)} AS DOUBLE)" for part in places[1 - chosen])
    _explode(select, names[chosen], circle_sql(lat, lon, fixed), column)
    limit = f"CAST({write_sql(radius)} AS DOUBLE)" if fixed is None else fixed
    cell = read_expression(cell_sql(point_lat, point_lon, limit))
    equality = exp.EQ(this=exp.column(column, table=names[chosen], quoted=True), expression=cell)
    predicate.replace(exp.Paren(this=exp.And(this=equality, expression=predicate.copy())))


def _exploded(select: exp.Select, names: list[str], values: str, only: str | None) -> int | None:
    """Return the side to explode: the new dataset, else what was joined last; never the values."""
    items = {item.alias_or_name: item for item in from_items(select) if isinstance(item, exp.Table | exp.Subquery)}
    order = [name for name in items if name != values and only in (None, name)]
    able = [side for side in (0, 1) if names[side] in order]
    return max(able, key=lambda side: (_is_new(items[names[side]]), order.index(names[side])), default=None)


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
    item.replace(wrapped.from_(inside).subquery(exp.to_identifier(alias, quoted=True)))
