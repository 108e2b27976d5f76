"""In any order of events and deaths, no subscriber is lost or assigned twice, and no answered change is undone."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.coordinator.coordinators import HELD_S, LEASE_S, broker, coordinator_over, report
from support.profiles import examples

from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.model import SubscriberMove
from newsstand.coordinator.registry import STRATEGIES
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.geo.location import UNKNOWN
from newsstand.wire.coordination import HeartbeatResponse
from newsstand.wire.subscribers import (
    Ack,
    AddSubscription,
    EndSession,
    RemoveSubscription,
    SessionChange,
    SubscriberChange,
    SubscriberRecord,
)

BROKERS = ("north", "south", "harbour", "hill")
brokers = st.sampled_from(BROKERS)


LATER = 2**42


def things(record: SubscriberRecord) -> set[str]:
    """The sessions and subscriptions in a record."""
    return {*record.sessions, *record.subscriptions} - {"x"}


def thing(change: SubscriberChange) -> str:
    return change.sid if isinstance(change, SessionChange | EndSession) else change.id


class Edge:
    """A broker as it should be: follows its duties, catches up, and confirms."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.keeps: dict[str, set[str]] = {}
        """Subscribers, with their sessions and subscriptions."""
        self.unsent: list[SubscriberChange] = []
        self.adopted: dict[str, int] = {}
        self.forgot: dict[str, int] = {}

    def bring(self, coordinator: Coordinator, names: list[str]) -> list[str]:
        found = coordinator.lookup(self.name, names, take=True)
        for name, record in found.subscribers.items():
            self.keeps[name] = things(record)
            for change in self.unsent:
                self.apply(change)
        self.adopted |= found.handovers
        return sorted(found.subscribers)

    def apply(self, change: SubscriberChange) -> None:
        if change.name in self.keeps and isinstance(change, SessionChange | AddSubscription):
            self.keeps[change.name].add(thing(change))
        elif change.name in self.keeps:
            self.keeps[change.name].discard(thing(change))

    def do(self, coordinator: Coordinator, reply: HeartbeatResponse) -> None:
        for name in reply.moved:
            self.keeps.pop(name, None)
        self.adopted, self.forgot = {}, reply.moved
        self.bring(coordinator, reply.adopt)


