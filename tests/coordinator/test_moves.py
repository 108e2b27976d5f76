"""Whatever brokers do and whenever they die: nobody is lost, nobody is in two places, nothing is told twice."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from coordinating import LEASE_S, broker, coordinator_over, report
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from newsstand.coordinator.choosing import WAYS
from newsstand.coordinator.records import NOWHERE, Acknowledged, Move, Subscribed
from newsstand.coordinator.standing import Told
from newsstand.coordinator.store_sqlite import SqliteStore

BROKERS = ("north", "south", "harbour", "hill")
brokers = st.sampled_from(BROKERS)


class Edge:
    """A broker as it should be: keeps who it is told to keep, and confirms."""

    def __init__(self) -> None:
        self.keeps: set[str] = set()
        self.adopted: list[str] = []
        self.forgot: list[str] = []

    def do(self, told: Told) -> None:
        self.keeps |= set(told.adopt)
        self.keeps -= set(told.moved)
        self.adopted, self.forgot = told.adopt, told.moved


class CountingStore(SqliteStore):
    """A store that counts how often each subscriber moves."""

    moves: list[Move]

    def move(self, moves: list[Move], told: object, takes: bool) -> None:  # type: ignore[override]
        self.moves.extend(moves)
        super().move(moves, told, takes)  # type: ignore[arg-type]


class Moves(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 0.0
        self.rng = Random(1)
        self.edges: dict[str, Edge] = {}
        self.talks: set[str] = set()
        """The brokers that are alive, whatever the coordinator thinks of them."""
        self.subscribers: set[str] = set()
        self.acked: dict[str, int] = {}
        self.open()

    def open(self) -> None:
        self.store = CountingStore(Path(self.folder.name) / "coordinator.sqlite")
        self.store._connection.execute("PRAGMA synchronous = OFF")
        self.store.moves = []
        policy = self.rng.choice(sorted(WAYS))
        self.coordinator = coordinator_over(self.store, policy, self.now)

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def states(self) -> dict[str, str]:
        return {one.name: one.state for one in self.coordinator.brokers()}

    @rule(name=brokers)
    def register(self, name: str) -> None:
        edge = self.edges.setdefault(name, Edge())
        self.talks.add(name)
        _, homes = self.coordinator.register(broker(name), self.now)
        edge.keeps = set(homes)
        edge.adopted = edge.forgot = []

    @rule(name=brokers)
    def fall_silent(self, name: str) -> None:
        self.talks.discard(name)

    @rule(name=brokers)
    def leave(self, name: str) -> None:
        if name in self.states():
            self.coordinator.leave(name)
            self.talks.discard(name)

    @rule(name=brokers, on=st.booleans())
    def drain(self, name: str, on: bool) -> None:
        if name in self.states():
            (self.coordinator.drain if on else self.coordinator.resume)(name)

    @rule(name=brokers, count=st.integers(1, 6))
    def subscribers_come(self, name: str, count: int) -> None:
        if self.states().get(name) != "up":
            return
        for _ in range(count):
            subscriber = f"s{len(self.subscribers)}"
            self.coordinator.add_subscriber(subscriber, "hash", name)
            self.coordinator.change(name, [Subscribed(subscriber, "x", "near", [], 0)])
            self.edges[name].keeps.add(subscriber)
            self.subscribers.add(subscriber)
            self.acked[subscriber] = 0

    @precondition(lambda self: self.subscribers)
    @rule(name=brokers, data=st.data())
    def take(self, name: str, data: st.DataObject) -> None:
        if self.states().get(name) == "up":
            subscriber = data.draw(st.sampled_from(sorted(self.subscribers)))
            assert set(self.coordinator.lookup(name, [subscriber], take=True)) == {subscriber}
            self.edges[name].keeps.add(subscriber)

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        subscriber = data.draw(st.sampled_from(sorted(self.subscribers)))
        before = self.store.home(subscriber)
        chosen = self.coordinator.broker_for(subscriber, NOWHERE)
        assert (chosen is None) == ("up" not in self.states().values())
        if chosen is not None and before is not None:
            assert self.store.homes_of([subscriber]) == {subscriber: chosen.broker.name}
            assert chosen.sticky == (chosen.broker.name == before[0])

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data(), position=st.integers(0, 20))
    def acknowledge(self, data: st.DataObject, position: int) -> None:
        subscriber = data.draw(st.sampled_from(sorted(self.subscribers)))
        known = self.states()
        keeping = sorted(name for name, edge in self.edges.items() if subscriber in edge.keeps and name in known)
        if keeping:
            self.coordinator.change(keeping[0], [Acknowledged(subscriber, "x", position)])
            self.acked[subscriber] = max(self.acked[subscriber], position)

    @rule(steps=st.integers(1, 12))
    def time_passes(self, steps: int) -> None:
        for _ in range(steps):
            self.now += LEASE_S / 4
            for name in sorted(self.talks):
                if self.states().get(name, "dead") == "dead":
                    self.register(name)
                edge = self.edges[name]
                told = self.coordinator.heartbeat(
                    name, report(len(edge.keeps), edge.adopted, edge.forgot), self.now
                )
                edge.do(told)
            del self.store.moves[:]
            self.coordinator.tick(self.now)
            moved = [one.name for one in self.store.moves]
            assert len(moved) == len(set(moved)), "nobody moves twice"

    @rule()
    def restart(self) -> None:
        before = [(one.record, one.homes) for one in self.coordinator.brokers()]
        homeless = self.coordinator.homeless
        self.store.close()
        self.open()
        assert [(one.record, one.homes) for one in self.coordinator.brokers()] == before
        assert self.coordinator.homeless == homeless

    @rule()
    def everything_settles(self) -> None:
        """After a while of peace everybody is kept by exactly the broker that is its home."""
        self.time_passes(12)
        states = self.states()
        up = {name for name, state in states.items() if state == "up"}
        assert up <= self.talks
        homes = self.store.homes_of(self.subscribers)
        if up:
            assert set(homes.values()) <= up
        for name in self.talks:
            assert self.edges[name].keeps == {one for one, home in homes.items() if home == name}
            for kind in ("adopt", "moved"):
                assert self.store.handovers(name, kind, 9) == {}

    @invariant()
    def everybody_has_one_home(self) -> None:
        assert set(self.store.homes_of(self.subscribers)) == self.subscribers
        counted = self.store.count_homes()
        assert sum(counted.values()) == len(self.subscribers) == self.coordinator.subscribers
        assert {one.name: one.homes for one in self.coordinator.brokers() if one.homes} == {
            name: count for name, count in counted.items() if name in self.states()
        }

    @invariant()
    def no_position_is_lost(self) -> None:
        for name, record in self.store.records(self.subscribers, "nobody").items():
            subscriptions = record["subscriptions"]
            assert isinstance(subscriptions, dict)
            assert subscriptions["x"]["acked"] == self.acked[name]


Moves.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None, derandomize=True)
TestMoves = Moves.TestCase


@pytest.mark.parametrize("way", sorted(WAYS))
def test_ten_thousand_subscribers_of_a_dead_broker_move_at_once(way: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "coordinator.sqlite")
    coordinator = coordinator_over(store, way)
    for name in BROKERS:
        coordinator.register(broker(name), 0)
    with store._writing() as connection:
        rows = ((f"s{number}", "hash", "north", number % 180 - 90.0, 0.0) for number in range(10_000))
        connection.executemany("INSERT INTO subscribers (name, hash, home, lat, lon) VALUES (?, ?, ?, ?, ?)", rows)
    coordinator = coordinator_over(store, way)
    coordinator.drain("north")
    counted = store.count_homes()
    assert "north" not in counted
    assert sum(counted.values()) == 10_000
    if way == "least-loaded":
        assert sorted(counted.values()) == [3333, 3333, 3334]
    store.close()
