"""Each way to choose a broker, exactly, on small examples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import pytest

from newsstand.coordinator.choosing import WAYS, Surroundings
from newsstand.planning.places import EARTH_RADIUS_MILES, NEVER, NOWHERE, Network, Place, great_circle_miles

LONDON = Place(51.5074, -0.1278)
PARIS = Place(48.8566, 2.3522)
NEW_YORK = Place(40.7128, -74.0060)
AUCKLAND = Place(-36.8485, 174.7633)
SUVA = Place(-18.1248, 178.4501)
PAGO_PAGO = Place(-14.2756, -170.7020)


@dataclass(frozen=True)
class Known:
    name: str
    place: Place = NOWHERE
    load: tuple[float, float] = (0.0, 0.0)


def chosen(
    way: str, brokers: list[Known], place: Place = NOWHERE, links: list[tuple[str, str]] | None = None
) -> str:
    return WAYS[way](brokers, place, Surroundings(Random(3), Network(links or []))).name


def test_miles_are_those_of_the_globe() -> None:
    assert great_circle_miles(LONDON, PARIS) == pytest.approx(213.5, abs=1)
    assert great_circle_miles(LONDON, NEW_YORK) == pytest.approx(3461, abs=5)
    assert great_circle_miles(PARIS, PARIS) == 0
    poles = great_circle_miles(Place(90, 0), Place(-90, 77))
    assert poles == pytest.approx(math.pi * EARTH_RADIUS_MILES)
    assert great_circle_miles(LONDON, NOWHERE) == NEVER


def test_by_miles_the_nearest_broker_over_the_globe_is_chosen() -> None:
    brokers = [Known("unknown"), Known("america", NEW_YORK), Known("france", PARIS)]
    assert chosen("miles", brokers, LONDON) == "france"
    across_the_date_line = [Known("auckland", AUCKLAND), Known("suva", SUVA)]
    assert chosen("miles", across_the_date_line, PAGO_PAGO) == "suva"


def test_by_hops_links_count_and_not_miles() -> None:
    links = [("home", "a"), ("a", "b"), ("b", "c"), ("home", "d"), ("d", "c")]
    brokers = [Known("b", Place(node="b")), Known("c", Place(node="c")), Known("island", Place(node="x"))]
    assert Network(links).hops("home", "c") == 2
    assert Network(links).hops("home", "x") == NEVER
    assert Network(links).hops("x", "x") == 0
    assert chosen("hops", brokers, Place(node="a"), links) == "b"
    assert chosen("hops", brokers, Place(node="d"), links) == "c"
    assert chosen("hops", brokers, Place(node="x"), links) == "island"


def test_nearest_is_by_hops_where_the_network_tells_and_by_miles_elsewhere() -> None:
    links = [("home", "far"), ("near", "other")]
    far, near = Known("far", Place(40.7, -74.0, "far")), Known("near", Place(48.9, 2.4, "near"))
    assert chosen("nearest", [far, near], Place(51.5, -0.1, "home"), links) == "far"
    assert chosen("nearest", [far, near], Place(51.5, -0.1, "nowhere"), links) == "near"
    assert chosen("nearest", [far, near], LONDON, links) == "near"


def test_without_a_place_the_nearest_is_the_least_loaded() -> None:
    brokers = [Known("a", PARIS, (0.5, 0)), Known("b", LONDON, (0.2, 0)), Known("c", NOWHERE, (0.2, 0))]
    assert chosen("nearest", brokers) == "b"
    assert chosen("hops", brokers) == "b"


def test_the_least_loaded_is_by_connections_then_by_subscribers_then_by_name() -> None:
    assert chosen("least-loaded", [Known("a", load=(0.2, 0)), Known("b", load=(0.1, 9))]) == "b"
    assert chosen("least-loaded", [Known("a", load=(0.1, 2)), Known("b", load=(0.1, 1))]) == "b"
    assert chosen("least-loaded", [Known("b"), Known("a")]) == "a"


def test_at_random_every_broker_is_chosen_as_often_whatever_the_order() -> None:
    brokers = [Known(name) for name in "abcd"]
    around, again = Surroundings(Random(5)), Surroundings(Random(5))
    drawn = [WAYS["random"](brokers, NOWHERE, around).name for _ in range(4000)]
    assert all(900 < drawn.count(name) < 1100 for name in "abcd")
    assert drawn == [WAYS["random"](brokers[::-1], NOWHERE, again).name for _ in range(4000)]
