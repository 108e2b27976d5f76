"""The two tables, step by step."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import FILTERS

from newsstand.overlay.advertisement_table import AdvertisementTable, Nearest
from newsstand.overlay.filters import Filter, covers
from newsstand.overlay.messages import (
    MOST_HOPS,
    MOST_TOPICS,
    Advertise,
    Publication,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Way,
)
from newsstand.overlay.subscription_table import SubscriptionTable
from newsstand.overlay.value_sets import (
    ANY_TEXT,
    NOTHING,
    ValueSet,
    above,
    at_least,
    at_most,
    below,
    only,
    other_than,
    starting,
)

STORMS = Filter.parse("topic = 'storms'")
SEVERE = Filter.parse("topic = 'storms' and severity >= 3")
SEVERE_TOO = Filter.parse("severity >= 3 and topic = 'storms'")
FIRES = Filter.parse("topic = 'fires'")


def linked(*neighbours: str, covering: bool = True) -> SubscriptionTable:
    table = SubscriptionTable(covering)
    for neighbour in neighbours:
        assert table.link_up(neighbour, tree=True) == []
    return table


def test_a_subscription_goes_to_all_neighbours_but_the_one_that_sent_it() -> None:
    table = linked("b", "c")
    assert table.add("ann", STORMS) == [("b", Subscribe(STORMS)), ("c", Subscribe(STORMS))]
    assert table.hear("b", FIRES) == [("c", Subscribe(FIRES))]
    assert table.heard() == {"b": {FIRES}, "c": frozenset()}


def test_a_second_subscriber_is_not_told_again_and_the_last_one_ends_it() -> None:
    table = linked("b")
    table.add("ann", STORMS)
    assert table.add("bob", STORMS) == []
    assert table.remove("ann", STORMS) == []
    assert table.remove("bob", STORMS) == [("b", Unsubscribe(STORMS))]
    assert table.remove("bob", STORMS) == []


def test_who_has_sent_a_filter_is_told_it_when_another_wants_it_too() -> None:
    table = linked("b", "c")
    table.hear("b", STORMS)
    assert table.add("ann", STORMS) == [("b", Subscribe(STORMS))]
    assert table.unhear("b", STORMS) == []
    assert table.remove("ann", STORMS) == [("b", Unsubscribe(STORMS)), ("c", Unsubscribe(STORMS))]


def test_a_covered_filter_is_told_when_what_covers_it_goes_and_before_that_is_told() -> None:
    table = linked("b")
    table.add("ann", STORMS)
    assert table.add("bob", SEVERE) == []
    assert table.remove("ann", STORMS) == [("b", Subscribe(SEVERE)), ("b", Unsubscribe(STORMS))]
    assert table.add("ann", STORMS) == [("b", Subscribe(STORMS)), ("b", Unsubscribe(SEVERE))]


def test_of_equal_filters_the_same_one_is_told_whichever_came_first() -> None:
    first, second = linked("b"), linked("b")
    for table, filters in ((first, (SEVERE, SEVERE_TOO)), (second, (SEVERE_TOO, SEVERE))):
        for wanted in filters:
            table.add("ann", wanted)
    assert first.told() == second.told() == {"b": {SEVERE_TOO}}
    first.remove("ann", SEVERE_TOO)
    assert first.told() == {"b": {SEVERE}}


def test_without_covering_everything_is_told() -> None:
    table = linked("b", covering=False)
    table.add("ann", STORMS)
    assert table.add("bob", SEVERE) == [("b", Subscribe(SEVERE))]


def test_a_link_outside_the_tree_is_noted_and_not_heeded() -> None:
    table = linked("b")
    table.add("ann", STORMS)
    assert table.link_up("c", tree=False) == []
    assert table.hear("c", FIRES) == []
    fire = Publication("a", 1, "fires")
    assert table.neighbours_of(fire, None) == []
    assert table.set_tree("c", True) == [("b", Subscribe(FIRES)), ("c", Subscribe(STORMS))]
    assert table.neighbours_of(fire, None) == ["c"]
    assert table.neighbours_of(fire, "c") == []
    assert table.set_tree("c", False) == [("c", Unsubscribe(STORMS)), ("b", Unsubscribe(FIRES))]


def test_a_lost_link_takes_its_subscriptions_along() -> None:
    table = linked("b", "c")
    table.hear("b", STORMS)
    assert table.link_down("b") == [("c", Unsubscribe(STORMS))]
    assert table.heard() == {"c": frozenset()}


RANGES = tuple(
    Filter.parse(f"topic = 'storms' and low >= {low} and high <= {high}") for low in range(4) for high in range(4)
)
UNSATISFIABLE = tuple(
    map(Filter.parse, ("severity > 3 and severity < 2", "topic = 'storms' and low > 3 and low < 2"))
)
NEIGHBOURS = ("b", "c", "d")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("ann", "bob", *NEIGHBOURS, "link")),
        st.sampled_from(NEIGHBOURS),
        st.sampled_from(FILTERS + RANGES + UNSATISFIABLE),
    ),
    max_size=60,
)


def widest(filters: set[Filter]) -> set[Filter]:
    """Those that no other covers, or only one that they cover too and whose text comes later: by comparing all."""
    return {
        one
        for one in filters
        if not any(covers(other, one) and (other < one or not covers(one, other)) for other in filters - {one})
    }


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_whatever_comes_and_goes_neighbours_have_been_told_the_widest_that_others_want(steps) -> None:
    """Every step turns something round: who wants a filter no longer does, a link of the tree is none."""
    table = SubscriptionTable()
    for neighbour in NEIGHBOURS:
        table.link_up(neighbour, tree=False)
    wanted: dict[str, set[Filter]] = defaultdict(set)
    tree: set[str] = set()
    noted: dict[str, set[Filter]] = defaultdict(set)
    for who, neighbour, one in steps:
        if who == "link":
            tree ^= {neighbour}
            told = table.set_tree(neighbour, neighbour in tree)
        else:
            wanted[who] ^= {one}
            if who in NEIGHBOURS:
                told = (table.hear if one in wanted[who] else table.unhear)(who, one)
            else:
                told = (table.add if one in wanted[who] else table.remove)(who, one)
        for name, message in told:
            assert (message.filter in noted[name]) == isinstance(message, Unsubscribe), "nothing is told twice"
            noted[name] ^= {message.filter}
        heeded = {"ann", "bob", *tree}
        expected = {name: widest(set().union(*(wanted[other] for other in heeded - {name}))) for name in tree}
        assert table.told() == expected
        assert {name: filters for name, filters in noted.items() if filters} == {
            name: filters for name, filters in expected.items() if filters
        }


SETS = st.recursive(
    st.one_of(
        st.builds(only, st.sampled_from((1, 2, 2.5, "a", "ab", True))),
        st.builds(
            lambda made, value: made(value),
            st.sampled_from((at_least, at_most, above, below, other_than)),
            st.sampled_from((1, 2, 2.5, "", "a", "ab")),
        ),
        st.sampled_from((NOTHING, ANY_TEXT, starting("a"))),
    ),
    lambda sets: st.one_of(sets.map(ValueSet.__invert__), st.builds(ValueSet.__or__, sets, sets)),
    max_leaves=5,
)


@given(SETS, SETS)
@settings(max_examples=200, deadline=None)
def test_a_set_is_in_another_if_nothing_of_it_is_outside(one: ValueSet, other: ValueSet) -> None:
    assert (one <= other) == (one & ~other).is_empty
    assert one & other <= other
    assert one <= one | other


def way(*brokers: str) -> Way:
    return tuple((broker, 1) for broker in brokers)


def advertised(*neighbours: str) -> AdvertisementTable:
    """A table of broker a, whose hops to its neighbours have the numbers 2, 3, …; its storage has 1."""
    table = AdvertisementTable("a")
    for neighbour in neighbours:
        assert table.link_up(neighbour) == []
    return table


def test_the_three_rules_of_section_4_1() -> None:
    table = advertised("b", "c", "d")
    by_b = (("a", 2), ("b", 1), ("x", 1), ("s1", 1))
    assert table.hear("b", ("storms",), way("b", "x", "s1")) == [
        ("c", Advertise(("storms",), by_b)),
        ("d", Advertise(("storms",), by_b)),
    ]
    assert table.nearest("storms") == Nearest(3, ("b",))

    assert table.hear("c", ("storms",), way("c", "y", "s2")) == [], "equally near: kept, not forwarded"
    assert table.nearest("storms") == Nearest(3, ("b", "c"))

    by_d = (("a", 4), ("d", 1), ("s3", 1))
    nearer = table.hear("d", ("storms",), way("d", "s3"))
    assert nearer == [
        ("b", Advertise(("storms",), by_d)),
        ("c", Advertise(("storms",), by_d)),
        ("d", Unadvertise(("storms",))),
    ], "nearer: replaces the others, is forwarded, and d need not know a way through itself"
    assert table.nearest("storms") == Nearest(2, ("d",))

    assert table.hear("b", ("storms",), way("b", "x", "s1")) == [], "farther: not forwarded, the table stays"
    assert table.nearest("storms") == Nearest(2, ("d",))


def test_when_the_nearest_goes_the_next_nearest_are_there() -> None:
    table = advertised("b", "c", "d")
    table.hear("b", ("storms",), way("b", "s1"))
    table.hear("c", ("storms",), way("c", "s2"))
    table.hear("d", ("storms",), way("d"))
    assert table.nearest("storms") == Nearest(1, ("d",))
    assert table.link_down("d") == [
        ("b", Unadvertise(("storms",), (("a", 4),))),
        ("c", Advertise(("storms",), (("a", 2), ("b", 1), ("s1", 1)), (("a", 4),))),
    ]
    assert table.nearest("storms") == Nearest(2, ("b", "c"))
    table.unhear("b", ("storms",))
    assert table.nearest("storms") == Nearest(2, ("c",))
    assert table.unhear("c", ("storms",)) == [("b", Unadvertise(("storms",)))]
    assert table.rows() == {}


def test_a_storage_here_is_nearest_of_all() -> None:
    table = advertised("b")
    table.hear("b", ("storms",), way("b"))
    assert table.store(["storms"]) == [("b", Advertise(("storms",), (("a", 1),)))]
    assert table.nearest("storms") == Nearest(0, ())
    assert table.store([]) == [("b", Unadvertise(("storms",), (("a", 1),)))]
    assert table.nearest("storms") == Nearest(1, ("b",))


def test_what_a_storage_keeps_on_keeping_is_advertised_anew_when_something_goes() -> None:
    table = advertised("b")
    table.store(["fires", "storms"])
    assert table.store(["fires", "floods", "storms"]) == [("b", Advertise(("floods",), (("a", 1),)))]
    assert table.store(["fires"]) == [
        ("b", Advertise(("fires",), (("a", 3),), (("a", 1),))),
        ("b", Unadvertise(("floods", "storms"), (("a", 1),))),
    ]


def test_a_way_through_itself_is_no_way() -> None:
    table = advertised("b")
    assert table.hear("b", ("storms",), way("b", "a", "s")) == []
    assert table.nearest("storms") is None


def test_all_ways_with_a_broken_hop_end_at_once_and_none_comes_back() -> None:
    table = advertised("b", "c", "d")
    table.hear("b", ("storms", "fires"), way("b", "s"))
    table.hear("c", ("storms", "fires"), way("c", "x", "s"))
    table.hear("d", ("storms",), (("d", 1), ("x", 1), ("y", 1), ("s", 2)))
    broken = (("s", 1),)
    told = table.unhear("b", ("storms",), broken)
    assert table.rows() == {"storms": Nearest(4, ("d",))}
    assert all(message.broken == broken for _, message in told)
    table.hear("c", ("storms",), way("c", "x", "s"))
    assert table.rows() == {"storms": Nearest(4, ("d",))}


def test_an_advertisement_that_tells_of_a_broken_hop_ends_ways_of_other_topics_too() -> None:
    table = advertised("b", "c")
    table.hear("b", ("storms", "fires"), way("b", "s"))
    told = table.hear("b", ("storms",), (("b", 2), ("t", 1)), (("s", 1),))
    assert table.rows() == {"storms": Nearest(2, ("b",))}
    assert told == [
        ("c", Advertise(("storms",), (("a", 2), ("b", 2), ("t", 1)), (("s", 1),))),
        ("c", Unadvertise(("fires",), (("s", 1),))),
    ]


def test_broken_hops_are_remembered_as_long_as_there_is_room() -> None:
    table = AdvertisementTable("a", remembered=1)
    table.link_up("b")
    table.unhear("b", ("storms",), (("s", 1),))
    table.hear("b", ("storms",), way("b", "s"))
    assert table.rows() == {}
    table.unhear("b", ("storms",), (("s", 2),))
    table.hear("b", ("storms",), way("b", "s"))
    assert table.rows() == {"storms": Nearest(2, ("b",))}, "as wrong as its neighbour, until that knows better"


def test_no_way_is_longer_than_a_message_may_tell() -> None:
    table = advertised("b", "c")
    assert table.hear("b", ("storms",), way("b", *(f"n{number}" for number in range(MOST_HOPS - 1)))) == []
    assert table.nearest("storms") == Nearest(MOST_HOPS, ("b",))


def test_topics_go_together_and_not_too_many() -> None:
    table = advertised("b")
    topics = [f"t{number}" for number in range(MOST_TOPICS + 1)]
    told = [message for _, message in table.store(topics)]
    assert [len(message.topics) for message in told] == [MOST_TOPICS, 1]
    assert [topic for message in told for topic in message.topics] == topics


def test_topics_that_a_filter_may_match() -> None:
    table = advertised("b")
    table.hear("b", ("storms", "fires", "floods"), way("b"))
    assert table.topics_of(STORMS) == ["storms"]
    assert table.topics_of(Filter.parse("topic prefix 'f'")) == ["fires", "floods"]
    assert table.topics_of(Filter.parse("severity > 3")) == ["fires", "floods", "storms"]
    assert table.topics_of(Filter.parse("topic = 'other'")) == []
