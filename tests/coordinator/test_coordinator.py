"""The coordinator without sockets: leases, brokers, moves, handovers, maintenance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.coordinator.coordinators import (
    HELD_S,
    LEASE_S,
    LEASES,
    broker,
    coordinating,
    coordinator_over,
    live,
    read,
    report,
)

from newsstand.auth.tokens import ChannelScope
from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.model import SubscriberExists
from newsstand.coordinator.registry import LeaseLimits
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.errors import NoRoom, NotFound
from newsstand.geo.location import UNKNOWN, Location
from newsstand.wire.coordination import LookupResponse
from newsstand.wire.subscribers import (
    Ack,
    AddSubscription,
    SessionChange,
    SessionRecord,
    SubscriberChange,
    SubscriberRecord,
    SubscriptionRecord,
)

Both = tuple[Coordinator, CoordinatorStore]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    with coordinating(tmp_path) as made:
        yield made


def populate(coordinator: Coordinator, owner: str, count: int, prefix: str = "s") -> list[str]:
    names = [f"{prefix}{number:03d}" for number in range(count)]
    for name in names:
        coordinator.add_subscriber(name, "hash", owner)
    return names


def test_broker_silent_for_one_lease_is_dead_and_its_subscribers_are_spread(both: Both) -> None:
    coordinator, store = both
    for name in ("a", "b", "c"):
        coordinator.register(broker(name), 0)
    names = populate(coordinator, "a", 100)
    live(coordinator, LEASE_S, "b", "c")
    assert [one.state for one in coordinator.brokers()] == ["up", "up", "up"], "not before the lease is over"
    live(coordinator, LEASE_S + 0.5, "b", "c", since=LEASE_S)
    assert [one.state for one in coordinator.brokers()] == ["dead", "up", "up"]
    assert store.count_subscribers() == {"b": 50, "c": 50}, "those just moved count as load"
    reply = [coordinator.heartbeat(name, report(), 4).adopt for name in ("b", "c")]
    assert sorted(reply[0] + reply[1]) == names
    with pytest.raises(NotFound, match="register again"):
        coordinator.heartbeat("a", report(), 4)


def test_returning_broker_learns_its_subscribers(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    coordinator.register(broker("b"), 0)
    populate(coordinator, "a", 3)
    now = live(coordinator, 4, "b")
    again = coordinator.register(broker("a"), now)
    assert (again.subscribers, again.held) == ([], ["s000", "s001", "s002"]), "b does not follow their streams yet"
    assert coordinator.heartbeat("a", report(), now).moved == {}


def test_assignments_stay_without_live_broker_until_one_registers(both: Both) -> None:
    coordinator, store = both
    coordinator.register(broker("a"), 0)
    names = populate(coordinator, "a", 3)
    now = live(coordinator, 4)
    assert store.count_subscribers() == {"a": 3}
    assert coordinator.unserved == 3
    assert coordinator.broker_for("s000", UNKNOWN) is None
    assert coordinator.register(broker("b"), now).subscribers == [], "a has one lease to come back"
    live(coordinator, now + LEASE_S, "b", since=now)
    assert store.subscribers_of("b") == names
    assert coordinator.unserved == 0


def test_returning_broker_without_others_regains_its_subscribers(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    names = populate(coordinator, "a", 3)
    now = live(coordinator, 4)
    registered = coordinator.register(broker("a"), now)
    assert (registered.state, registered.subscribers) == ("up", names)
    assert (registered.held, registered.serial) == ([], 3)
    assert coordinator.heartbeat("a", report(), now).adopt == []


def test_adoptions_are_repeated_in_pieces_until_confirmed(
    both: Both,
) -> None:
    coordinator = coordinator_over(both[1], leases=LeaseLimits(LEASE_S, HELD_S, names=2))
    coordinator.register(broker("a"), 0)
    coordinator.register(broker("b"), 0)
    names = populate(coordinator, "a", 3)
    assert coordinator.set_draining("a", True) == ("draining", 3)
    for _ in range(2):
        reply = coordinator.heartbeat("b", report(), 1)
        assert reply.adopt == names[:2]
    adopted = read(coordinator, "b", *names)
    for some, left in ((names[:2], names[2:]), (names[2:], [])):
        confirmed = {name: adopted[name] for name in some}
        assert coordinator.heartbeat("b", report(adopted=confirmed), 1).adopt == left
    departures = coordinator.heartbeat("a", report(), 1).moved
    assert list(departures) == names[:2]
    assert list(coordinator.heartbeat("a", report(forgot=departures), 1).moved) == names[2:]


def test_confirmation_of_earlier_handover_confirms_nothing(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    coordinator.register(broker("b"), 0)
    populate(coordinator, "a", 1)
    coordinator.set_draining("a", True)
    adopted = read(coordinator, "b", "s000")
    coordinator.set_draining("a", False)
    coordinator.set_draining("b", True)
    coordinator.set_draining("b", False)
    coordinator.set_draining("a", True)
    late = coordinator.heartbeat("b", report(adopted=adopted), 1)
    assert late.adopt == ["s000"], "it went to a and came back in between: what b has of it is old"


def test_draining_broker_receives_and_takes_no_subscribers(both: Both) -> None:
    coordinator, store = both
    coordinator.register(broker("a"), 0)
    coordinator.register(broker("b"), 0)
    populate(coordinator, "b", 1)
    coordinator.set_draining("a", True)
    chosen = [coordinator.broker_for(None, UNKNOWN) for _ in range(5)]
    assert {one.broker.name for one in chosen if one} == {"b"}
    assert coordinator.lookup("a", ["s000"], take=True) == LookupResponse({}, ["s000"], {})
    assert store.count_subscribers() == {"b": 1}
    assert coordinator.register(broker("a"), 1).state == "draining", "maintenance goes on until it is ended"
    assert coordinator.set_draining("a", False) == ("up", 0)
    adopted = read(coordinator, "a", "s000")
    assert store.count_subscribers() == {"a": 1}
    assert coordinator.heartbeat("a", report(adopted=adopted), 1).adopt == []
    assert list(coordinator.heartbeat("b", report(), 1).moved) == ["s000"]


def test_draining_broker_without_others_keeps_its_subscribers(both: Both) -> None:
    coordinator, store = both
    coordinator.register(broker("a"), 0)
    populate(coordinator, "a", 2)
    assert coordinator.set_draining("a", True) == ("draining", 0)
    assert store.count_subscribers() == {"a": 2}
    coordinator.register(broker("b"), 1)
    assert store.count_subscribers() == {"b": 2}


def test_leaving_broker_is_forgotten_and_its_subscribers_move(both: Both) -> None:
    coordinator, store = both
    coordinator.register(broker("a"), 0)
    populate(coordinator, "a", 2)
    assert coordinator.leave("a") == 0
    assert coordinator.brokers() == []
    assert (coordinator.subscribers, coordinator.unserved) == (2, 2)
    coordinator.register(broker("b"), 1)
    live(coordinator, 1 + LEASE_S, "b", since=1)
    assert store.count_subscribers() == {"b": 2}
    coordinator.register(broker("c"), 1 + LEASE_S)
    assert coordinator.leave("b") == 2
    with pytest.raises(NotFound):
        coordinator.leave("b")


def test_subscribers_of_dead_broker_move_to_one_nearest_to_them_or_to_it(tmp_path: Path) -> None:
    with coordinating(tmp_path, "miles") as (coordinator, store):
        coordinator.register(broker("london", lat=51.5, lon=-0.1), 0)
        coordinator.register(broker("paris", lat=48.9, lon=2.4), 0)
        coordinator.register(broker("boston", lat=42.4, lon=-71.1), 0)
        populate(coordinator, "london", 2)
        first = coordinator.broker_for("s000", Location(40.7, -74.0))
        assert first is not None
        assert (first.broker.name, first.sticky) == ("london", True)
        live(coordinator, 4, "paris", "boston")
        assert store.subscribers_of("boston") == ["s000"], "it asked from New York"
        assert store.subscribers_of("paris") == ["s001"], "nobody knows where it is, but its broker was in London"


def test_unknown_subscriber_gets_broker_only_if_one_is_live(both: Both) -> None:
    coordinator, store = both
    assert coordinator.broker_for("ghost", UNKNOWN) is None
    coordinator.register(broker("a"), 0)
    chosen = coordinator.broker_for("ghost", Location(1, 1))
    assert chosen is not None
    assert not chosen.sticky
    assert store.count_subscribers() == {}


def test_simultaneous_subscribers_are_spread_by_capacity(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("large", capacity=300), 0)
    coordinator.register(broker("small", capacity=100), 0)
    chosen = [coordinator.broker_for(None, UNKNOWN) for _ in range(400)]
    assert sum(one is not None and one.broker.name == "large" for one in chosen) == 300


def test_coordinator_after_pause_extends_all_leases_by_one(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    coordinator.tick(1000)
    assert coordinator.brokers()[0].state == "up"
    live(coordinator, 1000 + LEASE_S + 0.5, since=1000)
    assert coordinator.brokers()[0].state == "dead"


def test_restart_gives_each_broker_one_lease_and_keeps_all_else(both: Both) -> None:
    coordinator, store = both
    for name in ("a", "b", "c"):
        coordinator.register(broker(name), 0)
    populate(coordinator, "a", 4)
    coordinator.set_draining("c", True)
    now = live(coordinator, 4, "b", "c")
    again = coordinator_over(store, now=0)
    assert [(one.name, one.state, one.assigned) for one in again.brokers()] == [
        (one.name, one.state, one.assigned) for one in coordinator.brokers()
    ]
    assert [one.record for one in again.brokers()] == [one.record for one in coordinator.brokers()]
    assert again.heartbeat("b", report(), 1).adopt == coordinator.heartbeat("b", report(), now).adopt
    live(again, LEASE_S, since=0)
    assert [one.state for one in again.brokers()] == ["dead", "up", "draining"]


def test_move_rejected_by_disk_is_repeated(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator, store = both
    coordinator.register(broker("a"), 0)
    coordinator.register(broker("b"), 0)
    populate(coordinator, "a", 3)

    def full(*_: object) -> None:
        raise NoRoom("no room left on the disk")

    with monkeypatch.context() as patched:
        patched.setattr(store, "move", full)
        with pytest.raises(NoRoom):
            coordinator.leave("a")
    assert (coordinator.subscribers, coordinator.unserved) == (3, 3)
    live(coordinator, LEASE_S, "b")
    assert store.count_subscribers() == {"b": 3}
    assert coordinator.unserved == 0


def test_dead_broker_without_subscribers_is_forgotten_after_one_day(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    now = live(coordinator, 4)
    coordinator.tick(now + LEASES.forgotten_after_s - 1)
    assert len(coordinator.brokers()) == 1
    coordinator.tick(now + LEASES.forgotten_after_s + 1)
    assert coordinator.brokers() == []


def test_name_is_registered_once_and_repetition_is_harmless(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    coordinator.add_subscriber("ana", "hash", "a")
    coordinator.add_subscriber("ana", "hash", "a")
    assert coordinator.subscribers == 1
    with pytest.raises(SubscriberExists):
        coordinator.add_subscriber("ana", "other", "a")
    with pytest.raises(NotFound):
        coordinator.add_subscriber("bob", "hash", "nobody")


CHANGES: list[SubscriberChange] = [
    SessionChange("s000", "one", 1, 99, [ChannelScope("*")]),
    AddSubscription("s000", "x", "near", ["flood", 1.5, True], 3),
    Ack("s000", "x", 5),
]


def test_changes_before_move_are_kept_and_positions_never_decrease(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    coordinator.register(broker("b"), 0)
    populate(coordinator, "a", 1)
    coordinator.set_draining("a", True)
    done = coordinator.change("a", CHANGES)
    assert (done.applied, done.moved) == (3, []), "nobody has read the record since"
    found = coordinator.lookup("b", ["s000", "ghost"], take=True)
    assert found.elsewhere == []
    assert found.subscribers == {
        "s000": SubscriberRecord(
            "s000",
            "hash",
            {"one": SessionRecord(1, 99, [ChannelScope("*")])},
            {"x": SubscriptionRecord("near", ["flood", 1.5, True], 5)},
            epoch=2,
            born=1,
        )
    }
    coordinator.heartbeat("b", report(adopted=found.handovers), 1)
    done = coordinator.change("a", [Ack("s000", "x", 8)])
    assert (done.applied, done.moved) == (1, ["s000"])
    subscriptions = coordinator.lookup("b", ["s000"], take=False).subscribers["s000"].subscriptions
    assert subscriptions == {"x": SubscriptionRecord("near", ["flood", 1.5, True], 8)}
    assert coordinator.change("b", [Ack("s000", "x", 7)]).applied == 1
    again = coordinator.lookup("b", ["s000"], take=False).subscribers["s000"].subscriptions
    assert again == subscriptions, "never back"
