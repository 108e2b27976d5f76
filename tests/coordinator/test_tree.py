"""The tree of the overlay: exactly on small examples, and by its rules whatever comes and goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from newsstand.coordinator.records import Link
from newsstand.coordinator.tree import mended, neighbours
from newsstand.planning.places import NOWHERE, Network, Place

CHAIN = Network([("one", "two"), ("two", "three"), ("three", "four")])
NAMES = st.sampled_from([f"b{number}" for number in range(12)])
PLACES = st.builds(
    Place,
    st.none() | st.integers(-90, 90),
    st.integers(-180, 180),
    st.none() | st.sampled_from(["one", "two", "three", "four", "elsewhere"]),
)


def is_tree(links: Iterable[Link], names: Iterable[str]) -> bool:
    """Whether the links reach everybody, and are as few as that needs."""
    links, names = set(links), set(names)
    reached, edge = set(), [min(names)] if names else []
    while edge:
        name = edge.pop()
        reached.add(name)
        edge += [one for one in neighbours(links, name) if one not in reached]
    ends = {end for link in links for end in link}
    return reached == names >= ends and len(links) == max(0, len(names) - 1) and all(a < b for a, b in links)


def degrees(links: Iterable[Link]) -> Counter[str]:
    return Counter(end for link in links for end in link)


def test_a_newcomer_is_linked_to_the_nearest_on_the_globe() -> None:
    places = {"london": Place(51.5, -0.1), "boston": Place(42.4, -71.1), "paris": Place(48.9, 2.4)}
    links = mended([("boston", "london")], places, Network())
    assert links == {("boston", "london"), ("london", "paris")}


def test_hops_go_before_miles_where_the_network_connects() -> None:
    places = {"a": Place(50, 0, "one"), "b": Place(0, 0, "four"), "c": Place(1, 0, "two")}
    assert mended([("a", "b")], places, CHAIN) == {("a", "b"), ("a", "c")}


def test_a_broker_with_as_many_links_as_it_may_have_gets_no_more() -> None:
    places = {"hub": Place(0, 0), "x": Place(0, 30), "y": Place(0, 60), "new": Place(0, 1)}
    links = [("hub", "x"), ("hub", "y")]
    assert mended(links, places, Network(), 3) == {*links, ("hub", "new")}
    assert mended(links, places, Network(), 2) == {*links, ("new", "x")}


def test_without_places_it_is_who_is_in_the_middle_then_the_first() -> None:
    links = [("a", "b"), ("b", "c")]
    assert mended(links, dict.fromkeys("abcd", NOWHERE), Network()) == {*links, ("b", "d")}
    assert mended(links, dict.fromkeys("abcd", NOWHERE), Network(), 2) == {*links, ("a", "d")}


def test_without_places_ways_stay_short_as_brokers_come() -> None:
    links: frozenset[Link] = frozenset()
    names = [f"edge{number:02d}" for number in range(40)]
    for number in range(len(names)):
        links = mended(links, dict.fromkeys(names[: number + 1], NOWHERE), Network())
    overlay = nx.Graph(links)
    assert nx.is_tree(overlay)
    assert nx.diameter(overlay) <= 7


def test_the_parts_that_a_dead_broker_leaves_are_linked_by_the_nearest_pairs() -> None:
    places = {name: Place(0, east) for name, east in {"a": 0, "b": 10, "c": 30, "d": 35, "e": 80}.items()}
    links = [("a", "b"), ("b", "hub"), ("c", "hub"), ("d", "hub"), ("d", "e")]
    assert mended(links, places, Network()) == {("a", "b"), ("d", "e"), ("c", "d"), ("b", "c")}


def test_nobody_and_one_alone_have_no_links() -> None:
    assert mended([("a", "b")], {}, Network()) == frozenset()
    assert mended([("a", "b")], {"a": NOWHERE}, Network()) == frozenset()


def test_a_lower_limit_cuts_no_link_and_adds_none_above_it() -> None:
    star = {("a", name) for name in "bcde"}
    links = mended(star, dict.fromkeys("abcdef", NOWHERE), Network(), 2)
    assert links == {*star, ("b", "f")}


@given(st.lists(st.dictionaries(NAMES, PLACES, max_size=12), max_size=6), st.integers(2, 5))
def test_it_is_always_a_tree_with_few_links_to_each_and_few_that_change(
    times: list[Mapping[str, Place]], degree: int
) -> None:
    links: frozenset[Link] = frozenset()
    for places in times:
        before, links = links, mended(links, places, CHAIN, degree)
        assert is_tree(links, places)
        assert max(degrees(links).values(), default=0) <= degree
        assert links >= {link for link in before if set(link) <= places.keys()}, "no link is cut without need"
        assert links == mended(links, dict(reversed(places.items())), CHAIN, degree), "nothing is left to do"


@given(st.dictionaries(NAMES, PLACES, max_size=12), st.sets(st.tuples(NAMES, NAMES).map(sorted).map(tuple)))
def test_whatever_links_there_were_a_tree_is_made_of_them(places: Mapping[str, Place], links: set[Link]) -> None:
    made = mended(links, places, CHAIN)
    assert is_tree(made, places)
    assert made == mended(sorted(links, reverse=True), dict(reversed(places.items())), CHAIN), "in any order"
    had = degrees(link for link in made if link in links)
    assert all(count <= max(4, had[name]) for name, count in degrees(made).items())


@given(st.dictionaries(NAMES, PLACES, min_size=2, max_size=12), st.data())
def test_a_newcomer_costs_one_link_and_a_death_one_less_than_it_had(
    places: dict[str, Place], data: st.DataObject
) -> None:
    links = mended([], places, CHAIN)
    gone = data.draw(st.sampled_from(sorted(places)))
    left = {name: place for name, place in places.items() if name != gone}
    after = mended(links, left, CHAIN)
    lost = degrees(links)[gone]
    assert (len(links - after), len(after - links)) == (lost, lost - 1)
    back = mended(after, places, CHAIN)
    assert after < back
    assert len(back - after) == 1
