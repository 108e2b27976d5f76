"""Miles over the globe: exact where they are known, accurate for neighbours and antipodes, in 32 bits as well."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from newsstand.errors import BadOption
from newsstand.geo.globe import (
    Locations,
    miles,
    nearest_locations,
    scattered,
)
from newsstand.geo.location import EARTH_RADIUS_MILES

QUARTER = math.pi / 2 * EARTH_RADIUS_MILES
A_FOOT = 1 / 5280

places = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


def between(one: tuple[float, float], other: tuple[float, float]) -> float:
    return float(miles(Locations.of([one]), Locations.of([other]))[0])


def by_law_of_cosines(one: tuple[float, float], other: tuple[float, float]) -> float:
    (south, west), (north, east) = [(math.radians(a), math.radians(b)) for a, b in (one, other)]
    cosine = math.sin(south) * math.sin(north) + math.cos(south) * math.cos(north) * math.cos(east - west)
    return EARTH_RADIUS_MILES * math.acos(max(-1.0, min(1.0, cosine)))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((0, 0), (0, 90), QUARTER),
        ((0, 0), (90, 17), QUARTER),
        ((90, 0), (-90, 0), 2 * QUARTER),
        ((30, 40), (-30, -140), 2 * QUARTER),
        ((10, 180), (10, -180), 0.0),
        ((90, 12), (90, -77), 0.0),
        ((45, 10), (45, 10), 0.0),
        ((0, 0), (1, 0), QUARTER / 90),
    ],
)
def test_miles_of_known_routes(one: tuple[float, float], other: tuple[float, float], expected: float) -> None:
    assert between(one, other) == pytest.approx(expected, abs=1e-6)


@given(one=places, other=places)
def test_miles_agree_with_law_of_cosines(one: tuple[float, float], other: tuple[float, float]) -> None:
    # The arc cosine of a number near 1 or -1 is good to the root of its precision: 1.5e-8 of the radius.
    assert between(one, other) == pytest.approx(by_law_of_cosines(one, other), abs=1e-3)
    assert between(one, other) == between(other, one)


@given(one=places, north=st.floats(-1e-4, 1e-4), east=st.floats(-1e-4, 1e-4))
def test_miles_are_accurate_for_neighbours_and_antipodes(
    one: tuple[float, float], north: float, east: float
) -> None:
    latitude, longitude = max(-89.9, min(89.9, one[0])), max(-179.9, min(179.9, one[1]))
    near = (latitude + north, longitude + east)
    flat = math.hypot(north, east * math.cos(math.radians(latitude))) * QUARTER / 90
    assert between((latitude, longitude), near) == pytest.approx(flat, abs=A_FOOT)
    opposite = (-latitude, longitude - 180 if longitude > 0 else longitude + 180)
    assert between(opposite, near) == pytest.approx(2 * QUARTER - flat, abs=A_FOOT)


@given(pairs=st.lists(places, min_size=2, max_size=8))
def test_miles_lose_only_feet_in_32_bits(pairs: list[tuple[float, float]]) -> None:
    exact = Locations.of(pairs)
    rough = Locations(exact.latitudes.astype(np.float32), exact.longitudes.astype(np.float32))
    assert np.abs(miles(rough[0], rough) - miles(exact[0], exact)).max() < 20 * A_FOOT


@given(some=st.lists(places, min_size=1, max_size=12), candidates=st.lists(places, min_size=1, max_size=12))
def test_nearest_locations_have_least_miles(
    some: list[tuple[float, float]], candidates: list[tuple[float, float]]
) -> None:
    found = nearest_locations(Locations.of(some), Locations.of(candidates))
    every = miles(Locations(*[a[:, None] for a in columns(some)]), Locations.of(candidates))
    chosen = every[np.arange(len(some)), found]
    assert (chosen <= every.min(axis=1) + 1e-6).all()


def columns(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    found = Locations.of(pairs)
    return found.latitudes, found.longitudes


def test_nearest_locations_take_first_of_equals() -> None:
    candidates = Locations.of([(5, 5), (1, 1), (1, 1), (-1, -1)])
    assert nearest_locations(Locations.of([(0, 0), (2, 2)]), candidates).tolist() == [1, 1]


@given(centre=places, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(50))
def test_scattered_places_have_spread_even_at_pole(centre: tuple[float, float], seed: int) -> None:
    centres = Locations.of([centre] * 4000)
    made = scattered(centres, 50.0, np.random.default_rng(seed))
    # The length of an offset with two normal coordinates is 50·√(π/2) miles in the mean, with a deviation of 33.
    assert miles(centres, made).mean() == pytest.approx(50 * math.sqrt(math.pi / 2), abs=5 * 33 / math.sqrt(4000))
    again = scattered(centres, 50.0, np.random.default_rng(seed))
    assert (made.latitudes == again.latitudes).all()
    assert (made.longitudes == again.longitudes).all()


def test_scattered_places_stay_without_spread() -> None:
    centres = Locations.of([(12, 34), (90, 0), (0, -180)])
    assert miles(centres, scattered(centres, 0.0, np.random.default_rng(1))).max() < A_FOOT


@pytest.mark.parametrize(
    ("latitude", "longitude", "message"),
    [
        (90.5, 0, "latitude 90.5 is not between -90 and 90 degrees"),
        (0, -181, "longitude -181.0 is not between -180 and 180 degrees"),
        (float("nan"), 0, "latitude nan is not between -90 and 90 degrees"),
    ],
)
def test_locations_reject_invalid_degrees(latitude: float, longitude: float, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        Locations.of([(1, 1), (latitude, longitude)])


def test_globe_functions_reject_invalid_arguments() -> None:
    with pytest.raises(BadOption, match="2 latitudes and 1 longitudes"):
        Locations(np.zeros(2), np.zeros(1))
    with pytest.raises(BadOption, match="no candidates"):
        nearest_locations(Locations.of([(0, 0)]), Locations.of([]))
    with pytest.raises(BadOption, match="spread_miles -1"):
        scattered(Locations.of([(0, 0)]), -1.0, np.random.default_rng(1))
