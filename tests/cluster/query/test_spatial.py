"""The grid finds the same pairs as brute force, each once."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.profiles import examples

from newsstand.cluster.query.spatial import EARTH_KM, cell_sql, circle_sql, distance_sql

Points = list[tuple[float, float]]

LATITUDES = st.one_of(st.floats(-90, 90), st.sampled_from([-90.0, 90.0, 89.99999, -89.999, 0.0, -0.0, 45.0]))
LONGITUDES = st.one_of(
    st.floats(-360, 360), st.sampled_from([-360.0, -180.0, 180.0, 179.99999, -179.99999, 0.0, 360.0])
)
RADII = [0.0, 0.001, 0.24, 5.0, 130.0, 3000.0, 9000.0, 15_000.0, 20_016.0]
DISTANCE = distance_sql("a.lat", "a.lon", "b.lat", "b.lon")


def brute_force(points: Points) -> np.ndarray:
    """All distances by the law of haversines, in NumPy."""
    lat, lon = np.radians(np.array(points)).T
    square = np.sin((lat[:, None] - lat) / 2) ** 2
    square += np.cos(lat[:, None]) * np.cos(lat) * np.sin((lon[:, None] - lon) / 2) ** 2
    return np.asarray(2 * EARTH_KM * np.arcsin(np.minimum(1, np.sqrt(square))))


def grid(spark: SparkSession, points: Points, radius: float, circles: str, cell: str) -> Counter[tuple[int, int]]:
    frame = pd.DataFrame({"i": range(len(points)), "lat": [p[0] for p in points], "lon": [p[1] for p in points]})
    spark.createDataFrame(frame).createOrReplaceTempView("points")
    rows = spark.sql(
        f"SELECT a.i, b.i, {DISTANCE} FROM (SELECT *, EXPLODE({circles}) AS c FROM points) a "
        f"JOIN points b ON a.c = {cell}"
    ).collect()
    return Counter((row[0], row[1]) for row in rows if row[2] <= radius)


def agree(found: Counter[tuple[int, int]], points: Points, radius: float) -> None:
    assert set(found.values()) <= {1}, "a pair is met more than once"
    distances = brute_force(points)
    # Two ways to calculate may differ in the last bits: a pair at the very edge may be on either side.
    must = {tuple(pair) for pair in np.argwhere(distances < radius * (1 - 1e-9) - 1e-7).tolist()}
    may = {tuple(pair) for pair in np.argwhere(distances <= radius * (1 + 1e-9) + 1e-7).tolist()}
    assert must <= set(found) <= may


def crowd(seed: int, size: int) -> Points:
    """Points all over the Earth, at the poles and the date line, and close to one another."""
    random = np.random.default_rng(seed)
    lat = np.degrees(np.arcsin(random.uniform(-1, 1, size)))
    lon = random.uniform(-180, 180, size)
    third = size // 3
    lat[:third] = random.choice([-90, 90, 89.9999, -89.99, 89, 0, 45], third)
    lon[:third] = random.choice([-180, 180, 0, 179.9999, -179.9999, 360, -360], third)
    near = random.choice([1e-6, 1e-3, 0.05, 1.0], third)
    lat[third : 2 * third] = np.clip(lat[:third] + random.normal(0, 1, third) * near, -90, 90)
    lon[third : 2 * third] = np.clip(lon[:third] + random.normal(0, 1, third) * near, -360, 360)
    return list(zip(lat.tolist(), lon.tolist(), strict=True))


@pytest.mark.parametrize("radius", RADII)
def test_grid_of_fixed_radius_agrees_with_brute_force(spark: SparkSession, radius: float) -> None:
    points = crowd(1, 300)
    agree(
        grid(spark, points, radius, circle_sql("lat", "lon", radius), cell_sql("b.lat", "b.lon", radius)),
        points,
        radius,
    )


def test_ladder_agrees_with_brute_force_for_every_radius(spark: SparkSession) -> None:
    points = crowd(2, 200)
    frame = pd.DataFrame({"i": range(200), "lat": [p[0] for p in points], "lon": [p[1] for p in points]})
    spark.createDataFrame(frame).createOrReplaceTempView("points")
    spark.createDataFrame([(radius,) for radius in RADII], "r double").createOrReplaceTempView("radii")
    rows = spark.sql(
        f"SELECT b.r, a.i, b.i FROM (SELECT *, EXPLODE({circle_sql('lat', 'lon', None)}) AS c FROM points) a "
        f"JOIN (SELECT * FROM points, radii) b ON a.c = {cell_sql('b.lat', 'b.lon', 'b.r')} "
        f"WHERE {DISTANCE} <= b.r"
    ).collect()
    for radius in RADII:
        agree(Counter((row[1], row[2]) for row in rows if row[0] == radius), points, radius)


def test_names_within_expressions_are_none_of_users() -> None:
    """A dataset or an alias may be named like the argument of a lambda; names of users do not begin with `__`."""
    names = re.findall(r"(\w+) ->", circle_sql("lat", "lon", None) + cell_sql("lat", "lon", "km"))
    assert {name[:2] for name in names} == {"__"}


@settings(max_examples=examples(12, light=4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(points=st.lists(st.tuples(LATITUDES, LONGITUDES), min_size=2, max_size=40), radius=st.floats(0, 20_100))
def test_spatial_join_agrees_with_brute_force(spark: SparkSession, points: Points, radius: float) -> None:
    agree(
        grid(spark, points, radius, circle_sql("lat", "lon", radius), cell_sql("b.lat", "b.lon", radius)),
        points,
        radius,
    )


def test_circle_touches_few_cells(spark: SparkSession) -> None:
    points = crowd(3, 300)
    frame = pd.DataFrame({"lat": [p[0] for p in points], "lon": [p[1] for p in points]})
    spark.createDataFrame(frame).createOrReplaceTempView("points")
    sizes = ", ".join(f"MAX(SIZE({circle_sql('lat', 'lon', radius)}))" for radius in RADII)
    assert max(spark.sql(f"SELECT {sizes} FROM points").collect()[0]) <= 20


def test_invalid_point_has_no_distance_and_no_cell(spark: SparkSession) -> None:
    for lat, lon in (("90.1D", "0D"), ("-91D", "0D"), ("0D", "361D"), ("CAST(NULL AS DOUBLE)", "0D")):
        row = spark.sql(
            f"SELECT {distance_sql(lat, lon, '0D', '0D')}, {cell_sql(lat, lon, 5)}, {circle_sql(lat, lon, 5)}, "
            f"{cell_sql(lat, lon, '5D')}, {circle_sql(lat, lon, None)}"
        ).collect()[0]
        assert list(row) == [None] * 5


def test_distances_equal_published_values(spark: SparkSession) -> None:
    zurich_bern = distance_sql("47.3769D", "8.5417D", "46.9480D", "7.4474D")
    around = distance_sql("0D", "179.5D", "0D", "-179.5D")
    poles = distance_sql("90", "17", "-90", "-3")
    row = spark.sql(f"SELECT {zurich_bern}, {around}, {poles}").collect()[0]
    assert row[0] == pytest.approx(95.5, abs=0.5)
    assert row[1] == pytest.approx(np.pi * EARTH_KM / 180)
    assert row[2] == pytest.approx(np.pi * EARTH_KM)
