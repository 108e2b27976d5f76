"""Whatever happens in whatever order: who gets what, and what tables say when it is quiet."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from worlds import DEEDS, FILTERS, PUBLICATIONS, TOPICS, Deed, World, graphs, held, tables, trees

from newsstand.overlay.node import Deliver
from newsstand.overlay.topology import Topology

SEEDS = st.integers(0, 2**32 - 1)
PLACED = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 1), st.sampled_from(FILTERS)), max_size=12)
STORED = st.lists(st.tuples(st.integers(0, 99), st.sets(st.sampled_from(TOPICS))), max_size=5)
WHAT = st.integers(0, len(PUBLICATIONS) - 1)

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def examples(number: int) -> settings:
    return settings(max_examples=number, deadline=None, suppress_health_check=QUIET)


def filled(
    topology: Topology,
    seed: int,
    placed: list[tuple[int, int, object]],
    stored: list[tuple[int, set[str]]] = (),  # type: ignore[assignment]
    covering: bool = True,
) -> World:
    world = World(topology, seed, covering)
    for at, topics in stored:
        world.store(at % topology.nodes + 1, sorted(topics))
    for at, client, wanted in placed:
        world.subscribe(at % topology.nodes + 1, f"client {client}", wanted)  # type: ignore[arg-type]
    world.network.run()
    return world


@given(st.one_of(trees(), graphs()), SEEDS, PLACED, st.lists(st.tuples(st.integers(0, 99), WHAT), max_size=6))
@examples(200)
def test_a_publication_reaches_everybody_who_wants_it_once_and_nobody_else(topology, seed, placed, published):
    world = filled(topology, seed, placed)
    made = [world.publish(at % topology.nodes + 1, what) for at, what in published]
    world.network.run()
    for publication in made:
        assert world.delivered(publication) == world.wanting(publication)


@given(st.one_of(trees(), graphs()), SEEDS, PLACED, st.lists(st.tuples(st.integers(0, 99), WHAT), max_size=6))
@examples(150)
def test_covering_changes_no_delivery_and_only_spares_subscriptions(topology, seed, placed, published):
    worlds = [filled(topology, seed, placed, covering=covering) for covering in (True, False)]
    for at, what in published:
        covered, plain = (world.publish(at % topology.nodes + 1, what) for world in worlds)
        for world in worlds:
            world.network.run()
        assert worlds[0].delivered(covered) == worlds[1].delivered(plain)
    for name, broker in worlds[0].network.brokers.items():
        plainly = worlds[1].network.brokers[name].subscriptions.told()
        assert all(told <= plainly[neighbour] for neighbour, told in broker.subscriptions.told().items())


@given(st.one_of(trees(12), graphs(12)), SEEDS, STORED)
@examples(200)
def test_advertisement_tables_have_the_shortest_ways(topology, seed, stored):
    world = filled(topology, seed, [], stored)
    for topic in TOPICS:
        storages = [name for name, topics in world.stored.items() if topic in topics]
        hops = topology.hops_from(*storages) if storages else {}
        for name, broker in world.network.brokers.items():
            row = broker.advertisements.nearest(topic)
            if not storages:
                assert row is None
                continue
            nearer = tuple(n for n in topology.neighbours(name) if hops[n] == hops[name] - 1)
            assert row == (hops[name], nearer)


@given(
    st.one_of(trees(), graphs()),
    SEEDS,
    STORED,
    st.lists(st.tuples(st.integers(0, 99), WHAT), max_size=12),
    st.integers(0, 99),
    st.sampled_from(FILTERS),
)
@examples(200)
def test_a_request_reaches_a_nearest_storage_and_its_answer_comes_back_whole(
    topology, seed, stored, published, at, wanted
):
    world = filled(topology, seed, [], stored)
    made = [world.publish(at % topology.nodes + 1, what) for at, what in published]
    world.network.run()
    name = at % topology.nodes + 1
    known = {topic for topics in world.stored.values() for topic in topics}
    crossed = world.network.crossed_by("Request")

    number = world.network.request(name, "ann", wanted)
    world.network.run()
    answers = world.answers(name, number)

    assert [answer.finished for answer in answers] == [False] * (len(answers) - 1) + [True]
    got = [publication.id for answer in answers for publication in answer.publications]
    assert sorted(got) == sorted(one.id for one in made if wanted.matches(one) and one.topic in known)
    assert set(answers[-1].missing) == (wanted.topics or frozenset()) - known
    assert len(world.network.brokers[name].requests) == 0
    if wanted.topics is not None and len(wanted.topics) == 1 and wanted.topics <= known:
        [topic] = wanted.topics
        storages = [name for name, topics in world.stored.items() if topic in topics]
        crossing = world.network.crossed_by("Request") - crossed
        assert crossing == topology.hops_from(*storages)[name]


def check_that_tables_end_as_from_scratch(topology: Topology, seed: int, deeds: list[Deed]) -> None:
    world = World(topology, seed)
    for deed in deeds:
        world.happen(deed)
    world.settle()
    assert tables(world.network) == tables(world.from_scratch())
    seen = [
        (told.broker, told.out.client, told.out.publication.id)
        for told in world.network.told
        if isinstance(told.out, Deliver)
    ]
    assert len(seen) == len(set(seen))
    for name in world.network.brokers:
        publication = world.publish(name, name)
        world.network.run()
        reached = spread(world, name)
        wanting = world.wanting(publication)
        assert world.delivered(publication) == {key: 1 for key in wanting if key[0] in reached}


def spread(world: World, name: int) -> set[object]:
    """The brokers that are connected with one."""
    reached: set[object] = {name}
    waiting: list[object] = [name]
    while waiting:
        for neighbour in world.network.brokers[waiting.pop()].links:  # type: ignore[index]
            if neighbour not in reached:
                reached.add(neighbour)
                waiting.append(neighbour)
    return reached


@given(st.one_of(trees(), graphs()), SEEDS, DEEDS)
@examples(200)
def test_whatever_has_happened_tables_are_as_if_made_from_scratch(topology, seed, deeds):
    check_that_tables_end_as_from_scratch(topology, seed, deeds)


@pytest.mark.slow
@given(graphs(12), SEEDS, DEEDS)
@settings(examples(5_000), phases=[Phase.generate])
def test_whatever_has_happened_in_thousands_of_networks(topology, seed, deeds):
    check_that_tables_end_as_from_scratch(topology, seed, deeds)


@given(graphs(12), SEEDS, st.integers(0, 99), st.booleans())
@examples(200)
def test_the_end_of_a_storage_costs_what_its_beginning_did(topology, seed, at, whole_broker):
    """With ways alone, brokers would try all outdated ones: in a graph of 100 nodes 300,000 messages."""
    world = filled(topology, seed, [], [(at, {"storms"})])
    name = at % topology.nodes + 1
    before = world.network.crossed_by("Advertise", "Unadvertise")
    if whole_broker:
        world.lose(name)
    else:
        world.store(name, [])
    world.network.run()
    after = world.network.crossed_by("Advertise", "Unadvertise") - before
    assert whole_broker or after <= 2 * len(topology.edges)
    assert all(not broker.advertisements.rows() for broker in world.network.brokers.values())


@given(graphs(), SEEDS, DEEDS)
@examples(200)
def test_what_has_gone_is_forgotten(topology, seed, deeds):
    world = World(topology, seed)
    for deed in deeds:
        world.happen(deed)
    for name in list(world.network.brokers):
        world.store(name, [])
        for client in ("client 0", "client 1"):
            world.leave(name, client)
    world.settle()
    empty = world.from_scratch()
    for name, broker in world.network.brokers.items():
        broker._seen.clear()
        broker.advertisements._broken.clear()
        assert held(broker) == held(empty.brokers[name])
