"""Distances on the sphere as Spark SQL, and a grid that turns "nearer than r" into an equality Spark can hash.

`distance_km(lat1, lon1, lat2, lon2)` in a channel's query is the haversine distance in kilometres on a sphere of
the Earth's mean radius. It is null, so that nothing matches, for a latitude outside [-90, 90] or a longitude
outside [-360, 360]; longitudes wrap.

The grid: rows of equal height h from pole to pole, row j cut into n(j) equal columns. A point lies in one cell.
A circle is given the cells that it touches, each once. So for two points at most r apart exactly one of the
circle's cells is the other point's cell, and an equality on cells, added to the predicate and not put in its
place, changes no result. n(j) takes additions, multiplications and divisions only: the same bits on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

EARTH_KM = 6371.0088
"""The mean radius of the Earth."""

LADDER_KM = (0.25, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)
"""Radii of the grids that a radius given as a parameter can choose from; one more grid is for all larger ones."""

_KM_PER_DEGREE = EARTH_KM * math.pi / 180
_LEAST_HEIGHT = 4e-6
_SLACK = 1e-6  # degrees, about 0.1 m: far more than rounding can do
_ROW = 2**29  # more than the columns of any row
_LEVEL = 2**57  # more than the cells of any grid


def distance_sql(lat1: str, lon1: str, lat2: str, lon2: str) -> str:
    """The haversine distance in kilometres between two points, each coordinate a SQL expression."""
    lat1, lon1, lat2, lon2 = (f"CAST({text} AS DOUBLE)" for text in (lat1, lon1, lat2, lon2))
    north = f"SIN(RADIANS({lat2} - {lat1}) / 2)"
    east = f"SIN(RADIANS({lon2} - {lon1}) / 2)"
    square = f"{north} * {north} + COS(RADIANS({lat1})) * COS(RADIANS({lat2})) * {east} * {east}"
    kilometres = f"{_double(2 * EARTH_KM)} * ASIN(LEAST({_double(1)}, SQRT({square})))"
    return f"CASE WHEN {_on_earth(lat1, lon1)} AND {_on_earth(lat2, lon2)} THEN {kilometres} END"


def cell_sql(lat: str, lon: str, radius_km: float) -> str:
    """The cell of a point in the grid for circles of this radius; null for a point that is not on Earth."""
    return f"CASE WHEN {_on_earth(lat, lon)} THEN {_cell(lat, lon, _height(radius_km), 0)} END"


def circle_sql(lat: str, lon: str, radius_km: float) -> str:
    """The cells that the circle around a point touches, none of them twice; null as in `cell_sql`."""
    return f"CASE WHEN {_on_earth(lat, lon)} THEN {_circle(lat, lon, radius_km, _height(radius_km), 0)} END"


def ladder_cell_sql(lat: str, lon: str, radius: str) -> str:
    """The cell of a point in the grid that suits a radius known only at run time."""
    cases = " ".join(
        f"WHEN {radius} <= {_double(limit)} THEN {_cell(lat, lon, _height(limit), level)}"
        for level, limit in enumerate(LADDER_KM)
    )
    everywhere = _cell(lat, lon, _height(math.pi * EARTH_KM), len(LADDER_KM))
    return f"CASE WHEN {_on_earth(lat, lon)} THEN CASE {cases} ELSE {everywhere} END END"


def ladder_circle_sql(lat: str, lon: str) -> str:
    """The cells that circles around a point touch, for all grids of the ladder."""
    radii: Sequence[float] = (*LADDER_KM, math.pi * EARTH_KM)
    circles = ", ".join(_circle(lat, lon, radius, _height(radius), level) for level, radius in enumerate(radii))
    return f"CASE WHEN {_on_earth(lat, lon)} THEN FLATTEN(ARRAY({circles})) END"


def _height(radius_km: float) -> float:
    """Rows twice as high as a circle's radius: a circle touches some four cells of them."""
    return min(180.0, max(_LEAST_HEIGHT, 2 * radius_km / _KM_PER_DEGREE))


