"""Whatever brokers do and whenever they die: nobody is lost or in two places, and nothing answered is undone."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from coordinating import HELD_S, LEASE_S, broker, coordinator_over, report
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from newsstand.coordinator.choosing import WAYS
from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.records import (
    Acknowledged,
    Change,
    Move,
    Record,
    SessionChanged,
    SessionEnded,
    Subscribed,
    Unsubscribed,
)
from newsstand.coordinator.standing import Told
from newsstand.coordinator.store_sqlite import SqliteStore
from newsstand.planning.places import NOWHERE

BROKERS = ("north", "south", "harbour", "hill")
brokers = st.sampled_from(BROKERS)


LATER = 2**42


def things(record: Record) -> set[str]:
    """The sessions and subscriptions in a record."""
    sessions, subscriptions = record["sessions"], record["subscriptions"]
    assert isinstance(sessions, dict)
    assert isinstance(subscriptions, dict)
    return {*sessions, *subscriptions} - {"x"}


def thing(change: Change) -> str:
    return change.sid if isinstance(change, SessionChanged | SessionEnded) else change.id


class Edge:
    """A broker as it should be: keeps who it is told to keep, catches up, and confirms."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.keeps: dict[str, set[str]] = {}
        """Subscribers, with their sessions and subscriptions."""
        self.unsent: list[Change] = []
        self.adopted: dict[str, int] = {}
        self.forgot: dict[str, int] = {}

    def bring(self, coordinator: Coordinator, names: list[str]) -> list[str]:
        found = coordinator.lookup(self.name, names, take=True)
        for name, record in found.records.items():
            self.keeps[name] = things(record)
            for change in self.unsent:
                self.apply(change)
        self.adopted |= found.handovers
        return sorted(found.records)

    def apply(self, change: Change) -> None:
        if change.name in self.keeps and isinstance(change, SessionChanged | Subscribed):
            self.keeps[change.name].add(thing(change))
        elif change.name in self.keeps:
            self.keeps[change.name].discard(thing(change))

    def do(self, coordinator: Coordinator, told: Told) -> None:
        for name in told.moved:
            self.keeps.pop(name, None)
        self.adopted, self.forgot = {}, told.moved
        self.bring(coordinator, told.adopt)


class CountingStore(SqliteStore):
    """A store that counts how often each subscriber moves."""

    moves: list[Move]

    def move(self, moves: list[Move], told: object, takes: bool) -> int:  # type: ignore[override]
        self.moves.extend(moves)
        return super().move(moves, told, takes)  # type: ignore[arg-type]


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
        homes = registered.homes
        edge.keeps.clear()
        edge.adopted, edge.forgot = {}, {}
        edge.bring(self.coordinator, homes)

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
            came = self.edges[name].bring(self.coordinator, [subscriber])
            assert (came == [subscriber]) == (self.store.homes_of([subscriber])[subscriber] == name)
            assert came or state == "draining"

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

    @precondition(lambda self: self.subscribers)
    @rule(name=brokers, data=st.data(), session=st.booleans(), ends=st.booleans())
    def begin_or_end(self, name: str, data: st.DataObject, session: bool, ends: bool) -> None:
        """A broker that keeps a subscriber answers something, and will tell the coordinator later."""
        edge = self.edges.get(name)
        if edge is None or not edge.keeps or name not in self.talks:
            return
        subscriber = data.draw(st.sampled_from(sorted(edge.keeps)))
        known = sorted(one for one in edge.keeps[subscriber] if one.startswith("s" if session else "y"))
        change: Change
        if ends and known:
            which = data.draw(st.sampled_from(known))
            change = SessionEnded(subscriber, which) if session else Unsubscribed(subscriber, which)
            self.lasting[subscriber].discard(which)
        else:
            self.begun += 1
            which = f"{'s' if session else 'y'}{self.begun}"
            change = (
                SessionChanged(subscriber, which, 0, LATER)
                if session
                else Subscribed(subscriber, which, "near", [], 0)
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
                told = self.coordinator.heartbeat(
                    name, report(len(edge.keeps), edge.adopted, edge.forgot), self.now
                )
                self.nobody_is_dropped_too_early(told)
                edge.do(self.coordinator, told)
            del self.store.moves[:]
            self.coordinator.tick(self.now)
            moved = [one.name for one in self.store.moves]
            assert len(moved) == len(set(moved)), "nobody moves twice"
            self.moved_at |= dict.fromkeys(moved, self.now)

    def nobody_is_dropped_too_early(self, told: Told) -> None:
        self.moved_at |= {one.name: self.now for one in self.store.moves}
        homes = self.store.homes_of(told.moved)
        for name in told.moved:
            is_old = self.now - self.moved_at.get(name, self.now) >= HELD_S
            assert is_old or name in self.edges[homes[name]].keeps, "nobody would follow its streams"

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
        for name in BROKERS:
            if name in self.edges and name not in self.talks:
                self.register(name)
            self.send(name)
        self.time_passes(12)
        states = self.states()
        up = {name for name, state in states.items() if state == "up"}
        assert up <= self.talks
        homes = self.store.homes_of(self.subscribers)
        if up:
            assert set(homes.values()) <= up
        for name in self.talks:
            own = [one for one, home in homes.items() if home == name]
            assert self.edges[name].keeps == {one: self.lasting[one] for one in own}
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
        for name, record in self.store.records(self.subscribers).items():
            subscriptions = record["subscriptions"]
            assert isinstance(subscriptions, dict)
            assert subscriptions["x"]["acked"] == self.acked[name]


Moves.TestCase.settings = settings(max_examples=50, stateful_step_count=25, deadline=None, derandomize=True)
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