class CountingStore(CoordinatorStore):
    """A store that counts how often each subscriber moves."""

    moves: list[SubscriberMove]

    def move(self, moves: list[SubscriberMove], notified: object, takes: bool) -> int:  # type: ignore[override]
        self.moves.extend(moves)
        return super().move(moves, notified, takes)  # type: ignore[arg-type]


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
        self.lasting: dict[str, set[str]] = {}
        """The sessions and subscriptions that were begun and not ended, as subscribers were answered."""
        self.begun = 0
        self.moved_at: dict[str, float] = {}
        self.open()

    def open(self) -> None:
        self.store = CountingStore(Path(self.folder.name) / "coordinator.sqlite", pragmas={"synchronous": "OFF"})
        self.store.moves = []
        policy = self.rng.choice(sorted(STRATEGIES))
        self.coordinator = coordinator_over(self.store, policy, self.now)

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def states(self) -> dict[str, str]:
        return {one.name: one.state for one in self.coordinator.brokers()}

    @initialize(names=st.sets(brokers))
    def begin(self, names: set[str]) -> None:
        for name in sorted(names):
            self.register(name)
            self.subscribers_come(name, 2)

    @rule(name=brokers)
    def register(self, name: str) -> None:
        edge = self.edges.setdefault(name, Edge(name))
        self.talks.add(name)
        registered = self.coordinator.register(broker(name), self.now)
        owners = registered.subscribers
        edge.keeps.clear()
        edge.adopted, edge.forgot = {}, {}
        edge.bring(self.coordinator, owners)

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
            self.coordinator.set_draining(name, on)

    @rule(name=brokers, count=st.integers(1, 6))
    def subscribers_come(self, name: str, count: int) -> None:
        if self.states().get(name) != "up":
            return
        for _ in range(count):
            subscriber = f"s{len(self.subscribers)}"
            self.coordinator.add_subscriber(subscriber, "hash", name)
            self.coordinator.change(name, [AddSubscription(subscriber, "x", "near", [], 0)])
            self.edges[name].keeps[subscriber] = set()
            self.subscribers.add(subscriber)
            self.acked[subscriber] = 0
            self.lasting[subscriber] = set()

    @precondition(lambda self: self.subscribers)
    @rule(name=brokers, data=st.data())
    def take(self, name: str, data: st.DataObject) -> None:
        state = self.states().get(name, "dead")
        if state != "dead":
            subscriber = data.draw(st.sampled_from(sorted(self.subscribers)))
            arrived = self.edges[name].bring(self.coordinator, [subscriber])
            assert (arrived == [subscriber]) == (self.store.brokers_of([subscriber])[subscriber] == name)
            assert arrived or state == "draining"

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        subscriber = data.draw(st.sampled_from(sorted(self.subscribers)))
        before = self.store.assignment(subscriber)
        chosen = self.coordinator.broker_for(subscriber, UNKNOWN)
        assert (chosen is None) == ("up" not in self.states().values())
        if chosen is not None and before is not None:
            assert self.store.brokers_of([subscriber]) == {subscriber: chosen.broker.name}
            assert chosen.sticky == (chosen.broker.name == before[0])

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data(), position=st.integers(0, 20))
    def acknowledge(self, data: st.DataObject, position: int) -> None:
        subscriber = data.draw(st.sampled_from(sorted(self.subscribers)))
        known = self.states()
        keeping = sorted(name for name, edge in self.edges.items() if subscriber in edge.keeps and name in known)
        if keeping:
            self.coordinator.change(keeping[0], [Ack(subscriber, "x", position)])
            self.acked[subscriber] = max(self.acked[subscriber], position)

    @precondition(lambda self: self.subscribers)
    @rule(name=brokers, data=st.data(), session=st.booleans(), ends=st.booleans())
    def begin_or_end(self, name: str, data: st.DataObject, session: bool, ends: bool) -> None:
        """A broker that keeps a subscriber answers something, and will tell the coordinator later."""
        edge = self.edges.get(name)
        if edge is None or not edge.keeps or name not in self.talks:
            return
        subscriber = data.draw(st.sampled_from(sorted(edge.keeps)))
        known = sorted(one for one in edge.keeps[subscriber] if one.startswith("s" if session else "y"))
        change: SubscriberChange
        if ends and known:
            which = data.draw(st.sampled_from(known))
            change = EndSession(subscriber, which) if session else RemoveSubscription(subscriber, which)
            self.lasting[subscriber].discard(which)
        else:
            self.begun += 1
            which = f"{'s' if session else 'y'}{self.begun}"
            change = (
                SessionChange(subscriber, which, 0, LATER)
                if session
                else AddSubscription(subscriber, which, "near", [], 0)
            )
            self.lasting[subscriber].add(which)
        edge.unsent.append(change)
        edge.apply(change)

    @rule(name=brokers)
    def send(self, name: str) -> None:
        if name in self.states() and name in self.talks:
            edge = self.edges[name]
            for gone in self.coordinator.change(name, edge.unsent).moved:
                edge.keeps.pop(gone, None)
            edge.unsent = []

    @rule(steps=st.integers(1, 12))
    def time_passes(self, steps: int) -> None:
        for _ in range(steps):
            self.now += LEASE_S / 4
            for name in sorted(self.talks):
                if self.states().get(name, "dead") == "dead":
                    self.register(name)
                edge = self.edges[name]
                reply = self.coordinator.heartbeat(
                    name, report(len(edge.keeps), edge.adopted, edge.forgot), self.now
                )
                self.nobody_is_dropped_too_early(reply)
                edge.do(self.coordinator, reply)
            del self.store.moves[:]
            self.coordinator.tick(self.now)
            moved = [one.name for one in self.store.moves]
            assert len(moved) == len(set(moved)), "nobody moves twice"
            self.moved_at |= dict.fromkeys(moved, self.now)

    def nobody_is_dropped_too_early(self, reply: HeartbeatResponse) -> None:
        self.moved_at |= {one.name: self.now for one in self.store.moves}
        owners = self.store.brokers_of(reply.moved)
        for name in reply.moved:
            is_old = self.now - self.moved_at.get(name, self.now) >= HELD_S
            assert is_old or name in self.edges[owners[name]].keeps, "nobody would follow its streams"

    @rule()
    def restart(self) -> None:
        before = [(one.record, one.assigned) for one in self.coordinator.brokers()]
        unserved = self.coordinator.unserved
        self.store.close()
        self.open()
        assert [(one.record, one.assigned) for one in self.coordinator.brokers()] == before
        assert self.coordinator.unserved == unserved

    @rule()
    def everything_settles(self) -> None:
        """After a while of peace everybody is kept by exactly the broker that is its broker."""
        self.time_passes(12)
        for name in BROKERS:
            if name in self.edges and name not in self.talks:
                self.register(name)
            self.send(name)
        self.time_passes(12)
        states = self.states()
        up = {name for name, state in states.items() if state == "up"}
        assert up <= self.talks
        owners = self.store.brokers_of(self.subscribers)
        if up:
            assert set(owners.values()) <= up
        for name in self.talks:
            own = [one for one, owner in owners.items() if owner == name]
            assert self.edges[name].keeps == {one: self.lasting[one] for one in own}
            for kind in ("adopt", "moved"):
                assert self.store.handovers(name, kind, 9) == {}

    @invariant()
    def everybody_has_one_broker(self) -> None:
        assert set(self.store.brokers_of(self.subscribers)) == self.subscribers
        counted = self.store.count_subscribers()
        assert sum(counted.values()) == len(self.subscribers) == self.coordinator.subscribers
        assert {one.name: one.assigned for one in self.coordinator.brokers() if one.assigned} == {
            name: count for name, count in counted.items() if name in self.states()
        }

    @invariant()
    def no_position_is_lost(self) -> None:
        for name, record in self.store.records(self.subscribers).items():
            assert record.subscriptions["x"].acked == self.acked[name]


Moves.TestCase.settings = settings(max_examples=examples(50), stateful_step_count=25, derandomize=True)
TestMoves = Moves.TestCase


@pytest.mark.parametrize("way", sorted(STRATEGIES))
def test_subscribers_of_dead_broker_move_at_once_by_ten_thousands(way: str, tmp_path: Path) -> None:
    file = tmp_path / "coordinator.sqlite"
    store = CoordinatorStore(file)
    coordinator = coordinator_over(store, way)
    for name in BROKERS:
        coordinator.register(broker(name), 0)
    store.close()
    with closing(sqlite3.connect(file)) as connection, connection:
        rows = ((f"s{number}", "hash", "north", number % 180 - 90.0, 0.0) for number in range(10_000))
        connection.executemany(
            "INSERT INTO subscribers (name, hash, broker, lat, lon) VALUES (?, ?, ?, ?, ?)", rows
        )
    store = CoordinatorStore(file)
    coordinator = coordinator_over(store, way)
    coordinator.set_draining("north", True)
    counted = store.count_subscribers()
    assert "north" not in counted
    assert sum(counted.values()) == 10_000
    if way == "least-loaded":
        assert sorted(counted.values()) == [3333, 3333, 3334]
    store.close()
