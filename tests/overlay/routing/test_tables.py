"""The subscription table and the advertisement table, step by step."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st
from support.overlay.world import FILTERS
from support.profiles import examples

from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.filters.value_sets import (
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
from newsstand.overlay.messages import (
    MOST_HOPS,
    MOST_TOPICS,
    Advertise,
    Publication,
    Route,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from newsstand.overlay.routing.advertisements import AdvertisementTable, StorageRoute
from newsstand.overlay.routing.subscriptions import SubscriptionTable

STORMS = Filter.parse("topic = 'storms'")
SEVERE = Filter.parse("topic = 'storms' and severity >= 3")
SEVERE_TOO = Filter.parse("severity >= 3 and topic = 'storms'")
FIRES = Filter.parse("topic = 'fires'")


def linked(*neighbours: str, covering: bool = True) -> SubscriptionTable:
    table = SubscriptionTable(covering)
    for neighbour in neighbours:
        assert table.link_up(neighbour, tree=True) == []
    return table


def test_subscription_forwarded_to_all_other_neighbours() -> None:
    table = linked("b", "c")
    assert table.add("ann", STORMS) == [("b", Subscribe(STORMS)), ("c", Subscribe(STORMS))]
    assert table.receive("b", FIRES) == [("c", Subscribe(FIRES))]
    assert table.received() == {"b": {FIRES}, "c": frozenset()}


def test_subscription_forwarded_once_and_ended_by_last_subscriber() -> None:
    table = linked("b")
    table.add("ann", STORMS)
    assert table.add("bob", STORMS) == []
    assert table.remove("ann", STORMS) == []
    assert table.remove("bob", STORMS) == [("b", Unsubscribe(STORMS))]
    assert table.remove("bob", STORMS) == []


def test_subscription_sent_back_when_another_neighbour_subscribes() -> None:
    table = linked("b", "c")
    table.receive("b", STORMS)
    assert table.add("ann", STORMS) == [("b", Subscribe(STORMS))]
    assert table.withdraw("b", STORMS) == []
    assert table.remove("ann", STORMS) == [("b", Unsubscribe(STORMS)), ("c", Unsubscribe(STORMS))]


def test_covered_subscription_sent_before_the_covering_one_ends() -> None:
    table = linked("b")
    table.add("ann", STORMS)
    assert table.add("bob", SEVERE) == []
    assert table.remove("ann", STORMS) == [("b", Subscribe(SEVERE)), ("b", Unsubscribe(STORMS))]
    assert table.add("ann", STORMS) == [("b", Subscribe(STORMS)), ("b", Unsubscribe(SEVERE))]


def test_equivalent_subscriptions_sent_independent_of_order() -> None:
    first, second = linked("b"), linked("b")
    for table, filters in ((first, (SEVERE, SEVERE_TOO)), (second, (SEVERE_TOO, SEVERE))):
        for wanted in filters:
            table.add("ann", wanted)
    assert first.sent() == second.sent() == {"b": {SEVERE_TOO}}
    first.remove("ann", SEVERE_TOO)
    assert first.sent() == {"b": {SEVERE}}


def test_subscriptions_all_sent_without_covering() -> None:
    table = linked("b", covering=False)
    table.add("ann", STORMS)
    assert table.add("bob", SEVERE) == [("b", Subscribe(SEVERE))]


def test_link_outside_the_tree_stored_but_unused() -> None:
    table = linked("b")
    table.add("ann", STORMS)
    assert table.link_up("c", tree=False) == []
    assert table.receive("c", FIRES) == []
    fire = Publication("a", 1, "fires")
    assert table.neighbours_of(fire, None) == []
    assert table.set_tree("c", True) == [("b", Subscribe(FIRES)), ("c", Subscribe(STORMS))]
    assert table.neighbours_of(fire, None) == ["c"]
    assert table.neighbours_of(fire, "c") == []
    assert table.set_tree("c", False) == [("c", Unsubscribe(STORMS)), ("b", Unsubscribe(FIRES))]


def test_link_down_removes_its_subscriptions() -> None:
    table = linked("b", "c")
    table.receive("b", STORMS)
    assert table.link_down("b") == [("c", Unsubscribe(STORMS))]
    assert table.received() == {"c": frozenset()}


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
    """Return the widest filters by comparing all pairs; of those that cover each other, the first by text."""
    return {
        one
        for one in filters
        if not any(other.covers(one) and (other < one or not one.covers(other)) for other in filters - {one})
    }


@given(STEPS)
@settings(max_examples=examples(150))
def test_neighbours_always_have_the_widest_filters_of_others(steps) -> None:
    """Every step toggles something: a subscription, or whether a link belongs to the tree."""
    table = SubscriptionTable()
    for neighbour in NEIGHBOURS:
        table.link_up(neighbour, tree=False)
    wanted: dict[str, set[Filter]] = defaultdict(set)
    tree: set[str] = set()
    noted: dict[str, set[Filter]] = defaultdict(set)
    for who, neighbour, one in steps:
        if who == "link":
            tree ^= {neighbour}
            announcements = table.set_tree(neighbour, neighbour in tree)
        else:
            wanted[who] ^= {one}
            if who in NEIGHBOURS:
                announcements = (table.receive if one in wanted[who] else table.withdraw)(who, one)
            else:
                announcements = (table.add if one in wanted[who] else table.remove)(who, one)
        for name, message in announcements:
            assert (message.filter in noted[name]) == isinstance(message, Unsubscribe), "nothing is sent twice"
            noted[name] ^= {message.filter}
        heeded = {"ann", "bob", *tree}
        expected = {name: widest(set().union(*(wanted[other] for other in heeded - {name}))) for name in tree}
        assert table.sent() == expected
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
@settings(max_examples=examples(200))
def test_intervals_subset_equals_empty_difference(one: ValueSet, other: ValueSet) -> None:
    assert (one <= other) == (one & ~other).is_empty
    assert one & other <= other
    assert one <= one | other


def way(*brokers: str) -> Route:
    return tuple((broker, 1) for broker in brokers)


def advertised(*neighbours: str) -> AdvertisementTable:
    """Return a table of broker a; its hops to neighbours have the numbers 2, 3, …, its storage has 1."""
    table = AdvertisementTable("a")
    for neighbour in neighbours:
        assert table.link_up(neighbour) == []
    return table


def test_advertisement_rules_of_section_4_1() -> None:
    table = advertised("b", "c", "d")
    by_b = (("a", 2), ("b", 1), ("x", 1), ("s1", 1))
    assert table.receive("b", ("storms",), way("b", "x", "s1")) == [
        ("c", Advertise(("storms",), by_b)),
        ("d", Advertise(("storms",), by_b)),
    ]
    assert table.nearest("storms") == StorageRoute(3, ("b",))

    assert table.receive("c", ("storms",), way("c", "y", "s2")) == [], "equally near: kept, not forwarded"
    assert table.nearest("storms") == StorageRoute(3, ("b", "c"))

    by_d = (("a", 4), ("d", 1), ("s3", 1))
    nearer = table.receive("d", ("storms",), way("d", "s3"))
    assert nearer == [
        ("b", Advertise(("storms",), by_d)),
        ("c", Advertise(("storms",), by_d)),
        ("d", Unadvertise(("storms",))),
    ], "nearer: replaces the others, is forwarded, and d need not know a way through itself"
    assert table.nearest("storms") == StorageRoute(2, ("d",))

    assert table.receive("b", ("storms",), way("b", "x", "s1")) == [], "farther: not forwarded, the table stays"
    assert table.nearest("storms") == StorageRoute(2, ("d",))


def test_next_nearest_storage_replaces_a_lost_one() -> None:
    table = advertised("b", "c", "d")
    table.receive("b", ("storms",), way("b", "s1"))
    table.receive("c", ("storms",), way("c", "s2"))
    table.receive("d", ("storms",), way("d"))
    assert table.nearest("storms") == StorageRoute(1, ("d",))
    assert table.link_down("d") == [
        ("b", Unadvertise(("storms",), (("a", 4),))),
        ("c", Advertise(("storms",), (("a", 2), ("b", 1), ("s1", 1)), (("a", 4),))),
    ]
    assert table.nearest("storms") == StorageRoute(2, ("b", "c"))
    table.withdraw("b", ("storms",))
    assert table.nearest("storms") == StorageRoute(2, ("c",))
    assert table.withdraw("c", ("storms",)) == [("b", Unadvertise(("storms",)))]
    assert table.rows() == {}


def test_local_storage_is_nearest() -> None:
    table = advertised("b")
    table.receive("b", ("storms",), way("b"))
    assert table.set_own(["storms"]) == [("b", Advertise(("storms",), (("a", 1),)))]
    assert table.nearest("storms") == StorageRoute(0, ())
    assert table.set_own([]) == [("b", Unadvertise(("storms",), (("a", 1),)))]
    assert table.nearest("storms") == StorageRoute(1, ("b",))


def test_remaining_topics_advertised_again_after_a_drop() -> None:
    table = advertised("b")
    table.set_own(["fires", "storms"])
    assert table.set_own(["fires", "floods", "storms"]) == [("b", Advertise(("floods",), (("a", 1),)))]
    assert table.set_own(["fires"]) == [
        ("b", Advertise(("fires",), (("a", 3),), (("a", 1),))),
        ("b", Unadvertise(("floods", "storms"), (("a", 1),))),
    ]


def test_route_through_itself_ignored() -> None:
    table = advertised("b")
    assert table.receive("b", ("storms",), way("b", "a", "s")) == []
    assert table.nearest("storms") is None


def test_routes_with_a_broken_hop_end_at_once() -> None:
    table = advertised("b", "c", "d")
    table.receive("b", ("storms", "fires"), way("b", "s"))
    table.receive("c", ("storms", "fires"), way("c", "x", "s"))
    table.receive("d", ("storms",), (("d", 1), ("x", 1), ("y", 1), ("s", 2)))
    broken = (("s", 1),)
    announcements = table.withdraw("b", ("storms",), broken)
    assert table.rows() == {"storms": StorageRoute(4, ("d",))}
    assert all(message.broken == broken for _, message in announcements)
    table.receive("c", ("storms",), way("c", "x", "s"))
    assert table.rows() == {"storms": StorageRoute(4, ("d",))}


def test_advertisement_of_a_broken_hop_ends_routes_of_other_topics() -> None:
    table = advertised("b", "c")
    table.receive("b", ("storms", "fires"), way("b", "s"))
    announcements = table.receive("b", ("storms",), (("b", 2), ("t", 1)), (("s", 1),))
    assert table.rows() == {"storms": StorageRoute(2, ("b",))}
    assert announcements == [
        ("c", Advertise(("storms",), (("a", 2), ("b", 2), ("t", 1)), (("s", 1),))),
        ("c", Unadvertise(("fires",), (("s", 1),))),
    ]


def test_broken_hops_remembered_up_to_a_limit() -> None:
    table = AdvertisementTable("a", remembered=1)
    table.link_up("b")
    table.withdraw("b", ("storms",), (("s", 1),))
    table.receive("b", ("storms",), way("b", "s"))
    assert table.rows() == {}
    table.withdraw("b", ("storms",), (("s", 2),))
    table.receive("b", ("storms",), way("b", "s"))
    assert table.rows() == {"storms": StorageRoute(2, ("b",))}, "wrong until the neighbour knows better"


def test_routes_bounded_by_hop_limit() -> None:
    table = advertised("b", "c")
    assert table.receive("b", ("storms",), way("b", *(f"n{number}" for number in range(MOST_HOPS - 1)))) == []
    assert table.nearest("storms") == StorageRoute(MOST_HOPS, ("b",))


def test_advertisements_batch_topics() -> None:
    table = advertised("b")
    topics = [f"t{number}" for number in range(MOST_TOPICS + 1)]
    announcements = [message for _, message in table.set_own(topics)]
    assert [len(message.topics) for message in announcements] == [MOST_TOPICS, 1]
    assert [topic for message in announcements for topic in message.topics] == topics


def test_advertised_topics_that_a_filter_may_match() -> None:
    table = advertised("b")
    table.receive("b", ("storms", "fires", "floods"), way("b"))
    assert table.topics_of(STORMS) == ["storms"]
    assert table.topics_of(Filter.parse("topic prefix 'f'")) == ["fires", "floods"]
    assert table.topics_of(Filter.parse("severity > 3")) == ["fires", "floods", "storms"]
    assert table.topics_of(Filter.parse("topic = 'other'")) == []
