"""Places of a running platform: the metrics are those of the laboratory, and numbers stand for places."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from push_worlds import internets

from newsstand.errors import BadOption
from newsstand.planning.backbone import Hosts, Internet
from newsstand.planning.geography import Places, miles
from newsstand.planning.places import METRICS, NEVER, NOWHERE, Network, Place, great_circle_miles, known_metric
from newsstand.planning.push_clusters import cluster_requests, winner
from newsstand.planning.push_places import LIVE_STRATEGIES, ORIGIN, Whereabouts
from newsstand.planning.push_redirects import RedirectTable
from newsstand.planning.push_strategies import nearness

LATITUDES = st.floats(-90, 90)
LONGITUDES = st.floats(-180, 180)
ON_THE_GLOBE = st.tuples(LATITUDES, LONGITUDES)
NODES = "abcdef"
LINKS = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
PLACES = st.builds(
    lambda globe, node: Place(*(globe or (None, None)), node),
    st.none() | ON_THE_GLOBE,
    st.none() | st.sampled_from(NODES),
)


@given(ON_THE_GLOBE, ON_THE_GLOBE)
def test_miles_are_those_of_the_laboratory(one: tuple[float, float], other: tuple[float, float]) -> None:
    known = float(miles(Places.of([one]), Places.of([other]))[0])
    assert great_circle_miles(Place(*one), Place(*other)) == pytest.approx(known, rel=1e-9, abs=1e-6)


@given(PLACES, st.lists(PLACES, max_size=5))
def test_nearest_is_by_hops_where_somebody_can_be_reached(place: Place, others: list[Place]) -> None:
    network = Network(LINKS)
    metric = known_metric(place, others, network)
    reachable = any(network.hops(place.node, other.node) < NEVER for other in others)
    for other in others:
        expected = network.hops(place.node, other.node) if reachable else great_circle_miles(place, other)
        assert metric(place, other, network) == expected


@given(
    st.lists(PLACES, min_size=1, max_size=5),
    st.lists(PLACES, min_size=1, max_size=8),
    st.sampled_from(LIVE_STRATEGIES),
)
def test_the_nearest_server_is_the_one_with_the_least_distance(
    servers: list[Place], clients: list[Place], strategy: str
) -> None:
    network = Network(LINKS)
    where = Whereabouts(NOWHERE, network)
    numbers = [where.server(f"s{number}", place) for number, place in enumerate(servers)]
    way = where.nearness(strategy, Random(7))
    subnets = [where.subnet(place) for place in clients]
    found = way.nearest(np.array(subnets, np.int64), np.array(numbers, np.int64))
    assert set(found.tolist()) <= set(numbers)
    if strategy != "random":
        for place, nearest in zip(clients, found.tolist(), strict=True):
            metric = METRICS[strategy] if strategy != "nearest" else known_metric(place, servers, network)
            near = Place(*(one if one is None else round(one, 1) for one in (place.lat, place.lon)), place.node)
            distances = [metric(near, server, network) for server in servers]
            assert distances[nearest - 1] == pytest.approx(min(distances), abs=0.001)
            if min(distances) == NEVER:
                assert nearest == numbers[0]


def test_a_name_keeps_its_number_and_a_place_may_change() -> None:
    where = Whereabouts(Place(0.0, 0.0))
    assert [where.server("west", Place(0, -90)), where.server("east", Place(0, 90))] == [1, 2]
    way = where.nearness("miles", Random(1))
    client = where.subnet(Place(1.0, 80.0))
    assert way.distance(client, 2) < way.distance(client, ORIGIN) < way.distance(client, 1)
    assert where.server("west", Place(0, 80)) == 1
    assert way.distance(client, 1) < way.distance(client, 2)
    assert (where.name(1), where.number("east"), where.number("nobody")) == ("west", 2, None)


def test_those_at_about_the_same_place_are_one_subnet() -> None:
    where = Whereabouts(NOWHERE, Network(LINKS), most_subnets=3)
    here = where.subnet(Place(52.52, 13.40))
    assert where.subnet(Place(52.48, 13.44)) == here
    assert where.subnet(Place(52.52, 13.40, "a")) != here
    assert where.subnet(Place(52.52, 13.40, "no node of the network")) == here
    for lon in range(3):
        where.subnet(Place(0.0, float(lon)))
    assert where.subnet(Place(52.52, 13.40)) != here, "the oldest of too many is forgotten"
    where.server("s", Place(0, 0))
    assert where.nearness("miles", Random(1)).distance(here, 1) == NEVER


def test_a_redirect_goes_where_it_is_nearer_than_to_the_origin() -> None:
    where = Whereabouts(Place(40.7, -74.0))
    berlin = where.server("berlin", Place(52.5, 13.4))
    table: RedirectTable[str] = RedirectTable(ORIGIN)
    table.add(berlin, ["named/a"])
    way = where.nearness("nearest", Random(1))
    found = table.redirect("named/a", where.subnet(Place(48.9, 2.4)), way)
    assert found is not None
    assert found.server == berlin
    assert table.redirect("named/a", where.subnet(Place(42.4, -71.1)), way) is None
    assert table.redirect("named/a", where.subnet(NOWHERE), way) is None


def test_what_others_know_changes_no_comparison() -> None:
    """The reader and the holder of a page are on the map; a broker that is only in the network is neither."""
    where = Whereabouts(Place(40.7, -74.0), Network(LINKS))
    berlin = where.server("berlin", Place(52.5, 13.4))
    table: RedirectTable[str] = RedirectTable(ORIGIN)
    table.add(berlin, ["named/a"])
    way = where.nearness("nearest", Random(1))
    reader = where.subnet(Place(48.9, 2.4, "a"))
    assert table.redirect("named/a", reader, way) is not None
    where.server("other", Place(node="a"))
    assert table.redirect("named/a", reader, way) is not None


def test_without_links_the_same_node_is_near() -> None:
    where = Whereabouts(Place(node="newyork"))
    here = where.server("berlin", Place(node="berlin"))
    table: RedirectTable[str] = RedirectTable(ORIGIN)
    table.add(here, ["named/a"])
    way = where.nearness("hops", Random(1))
    assert table.redirect("named/a", where.subnet(Place(node="berlin")), way) is not None
    assert table.redirect("named/a", where.subnet(Place(node="newyork")), way) is None


def test_clusters_form_around_servers_by_place() -> None:
    where = Whereabouts(NOWHERE, Network(LINKS))
    left, right = where.server("left", Place(node="a")), where.server("right", Place(node="e"))
    requests = {where.subnet(Place(node=node)): count for node, count in zip("abde", (5, 1, 4, 3), strict=True)}
    clusters = cluster_requests(requests, [left, right], where.nearness("hops", Random(1)))
    assert clusters == {left: 6, right: 7}
    assert winner(clusters) == right


def test_a_strategy_that_is_not_known_is_named() -> None:
    with pytest.raises(BadOption, match="strategy is luck: choose of nearest, hops, miles, random"):
        Whereabouts(NOWHERE).nearness("luck", Random(1))


@given(internets(), st.sampled_from(["hops", "miles"]), st.data())
def test_it_is_near_what_is_near_in_the_laboratory(internet: Internet, strategy: str, data: st.DataObject) -> None:
    """The same world twice: by matrices and arrays, and by names and places."""
    names = internet.backbone.names
    links = [(names[one - 1], names[other - 1]) for one, other in internet.backbone.topology.edges]
    origin, *others = range(len(internet.servers))
    where = Whereabouts(_place(internet.servers, origin, names), Network(links))
    assert [where.server(f"s{number}", _place(internet.servers, number, names)) for number in others] == others
    subnets = [where.subnet(_place(internet.subnets, number, names)) for number in range(len(internet.subnets))]
    live, lab = where.nearness(strategy, Random(1)), nearness(strategy, internet, np.random.default_rng(1))
    requests = data.draw(st.lists(st.integers(0, 9), min_size=len(subnets), max_size=len(subnets)))
    if others:
        seen = Counter()
        for number, count in zip(subnets, requests, strict=True):
            seen[number] += count
        expected = cluster_requests(dict(enumerate(requests)), others, lab)
        assert cluster_requests(seen, others, live) == expected
    table: RedirectTable[str] = RedirectTable(ORIGIN)
    for number in others:
        table.add(number, ["named/a"])
    for number, subnet in enumerate(subnets):
        assert table.redirect("named/a", subnet, live) == table.redirect("named/a", number, lab)


def _place(hosts: Hosts, number: int, names: tuple[str, ...]) -> Place:
    lat, lon = float(hosts.places.latitudes[number]), float(hosts.places.longitudes[number])
    return Place(lat, lon, names[hosts.nodes[number]])
