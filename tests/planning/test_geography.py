"""Miles over the globe: exact where they are known, accurate for neighbours and antipodes, in 32 bits as well."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newsstand.errors import BadOption
from newsstand.planning.geography import (
    Places,
    miles,
    miles_matrix,
    nearest_places,
    scattered,
)
from newsstand.planning.places import EARTH_RADIUS_MILES

QUARTER = math.pi / 2 * EARTH_RADIUS_MILES
A_FOOT = 1 / 5280

places = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


def between(one: tuple[float, float], other: tuple[float, float]) -> float:
    return float(miles(Places.of([one]), Places.of([other]))[0])


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
def test_ways_whose_length_is_known(one: tuple[float, float], other: tuple[float, float], expected: float) -> None:
    assert between(one, other) == pytest.approx(expected, abs=1e-6)


@given(one=places, other=places)
def test_a_way_is_as_long_as_the_law_of_cosines_has_it(
    one: tuple[float, float], other: tuple[float, float]
) -> None:
    # The arc cosine of a number near 1 or -1 is good to the root of its precision: 1.5e-8 of the radius.
    assert between(one, other) == pytest.approx(by_law_of_cosines(one, other), abs=1e-3)
    assert between(one, other) == between(other, one)


@given(one=places, north=st.floats(-1e-4, 1e-4), east=st.floats(-1e-4, 1e-4))
def test_neighbours_and_antipodes_are_told_apart_to_the_foot(
    one: tuple[float, float], north: float, east: float
) -> None:
    latitude, longitude = max(-89.9, min(89.9, one[0])), max(-179.9, min(179.9, one[1]))
    near = (latitude + north, longitude + east)
    flat = math.hypot(north, east * math.cos(math.radians(latitude))) * QUARTER / 90
    assert between((latitude, longitude), near) == pytest.approx(flat, abs=A_FOOT)
    opposite = (-latitude, longitude - 180 if longitude > 0 else longitude + 180)
    assert between(opposite, near) == pytest.approx(2 * QUARTER - flat, abs=A_FOOT)


@given(pairs=st.lists(places, min_size=2, max_size=8))
def test_places_in_32_bits_cost_feet_and_not_miles(pairs: list[tuple[float, float]]) -> None:
    exact = Places.of(pairs)
    rough = Places(exact.latitudes.astype(np.float32), exact.longitudes.astype(np.float32))
    assert np.abs(miles(rough[0], rough) - miles(exact[0], exact)).max() < 20 * A_FOOT
    assert miles_matrix(rough, exact).dtype == np.float32
    assert np.abs(miles_matrix(exact, exact)[0] - miles(exact[0], exact)).max() < 20 * A_FOOT


@given(some=st.lists(places, min_size=1, max_size=12), candidates=st.lists(places, min_size=1, max_size=12))
def test_the_nearest_place_has_no_nearer_one(
    some: list[tuple[float, float]], candidates: list[tuple[float, float]]
) -> None:
    found = nearest_places(Places.of(some), Places.of(candidates))
    every = miles(Places(*[a[:, None] for a in columns(some)]), Places.of(candidates))
    chosen = every[np.arange(len(some)), found]
    assert (chosen <= every.min(axis=1) + 1e-6).all()


def columns(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    found = Places.of(pairs)
    return found.latitudes, found.longitudes


def test_of_equally_near_places_it_is_the_first() -> None:
    candidates = Places.of([(5, 5), (1, 1), (1, 1), (-1, -1)])
    assert nearest_places(Places.of([(0, 0), (2, 2)]), candidates).tolist() == [1, 1]


@given(centre=places, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_scattered_places_are_as_far_off_as_the_spread_says_even_at_a_pole(
    centre: tuple[float, float], seed: int
) -> None:
    centres = Places.of([centre] * 4000)
    made = scattered(centres, 50.0, np.random.default_rng(seed))
    # The length of an offset with two normal coordinates is 50·√(π/2) miles in the mean, with a deviation of 33.
    assert miles(centres, made).mean() == pytest.approx(50 * math.sqrt(math.pi / 2), abs=5 * 33 / math.sqrt(4000))
    again = scattered(centres, 50.0, np.random.default_rng(seed))
    assert (made.latitudes == again.latitudes).all()
    assert (made.longitudes == again.longitudes).all()


def test_without_a_spread_places_stay() -> None:
    centres = Places.of([(12, 34), (90, 0), (0, -180)])
    assert miles(centres, scattered(centres, 0.0, np.random.default_rng(1))).max() < A_FOOT


@pytest.mark.parametrize(
    ("latitude", "longitude", "message"),
    [
        (90.5, 0, "latitude 90.5 is not between -90 and 90 degrees"),
        (0, -181, "longitude -181.0 is not between -180 and 180 degrees"),
        (float("nan"), 0, "latitude nan is not between -90 and 90 degrees"),
    ],
)
def test_what_is_not_on_the_globe_is_refused(latitude: float, longitude: float, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        Places.of([(1, 1), (latitude, longitude)])


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(BadOption, match="2 latitudes and 1 longitudes"):
        Places(np.zeros(2), np.zeros(1))
    with pytest.raises(BadOption, match="no candidates"):
        nearest_places(Places.of([(0, 0)]), Places.of([]))
    with pytest.raises(BadOption, match="spread_miles is -1"):
        scattered(Places.of([(0, 0)]), -1.0, np.random.default_rng(1))