def _rows(height: float) -> int:
    return max(1, math.ceil(180 / height))


def _on_earth(lat: str, lon: str) -> str:
    return f"{_within(lat, 90)} AND {_within(lon, 360)}"


def _within(angle: str, most: float) -> str:
    # BETWEEN would hide from Spark that an equality on cells is one.
    return f"{angle} >= {_double(-most)} AND {angle} <= {_double(most)}"


def _row(lat: str, height: float) -> str:
    """The row of a latitude; what rounding or a circle pushes over a pole is in the row of the pole."""
    row = f"FLOOR(({lat} + {_double(90)}) / {_double(height)})"
    return f"GREATEST({_long(0)}, LEAST({_long(_rows(height) - 1)}, {row}))"


def _columns(row: str, height: float) -> str:
    """How many columns a row has: by a parabola below the cosine's curve, whose factors are exact everywhere."""
    south = f"ABS({row} * {_double(height)} - {_double(90)})"
    north = f"ABS(({row} + 1) * {_double(height)} - {_double(90)})"
    outer = f"LEAST({_double(90)}, GREATEST({south}, {north})) / {_double(90)}"
    return f"GREATEST({_long(1)}, FLOOR({_double(360 / height)} * ({_double(1)} - ({outer}) * ({outer}))))"


def _column(lon: str, columns: str) -> str:
    return f"FLOOR(({lon} + {_double(180)}) / {_double(360)} * {columns})"


def _cell(lat: str, lon: str, height: float, level: int) -> str:
    row = _row(lat, height)
    columns = _columns(row, height)
    return f"{_long(level * _LEVEL)} + {row} * {_long(_ROW)} + PMOD({_column(lon, columns)}, {columns})"


def _circle(lat: str, lon: str, radius_km: float, height: float, level: int) -> str:
    angle = max(0.0, radius_km) / _KM_PER_DEGREE
    angle += _SLACK + 1e-9 * angle
    first, last = _row(f"({lat} - {_double(angle)})", height), _row(f"({lat} + {_double(angle)})", height)
    # A circle that reaches a pole has points at every longitude.
    sine = f"{_double(math.sin(math.radians(min(90.0, angle))))} / COS(RADIANS({lat}))"
    reach = f"DEGREES(ASIN(LEAST({_double(1)}, {sine}))) + {_double(_SLACK)}"
    width = f"CASE WHEN ABS({lat}) + {_double(angle)} >= {_double(89.999999)} THEN {_double(360)} ELSE {reach} END"
    columns, west, east = "ring.columns", "ring.west", "ring.east"
    rings = (
        f"TRANSFORM(SEQUENCE({first}, {last}), row -> NAMED_STRUCT("
        f"'row', row, 'columns', {_columns('row', height)}, "
        f"'from', {lon} - ({width}), 'until', {lon} + ({width})))"
    )
    spans = (
        f"TRANSFORM({rings}, ring -> NAMED_STRUCT('row', ring.row, 'columns', ring.columns, "
        f"'west', {_column('ring.from', columns)}, 'east', {_column('ring.until', columns)}))"
    )
    start = f"IF({east} - {west} >= {columns}, {_long(0)}, {west})"
    end = f"IF({east} - {west} >= {columns}, {columns} - 1, {east})"
    place = f"{_long(level * _LEVEL)} + ring.row * {_long(_ROW)} + PMOD(column, {columns})"
    return f"FLATTEN(TRANSFORM({spans}, ring -> TRANSFORM(SEQUENCE({start}, {end}), column -> {place})))"


def _double(value: float) -> str:
    return f"CAST({float(value)!r} AS DOUBLE)" if value >= 0 else f"(-CAST({-float(value)!r} AS DOUBLE))"


def _long(value: int) -> str:
    return f"CAST({value} AS BIGINT)"
