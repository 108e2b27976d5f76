"""Random events in random order: deliveries, and the tables once all messages have arrived."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.overlay.world import DEEDS, FILTERS, PUBLICATIONS, TOPICS, Deed, World, graphs, held, tables, trees
from support.profiles import examples

from newsstand.overlay.broker.broker import Deliver
from newsstand.overlay.topology import Topology

SEEDS = st.integers(0, 2**32 - 1)
PLACED = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 1), st.sampled_from(FILTERS)), max_size=12)
STORED = st.lists(st.tuples(st.integers(0, 99), st.sets(st.sampled_from(TOPICS))), max_size=5)
WHAT = st.integers(0, len(PUBLICATIONS) - 1)

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def worlds(number: int) -> settings:
    return settings(max_examples=examples(number), suppress_health_check=QUIET)


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
@worlds(200)
def test_publication_reaches_each_subscriber_once(topology, seed, placed, published):
    world = filled(topology, seed, placed)
    made = [world.publish(at % topology.nodes + 1, what) for at, what in published]
    world.network.run()
    for publication in made:
        assert world.delivered(publication) == world.wanting(publication)


@given(st.one_of(trees(), graphs()), SEEDS, PLACED, st.lists(st.tuples(st.integers(0, 99), WHAT), max_size=6))
@worlds(150)
def test_covering_only_saves_subscriptions(topology, seed, placed, published):
    worlds = [filled(topology, seed, placed, covering=covering) for covering in (True, False)]
    for at, what in published:
        covered, plain = (world.publish(at % topology.nodes + 1, what) for world in worlds)
        for world in worlds:
            world.network.run()
        assert worlds[0].delivered(covered) == worlds[1].delivered(plain)
    for name, broker in worlds[0].network.brokers.items():
        plainly = worlds[1].network.brokers[name].subscriptions.sent()
        assert all(filters <= plainly[neighbour] for neighbour, filters in broker.subscriptions.sent().items())


@given(st.one_of(trees(12), graphs(12)), SEEDS, STORED)
@worlds(200)
def test_advertisement_tables_have_shortest_routes(topology, seed, stored):
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
@worlds(200)
def test_request_answered_by_nearest_storage(topology, seed, stored, published, at, wanted):
    world = filled(topology, seed, [], stored)
    made = [world.publish(at % topology.nodes + 1, what) for at, what in published]
    world.network.run()
    name = at % topology.nodes + 1
    known = {topic for topics in world.stored.values() for topic in topics}
    crossed = world.network.messages_sent("StorageRequest")

    number = world.network.request(name, "ann", wanted)
    world.network.run()
    answers = world.answers(name, number)

    assert [answer.finished for answer in answers] == [False] * (len(answers) - 1) + [True]
    got = [publication.id for answer in answers for publication in answer.publications]
    assert sorted(got) == sorted(one.id for one in made if wanted.matches(one) and one.topic in known)
    assert set(answers[-1].unavailable) == (wanted.topics or frozenset()) - known
    assert len(world.network.brokers[name].requests) == 0
    if wanted.topics is not None and len(wanted.topics) == 1 and wanted.topics <= known:
        [topic] = wanted.topics
        storages = [name for name, topics in world.stored.items() if topic in topics]
        crossing = world.network.messages_sent("StorageRequest") - crossed
        assert crossing == topology.hops_from(*storages)[name]


def check_that_tables_end_as_from_scratch(topology: Topology, seed: int, deeds: list[Deed]) -> None:
    world = World(topology, seed)
    for deed in deeds:
        world.happen(deed)
    world.settle()
    assert tables(world.network) == tables(world.from_scratch())
    seen = [
        (one.broker, one.effect.client, one.effect.publication.id)
        for one in world.network.effects
        if isinstance(one.effect, Deliver)
    ]
    assert len(seen) == len(set(seen))
    for name in world.network.brokers:
        publication = world.publish(name, name)
        world.network.run()
        reached = spread(world, name)
        wanting = world.wanting(publication)
        assert world.delivered(publication) == {key: 1 for key in wanting if key[0] in reached}


def spread(world: World, name: int) -> set[object]:
    """Return the brokers connected with one."""
    reached: set[object] = {name}
    waiting: list[object] = [name]
    while waiting:
        for neighbour in world.network.brokers[waiting.pop()].links:  # type: ignore[index]
            if neighbour not in reached:
                reached.add(neighbour)
                waiting.append(neighbour)
    return reached


@given(st.one_of(trees(), graphs()), SEEDS, DEEDS)
@worlds(200)
def test_tables_converge_after_any_events(topology, seed, deeds):
    check_that_tables_end_as_from_scratch(topology, seed, deeds)


@pytest.mark.slow
@given(graphs(12), SEEDS, DEEDS)
@settings(worlds(5_000), phases=[Phase.generate])
def test_tables_converge_in_thousands_of_networks(topology, seed, deeds):
    check_that_tables_end_as_from_scratch(topology, seed, deeds)


@given(graphs(12), SEEDS, st.integers(0, 99), st.booleans())
@worlds(200)
def test_storage_withdrawal_costs_as_much_as_its_advertisement(topology, seed, at, whole_broker):
    """Without broken hops, brokers would try all outdated routes: 300,000 messages in a graph of 100 nodes."""
    world = filled(topology, seed, [], [(at, {"storms"})])
    name = at % topology.nodes + 1
    before = world.network.messages_sent("Advertise", "Unadvertise")
    if whole_broker:
        world.lose(name)
    else:
        world.store(name, [])
    world.network.run()
    after = world.network.messages_sent("Advertise", "Unadvertise") - before
    assert whole_broker or after <= 2 * len(topology.edges)
    assert all(not broker.advertisements.rows() for broker in world.network.brokers.values())


@given(graphs(), SEEDS, DEEDS)
@worlds(200)
def test_removed_brokers_leave_no_state(topology, seed, deeds):
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
        broker.seen.clear()
        broker.advertisements.broken.clear()
        assert held(broker) == held(empty.brokers[name])
