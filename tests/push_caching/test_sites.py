"""Sites of a running platform: their distances are those of the lab."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.push_caching.worlds import internets

from newsstand.errors import BadOption
from newsstand.geo.backbone import Hosts, Internet
from newsstand.geo.globe import Locations, miles
from newsstand.geo.location import METRICS, NEVER, UNKNOWN, LinkGraph, Location, great_circle_miles, known_metric
from newsstand.push_caching.clusters import cluster_requests, winner
from newsstand.push_caching.redirects import OriginRedirects
from newsstand.push_caching.sites import LIVE_STRATEGIES, ORIGIN, SiteDirectory
from newsstand.push_caching.strategies import nearness

LATITUDES = st.floats(-90, 90)
LONGITUDES = st.floats(-180, 180)
ON_THE_GLOBE = st.tuples(LATITUDES, LONGITUDES)
NODES = "abcdef"
LINKS = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
PLACES = st.builds(
    lambda globe, node: Location(*(globe or (None, None)), node),
    st.none() | ON_THE_GLOBE,
    st.none() | st.sampled_from(NODES),
)


@given(ON_THE_GLOBE, ON_THE_GLOBE)
def test_great_circle_miles_agree_with_globe(one: tuple[float, float], other: tuple[float, float]) -> None:
    known = float(miles(Locations.of([one]), Locations.of([other]))[0])
    assert great_circle_miles(Location(*one), Location(*other)) == pytest.approx(known, rel=1e-9, abs=1e-6)


@given(PLACES, st.lists(PLACES, max_size=5))
def test_nearest_uses_hops_if_reachable(place: Location, others: list[Location]) -> None:
    network = LinkGraph(LINKS)
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
def test_nearest_server_has_least_distance(
    servers: list[Location], clients: list[Location], strategy: str
) -> None:
    network = LinkGraph(LINKS)
    where = SiteDirectory(UNKNOWN, network)
    numbers = [where.server(f"s{number}", place) for number, place in enumerate(servers)]
    way = where.nearness(strategy, Random(7))
    subnets = [where.subnet(place) for place in clients]
    found = way.nearest(np.array(subnets, np.int64), np.array(numbers, np.int64))
    assert set(found.tolist()) <= set(numbers)
    if strategy != "random":
        for place, nearest in zip(clients, found.tolist(), strict=True):
            metric = METRICS[strategy] if strategy != "nearest" else known_metric(place, servers, network)
            near = Location(*(one if one is None else round(one, 1) for one in (place.lat, place.lon)), place.node)
            distances = [metric(near, server, network) for server in servers]
            assert distances[nearest - 1] == pytest.approx(min(distances), abs=0.001)
            if min(distances) == NEVER:
                assert nearest == numbers[0]


def test_server_name_keeps_its_number() -> None:
    where = SiteDirectory(Location(0.0, 0.0))
    assert [where.server("west", Location(0, -90)), where.server("east", Location(0, 90))] == [1, 2]
    way = where.nearness("miles", Random(1))
    client = where.subnet(Location(1.0, 80.0))
    assert way.distance(client, 2) < way.distance(client, ORIGIN) < way.distance(client, 1)
    assert where.server("west", Location(0, 80)) == 1
    assert way.distance(client, 1) < way.distance(client, 2)
    assert (where.name(1), where.number("east"), where.number("nobody")) == ("west", 2, None)


def test_subnet_joins_nearby_locations() -> None:
    where = SiteDirectory(UNKNOWN, LinkGraph(LINKS), most_subnets=3)
    here = where.subnet(Location(52.52, 13.40))
    assert where.subnet(Location(52.48, 13.44)) == here
    assert where.subnet(Location(52.52, 13.40, "a")) != here
    assert where.subnet(Location(52.52, 13.40, "no node of the network")) == here
    for lon in range(3):
        where.subnet(Location(0.0, float(lon)))
    assert where.subnet(Location(52.52, 13.40)) != here, "the oldest of too many is forgotten"
    where.server("s", Location(0, 0))
    assert where.nearness("miles", Random(1)).distance(here, 1) == NEVER


def test_redirect_requires_nearer_cache_than_origin() -> None:
    where = SiteDirectory(Location(40.7, -74.0))
    berlin = where.server("berlin", Location(52.5, 13.4))
    table: OriginRedirects[str] = OriginRedirects(ORIGIN)
    table.add(berlin, ["named/a"])
    way = where.nearness("nearest", Random(1))
    found = table.redirect("named/a", where.subnet(Location(48.9, 2.4)), way)
    assert found is not None
    assert found.server == berlin
    assert table.redirect("named/a", where.subnet(Location(42.4, -71.1)), way) is None
    assert table.redirect("named/a", where.subnet(UNKNOWN), way) is None


def test_distance_ignores_locations_of_others() -> None:
    """The reader and the holder of a page are on the map; a broker that is only in the network is neither."""
    where = SiteDirectory(Location(40.7, -74.0), LinkGraph(LINKS))
    berlin = where.server("berlin", Location(52.5, 13.4))
    table: OriginRedirects[str] = OriginRedirects(ORIGIN)
    table.add(berlin, ["named/a"])
    way = where.nearness("nearest", Random(1))
    reader = where.subnet(Location(48.9, 2.4, "a"))
    assert table.redirect("named/a", reader, way) is not None
    where.server("other", Location(node="a"))
    assert table.redirect("named/a", reader, way) is not None


def test_hops_are_zero_at_same_node_without_links() -> None:
    where = SiteDirectory(Location(node="newyork"))
    here = where.server("berlin", Location(node="berlin"))
    table: OriginRedirects[str] = OriginRedirects(ORIGIN)
    table.add(here, ["named/a"])
    way = where.nearness("hops", Random(1))
    assert table.redirect("named/a", where.subnet(Location(node="berlin")), way) is not None
    assert table.redirect("named/a", where.subnet(Location(node="newyork")), way) is None


def test_clusters_form_by_location() -> None:
    where = SiteDirectory(UNKNOWN, LinkGraph(LINKS))
    left, right = where.server("left", Location(node="a")), where.server("right", Location(node="e"))
    requests = {where.subnet(Location(node=node)): count for node, count in zip("abde", (5, 1, 4, 3), strict=True)}
    clusters = cluster_requests(requests, [left, right], where.nearness("hops", Random(1)))
    assert clusters == {left: 6, right: 7}
    assert winner(clusters) == right


def test_site_directory_rejects_unknown_strategy() -> None:
    with pytest.raises(BadOption, match="strategy luck: must be one of nearest, hops, miles, random"):
        SiteDirectory(UNKNOWN).nearness("luck", Random(1))


@given(internets(), st.sampled_from(["hops", "miles"]), st.data())
def test_site_directory_agrees_with_lab_strategies(internet: Internet, strategy: str, data: st.DataObject) -> None:
    """The same world twice: by matrices and arrays, and by names and places."""
    assume(strategy == "hops" or not has_near_ties(internet))
    names = internet.backbone.names
    links = [(names[one - 1], names[other - 1]) for one, other in internet.backbone.topology.edges]
    origin, *others = range(len(internet.servers))
    where = SiteDirectory(_place(internet.servers, origin, names), LinkGraph(links))
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
    table: OriginRedirects[str] = OriginRedirects(ORIGIN)
    for number in others:
        table.add(number, ["named/a"])
    for number, subnet in enumerate(subnets):
        assert table.redirect("named/a", subnet, live) == table.redirect("named/a", number, lab)


def has_near_ties(internet: Internet) -> bool:
    """Return whether servers at different places are equally far from a subnet, but for rounding."""
    places = internet.servers.places
    _, different = np.unique(np.stack([places.latitudes, places.longitudes]), axis=1, return_index=True)
    miles = internet.miles(np.arange(len(internet.subnets))[:, None], different[None])
    return bool((np.diff(np.sort(miles, axis=1), axis=1) < 1e-6).any())


def _place(hosts: Hosts, number: int, names: tuple[str, ...]) -> Location:
    lat, lon = float(hosts.places.latitudes[number]), float(hosts.places.longitudes[number])
    return Location(lat, lon, names[hosts.nodes[number]])
