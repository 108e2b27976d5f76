"""Each policy that chooses a broker, on small examples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import pytest

from newsstand.coordinator.registry import STRATEGIES, SelectionContext
from newsstand.geo.location import EARTH_RADIUS_MILES, NEVER, UNKNOWN, LinkGraph, Location, great_circle_miles

LONDON = Location(51.5074, -0.1278)
PARIS = Location(48.8566, 2.3522)
NEW_YORK = Location(40.7128, -74.0060)
AUCKLAND = Location(-36.8485, 174.7633)
SUVA = Location(-18.1248, 178.4501)
PAGO_PAGO = Location(-14.2756, -170.7020)


@dataclass(frozen=True)
class CandidateBroker:
    name: str
    place: Location = UNKNOWN
    load: tuple[float, float] = (0.0, 0.0)


def chosen(
    way: str, brokers: list[CandidateBroker], place: Location = UNKNOWN, links: list[tuple[str, str]] | None = None
) -> str:
    return STRATEGIES[way](brokers, place, SelectionContext(Random(3), LinkGraph(links or []))).name


def test_miles_agree_with_globe() -> None:
    assert great_circle_miles(LONDON, PARIS) == pytest.approx(213.5, abs=1)
    assert great_circle_miles(LONDON, NEW_YORK) == pytest.approx(3461, abs=5)
    assert great_circle_miles(PARIS, PARIS) == 0
    poles = great_circle_miles(Location(90, 0), Location(-90, 77))
    assert poles == pytest.approx(math.pi * EARTH_RADIUS_MILES)
    assert great_circle_miles(LONDON, UNKNOWN) == NEVER


def test_nearest_by_miles_chooses_nearest_broker_on_globe() -> None:
    brokers = [CandidateBroker("unknown"), CandidateBroker("america", NEW_YORK), CandidateBroker("france", PARIS)]
    assert chosen("miles", brokers, LONDON) == "france"
    across_the_date_line = [CandidateBroker("auckland", AUCKLAND), CandidateBroker("suva", SUVA)]
    assert chosen("miles", across_the_date_line, PAGO_PAGO) == "suva"


def test_nearest_by_hops_counts_links_instead_of_miles() -> None:
    links = [("broker", "a"), ("a", "b"), ("b", "c"), ("broker", "d"), ("d", "c")]
    brokers = [
        CandidateBroker("b", Location(node="b")),
        CandidateBroker("c", Location(node="c")),
        CandidateBroker("island", Location(node="x")),
    ]
    assert LinkGraph(links).hops("broker", "c") == 2
    assert LinkGraph(links).hops("broker", "x") == NEVER
    assert LinkGraph(links).hops("x", "x") == 0
    assert chosen("hops", brokers, Location(node="a"), links) == "b"
    assert chosen("hops", brokers, Location(node="d"), links) == "c"
    assert chosen("hops", brokers, Location(node="x"), links) == "island"


def test_nearest_uses_hops_where_known_and_miles_elsewhere() -> None:
    links = [("broker", "far"), ("near", "other")]
    far, near = (
        CandidateBroker("far", Location(40.7, -74.0, "far")),
        CandidateBroker("near", Location(48.9, 2.4, "near")),
    )
    assert chosen("nearest", [far, near], Location(51.5, -0.1, "broker"), links) == "far"
    assert chosen("nearest", [far, near], Location(51.5, -0.1, "nowhere"), links) == "near"
    assert chosen("nearest", [far, near], LONDON, links) == "near"


def test_nearest_broker_without_location_is_least_loaded() -> None:
    brokers = [
        CandidateBroker("a", PARIS, (0.5, 0)),
        CandidateBroker("b", LONDON, (0.2, 0)),
        CandidateBroker("c", UNKNOWN, (0.2, 0)),
    ]
    assert chosen("nearest", brokers) == "b"
    assert chosen("hops", brokers) == "b"


def test_least_loaded_compares_connections_then_subscribers_then_names() -> None:
    assert (
        chosen("least-loaded", [CandidateBroker("a", load=(0.2, 0)), CandidateBroker("b", load=(0.1, 9))]) == "b"
    )
    assert (
        chosen("least-loaded", [CandidateBroker("a", load=(0.1, 2)), CandidateBroker("b", load=(0.1, 1))]) == "b"
    )
    assert chosen("least-loaded", [CandidateBroker("b"), CandidateBroker("a")]) == "a"


def test_random_policy_chooses_all_brokers_equally_in_any_order() -> None:
    brokers = [CandidateBroker(name) for name in "abcd"]
    around, again = SelectionContext(Random(5)), SelectionContext(Random(5))
    drawn = [STRATEGIES["random"](brokers, UNKNOWN, around).name for _ in range(4000)]
    assert all(900 < drawn.count(name) < 1100 for name in "abcd")
    assert drawn == [STRATEGIES["random"](brokers[::-1], UNKNOWN, again).name for _ in range(4000)]
