"""The coordinator without sockets: leases, homes, moves, handovers, maintenance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from coordinating import LEASE_S, broker, coordinating, coordinator_over, live, read, report

from newsstand.coordinator import coordinator as module
from newsstand.coordinator import handing_over
from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.records import Acknowledged, Change, SessionChanged, Subscribed
from newsstand.coordinator.standing import Found, Registered
from newsstand.coordinator.store import Taken
from newsstand.coordinator.store_sqlite import SqliteStore
from newsstand.errors import NoRoom, NotFound
from newsstand.planning.places import NOWHERE, Place

Both = tuple[Coordinator, SqliteStore]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    with coordinating(tmp_path) as made:
        yield made


def populate(coordinator: Coordinator, home: str, count: int, prefix: str = "s") -> list[str]:
    names = [f"{prefix}{number:03d}" for number in range(count)]
    for name in names:
        coordinator.add_subscriber(name, "hash", home)
    return names


def test_a_broker_that_is_silent_for_a_lease_is_dead_and_its_subscribers_are_spread(both: Both) -> None:
    coordinator, store = both
    for name in ("a", "b", "c"):
        coordinator.register(broker(name), 0)
    names = populate(coordinator, "a", 100)
    live(coordinator, LEASE_S, "b", "c")
    assert [one.state for one in coordinator.brokers()] == ["up", "up", "up"], "not before the lease is over"
    live(coordinator, LEASE_S + 0.5, "b", "c", since=LEASE_S)
    assert [one.state for one in coordinator.brokers()] == ["dead", "up", "up"]
    assert store.count_homes() == {"b": 50, "c": 50}, "those just moved count as load"
    told = [coordinator.heartbeat(name, report(), 4).adopt for name in ("b", "c")]
    assert sorted(told[0] + told[1]) == names
    with pytest.raises(NotFound, match="register again"):
        coordinator.heartbeat("a", report(), 4)


def test_a_broker_that_comes_back_learns_who_is_its_own(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    coordinator.register(broker("b"), 0)
    populate(coordinator, "a", 3)
    now = live(coordinator, 4, "b")
    again = coordinator.register(broker("a"), now)
    assert (again.homes, again.held) == ([], ["s000", "s001", "s002"]), "b does not follow their streams yet"
    assert coordinator.heartbeat("a", report(), now).moved == {}


def test_without_a_live_broker_homes_stay_until_one_registers(both: Both) -> None:
    coordinator, store = both
    coordinator.register(broker("a"), 0)
    names = populate(coordinator, "a", 3)
    now = live(coordinator, 4)
    assert store.count_homes() == {"a": 3}
    assert coordinator.homeless == 3
    assert coordinator.broker_for("s000", NOWHERE) is None
    assert coordinator.register(broker("b"), now).homes == [], "a has one lease to come back"
    live(coordinator, now + LEASE_S, "b", since=now)
    assert store.homes("b") == names
    assert coordinator.homeless == 0


def test_a_broker_that_alone_comes_back_has_its_own_again(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    names = populate(coordinator, "a", 3)
    now = live(coordinator, 4)
    assert coordinator.register(broker("a"), now) == Registered("up", names, [], serial=3)
    assert coordinator.heartbeat("a", report(), now).adopt == []


def test_who_is_adopted_is_told_until_it_is_confirmed_and_in_pieces(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, _ = both
    monkeypatch.setattr(handing_over, "MOST_TOLD", 2)
    coordinator.register(broker("a"), 0)
    coordinator.register(broker("b"), 0)
    names = populate(coordinator, "a", 3)
    assert coordinator.drain("a") == ("draining", 3)
    for _ in range(2):
        told = coordinator.heartbeat("b", report(), 1)
        assert told.adopt == names[:2]
    adopted = read(coordinator, "b", *names)
    for some, left in ((names[:2], names[2:]), (names[2:], [])):
        confirmed = {name: adopted[name] for name in some}
        assert coordinator.heartbeat("b", report(adopted=confirmed), 1).adopt == left
    told_of = coordinator.heartbeat("a", report(), 1).moved
    assert list(told_of) == names[:2]
    assert list(coordinator.heartbeat("a", report(forgot=told_of), 1).moved) == names[2:]


def test_a_confirmation_of_an_earlier_handover_confirms_nothing(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    coordinator.register(broker("b"), 0)
    populate(coordinator, "a", 1)
    coordinator.drain("a")
    adopted = read(coordinator, "b", "s000")
    coordinator.resume("a")
    coordinator.drain("b")
    coordinator.resume("b")
    coordinator.drain("a")
    late = coordinator.heartbeat("b", report(adopted=adopted), 1)
    assert late.adopt == ["s000"], "it went to a and came back in between: what b has of it is old"


def test_a_draining_broker_gets_nobody_and_takes_nobody(both: Both) -> None:
    coordinator, store = both
    coordinator.register(broker("a"), 0)
    coordinator.register(broker("b"), 0)
    populate(coordinator, "b", 1)
    coordinator.drain("a")
    chosen = [coordinator.broker_for(None, NOWHERE) for _ in range(5)]
    assert {one.broker.name for one in chosen if one} == {"b"}
    assert coordinator.lookup("a", ["s000"], take=True) == Found({}, ["s000"])
    assert store.count_homes() == {"b": 1}
    assert coordinator.register(broker("a"), 1).state == "draining", "maintenance goes on until it is ended"
    assert coordinator.resume("a") == ("up", 0)
    adopted = read(coordinator, "a", "s000")
    assert store.count_homes() == {"a": 1}
    assert coordinator.heartbeat("a", report(adopted=adopted), 1).adopt == []
    assert list(coordinator.heartbeat("b", report(), 1).moved) == ["s000"]


def test_the_only_broker_keeps_its_subscribers_while_it_drains(both: Both) -> None:
    coordinator, store = both
    coordinator.register(broker("a"), 0)
    populate(coordinator, "a", 2)
    assert coordinator.drain("a") == ("draining", 0)
    assert store.count_homes() == {"a": 2}
    coordinator.register(broker("b"), 1)
    assert store.count_homes() == {"b": 2}


def test_a_broker_that_leaves_is_forgotten_and_its_subscribers_move(both: Both) -> None:
    coordinator, store = both
    coordinator.register(broker("a"), 0)
    populate(coordinator, "a", 2)
    assert coordinator.leave("a") == 0
    assert coordinator.brokers() == []
    assert (coordinator.subscribers, coordinator.homeless) == (2, 2)
    coordinator.register(broker("b"), 1)
    live(coordinator, 1 + LEASE_S, "b", since=1)
    assert store.count_homes() == {"b": 2}
    coordinator.register(broker("c"), 1 + LEASE_S)
    assert coordinator.leave("b") == 2
    with pytest.raises(NotFound):
        coordinator.leave("b")


def test_subscribers_of_a_dead_broker_go_to_the_one_nearest_to_them_or_else_to_it(tmp_path: Path) -> None:
    with coordinating(tmp_path, "miles") as (coordinator, store):
        coordinator.register(broker("london", lat=51.5, lon=-0.1), 0)
        coordinator.register(broker("paris", lat=48.9, lon=2.4), 0)
        coordinator.register(broker("boston", lat=42.4, lon=-71.1), 0)
        populate(coordinator, "london", 2)
        first = coordinator.broker_for("s000", Place(40.7, -74.0))
        assert first is not None
        assert (first.broker.name, first.sticky) == ("london", True)
        live(coordinator, 4, "paris", "boston")
        assert store.homes("boston") == ["s000"], "it asked from New York"
        assert store.homes("paris") == ["s001"], "nobody knows where it is, but its broker was in London"


def test_whoever_is_not_known_gets_a_broker_and_no_home(both: Both) -> None:
    coordinator, store = both
    assert coordinator.broker_for("ghost", NOWHERE) is None
    coordinator.register(broker("a"), 0)
    chosen = coordinator.broker_for("ghost", Place(1, 1))
    assert chosen is not None
    assert not chosen.sticky
    assert store.count_homes() == {}


def test_many_who_ask_at_once_are_spread_by_capacity(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("large", capacity=300), 0)
    coordinator.register(broker("small", capacity=100), 0)
    chosen = [coordinator.broker_for(None, NOWHERE) for _ in range(400)]
    assert sum(one is not None and one.broker.name == "large" for one in chosen) == 300


def test_a_coordinator_that_was_away_itself_gives_everybody_one_lease_more(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    coordinator.tick(1000)
    assert coordinator.brokers()[0].state == "up"
    live(coordinator, 1000 + LEASE_S + 0.5, since=1000)
    assert coordinator.brokers()[0].state == "dead"


def test_after_a_restart_every_broker_has_one_lease_and_everything_else_is_as_before(both: Both) -> None:
    coordinator, store = both
    for name in ("a", "b", "c"):
        coordinator.register(broker(name), 0)
    populate(coordinator, "a", 4)
    coordinator.drain("c")
    now = live(coordinator, 4, "b", "c")
    again = coordinator_over(store, now=0)
    assert [(one.name, one.state, one.homes) for one in again.brokers()] == [
        (one.name, one.state, one.homes) for one in coordinator.brokers()
    ]
    assert [one.record for one in again.brokers()] == [one.record for one in coordinator.brokers()]
    assert again.heartbeat("b", report(), 1).adopt == coordinator.heartbeat("b", report(), now).adopt
    live(again, LEASE_S, since=0)
    assert [one.state for one in again.brokers()] == ["dead", "up", "draining"]


def test_a_move_that_the_disk_refuses_is_made_the_next_time(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert (coordinator.subscribers, coordinator.homeless) == (3, 3)
    live(coordinator, LEASE_S, "b")
    assert store.count_homes() == {"b": 3}
    assert coordinator.homeless == 0


def test_a_dead_broker_that_nobody_misses_is_forgotten_after_a_day(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    now = live(coordinator, 4)
    coordinator.tick(now + module.FORGOTTEN_AFTER_S - 1)
    assert len(coordinator.brokers()) == 1
    coordinator.tick(now + module.FORGOTTEN_AFTER_S + 1)
    assert coordinator.brokers() == []


def test_a_name_is_taken_once_and_the_same_registration_again_is_no_harm(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    coordinator.add_subscriber("ana", "hash", "a")
    coordinator.add_subscriber("ana", "hash", "a")
    assert coordinator.subscribers == 1
    with pytest.raises(Taken):
        coordinator.add_subscriber("ana", "other", "a")
    with pytest.raises(NotFound):
        coordinator.add_subscriber("bob", "hash", "nobody")


CHANGES: list[Change] = [
    SessionChanged("s000", "one", 1, 99, [{"channel": "*"}]),
    Subscribed("s000", "x", "near", ["flood", 1.5, True], 3),
    Acknowledged("s000", "x", 5),
]


def test_changes_just_before_a_move_are_not_lost_and_positions_never_go_back(both: Both) -> None:
    coordinator, _ = both
    coordinator.register(broker("a"), 0)
    coordinator.register(broker("b"), 0)
    populate(coordinator, "a", 1)
    coordinator.drain("a")
    done = coordinator.change("a", CHANGES)
    assert (done.applied, done.moved) == (3, []), "nobody has read the record since"
    found = coordinator.lookup("b", ["s000", "ghost"], take=True)
    assert found.elsewhere == []
    assert found.records == {
        "s000": {
            "name": "s000",
            "hash": "hash",
            "sessions": {"one": {"generation": 1, "expires": 99, "allow": [{"channel": "*"}]}},
            "subscriptions": {"x": {"channel": "near", "values": ["flood", 1.5, True], "acked": 5, "version": 0}},
            "clock": 0,
            "epoch": 2,
            "born": 1,
            "disabled": False,
        }
    }
    coordinator.heartbeat("b", report(adopted=found.handovers), 1)
    done = coordinator.change("a", [Acknowledged("s000", "x", 8)])
    assert (done.applied, done.moved) == (1, ["s000"])
    subscriptions = coordinator.lookup("b", ["s000"], take=False).records["s000"]["subscriptions"]
    assert subscriptions == {"x": {"channel": "near", "values": ["flood", 1.5, True], "acked": 8, "version": 0}}
    assert coordinator.change("b", [Acknowledged("s000", "x", 7)]).applied == 1
    again = coordinator.lookup("b", ["s000"], take=False).records["s000"]["subscriptions"]
    assert again == subscriptions, "never back"
