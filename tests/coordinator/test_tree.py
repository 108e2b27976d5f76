"""The tree of the overlay: small examples, and rules for any order of events."""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st
from support.coordinator.trees import degrees, is_tree

from newsstand.coordinator.model import Link
from newsstand.coordinator.overlay import repaired
from newsstand.geo.location import UNKNOWN, LinkGraph, Location

CHAIN = LinkGraph([("one", "two"), ("two", "three"), ("three", "four")])
NAMES = st.sampled_from([f"b{number}" for number in range(12)])
PLACES = st.builds(
    Location,
    st.none() | st.integers(-90, 90),
    st.integers(-180, 180),
    st.none() | st.sampled_from(["one", "two", "three", "four", "elsewhere"]),
)


def test_new_broker_is_linked_to_nearest_on_globe() -> None:
    places = {"london": Location(51.5, -0.1), "boston": Location(42.4, -71.1), "paris": Location(48.9, 2.4)}
    links = repaired([("boston", "london")], places, LinkGraph())
    assert links == {("boston", "london"), ("london", "paris")}


def test_hops_precede_miles_where_network_connects() -> None:
    places = {"a": Location(50, 0, "one"), "b": Location(0, 0, "four"), "c": Location(1, 0, "two")}
    assert repaired([("a", "b")], places, CHAIN) == {("a", "b"), ("a", "c")}


def test_broker_at_its_limit_of_links_gets_no_more() -> None:
    places = {"hub": Location(0, 0), "x": Location(0, 30), "y": Location(0, 60), "new": Location(0, 1)}
    links = [("hub", "x"), ("hub", "y")]
    assert repaired(links, places, LinkGraph(), 3) == {*links, ("hub", "new")}
    assert repaired(links, places, LinkGraph(), 2) == {*links, ("new", "x")}


def test_new_broker_without_locations_is_linked_to_centre_then_first() -> None:
    links = [("a", "b"), ("b", "c")]
    assert repaired(links, dict.fromkeys("abcd", UNKNOWN), LinkGraph()) == {*links, ("b", "d")}
    assert repaired(links, dict.fromkeys("abcd", UNKNOWN), LinkGraph(), 2) == {*links, ("a", "d")}


def test_paths_without_locations_stay_short_as_brokers_join() -> None:
    links: frozenset[Link] = frozenset()
    names = [f"edge{number:02d}" for number in range(40)]
    for number in range(len(names)):
        links = repaired(links, dict.fromkeys(names[: number + 1], UNKNOWN), LinkGraph())
    overlay = nx.Graph(links)
    assert nx.is_tree(overlay)
    assert nx.diameter(overlay) <= 7


def test_parts_left_by_dead_broker_are_linked_by_nearest_pairs() -> None:
    places = {name: Location(0, east) for name, east in {"a": 0, "b": 10, "c": 30, "d": 35, "e": 80}.items()}
    links = [("a", "b"), ("b", "hub"), ("c", "hub"), ("d", "hub"), ("d", "e")]
    assert repaired(links, places, LinkGraph()) == {("a", "b"), ("d", "e"), ("c", "d"), ("b", "c")}


def test_tree_of_at_most_one_broker_has_no_links() -> None:
    assert repaired([("a", "b")], {}, LinkGraph()) == frozenset()
    assert repaired([("a", "b")], {"a": UNKNOWN}, LinkGraph()) == frozenset()


def test_lower_limit_cuts_no_link_and_adds_none_above_it() -> None:
    star = {("a", name) for name in "bcde"}
    links = repaired(star, dict.fromkeys("abcdef", UNKNOWN), LinkGraph(), 2)
    assert links == {*star, ("b", "f")}


@given(st.lists(st.dictionaries(NAMES, PLACES, max_size=12), max_size=6), st.integers(2, 5))
def test_tree_has_few_links_per_broker_and_few_changes(times: list[Mapping[str, Location]], degree: int) -> None:
    links: frozenset[Link] = frozenset()
    for places in times:
        before, links = links, repaired(links, places, CHAIN, degree)
        assert is_tree(links, places)
        assert max(degrees(links).values(), default=0) <= degree
        assert links >= {link for link in before if set(link) <= places.keys()}, "no link is cut without need"
        assert links == repaired(links, dict(reversed(places.items())), CHAIN, degree), "nothing is left to do"


@given(st.dictionaries(NAMES, PLACES, max_size=12), st.sets(st.tuples(NAMES, NAMES).map(sorted).map(tuple)))
def test_tree_results_from_any_links(places: Mapping[str, Location], links: set[Link]) -> None:
    made = repaired(links, places, CHAIN)
    assert is_tree(made, places)
    assert made == repaired(sorted(links, reverse=True), dict(reversed(places.items())), CHAIN), "in any order"
    had = degrees(link for link in made if link in links)
    assert all(count <= max(4, had[name]) for name, count in degrees(made).items())


@given(st.dictionaries(NAMES, PLACES, min_size=2, max_size=12), st.data())
def test_new_broker_changes_one_link_and_death_one_less_than_it_had(
    places: dict[str, Location], data: st.DataObject
) -> None:
    links = repaired([], places, CHAIN)
    gone = data.draw(st.sampled_from(sorted(places)))
    left = {name: place for name, place in places.items() if name != gone}
    after = repaired(links, left, CHAIN)
    lost = degrees(links)[gone]
    assert (len(links - after), len(after - links)) == (lost, lost - 1)
    back = repaired(after, places, CHAIN)
    assert after < back
    assert len(back - after) == 1
