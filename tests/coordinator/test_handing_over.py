"""A move in its order: the old home keeps a subscriber until the new one has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from coordinating import HELD_S, broker, coordinating, coordinator_over, live, read, report

from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.records import SessionEnded, Subscribed
from newsstand.coordinator.standing import Found
from newsstand.coordinator.store_sqlite import SqliteStore

Both = tuple[Coordinator, SqliteStore]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    """Brokers `a` and `b`, and `ana` at home at `a`."""
    with coordinating(tmp_path) as (coordinator, store):
        coordinator.register(broker("a"), 0)
        coordinator.register(broker("b"), 0)
        coordinator.add_subscriber("ana", "hash", "a")
        yield coordinator, store


def moved(coordinator: Coordinator, now: float = 1) -> list[str]:
    return list(coordinator.heartbeat("a", report(), now).moved)


def test_the_old_home_is_told_when_the_new_one_has_confirmed(both: Both) -> None:
    coordinator, _ = both
    coordinator.drain("a")
    assert moved(coordinator) == []
    assert coordinator.heartbeat("b", report(), 1).adopt == ["ana"]
    assert moved(coordinator) == []
    adopted = read(coordinator, "b", "ana")
    assert moved(coordinator) == [], "it was read, but b does not follow the streams yet"
    assert coordinator.heartbeat("b", report(adopted=adopted), 1).adopt == []
    told = coordinator.heartbeat("a", report(), 1).moved
    assert list(told) == ["ana"]
    assert coordinator.heartbeat("a", report(forgot=told), 1).moved == {}


def test_the_answer_to_changes_does_not_tell_it_earlier_either(both: Both) -> None:
    coordinator, _ = both
    change = [SessionEnded("ana", "s")]
    coordinator.drain("a")
    assert coordinator.change("a", change).moved == []
    adopted = read(coordinator, "b", "ana")
    assert coordinator.change("a", change).moved == []
    coordinator.heartbeat("b", report(adopted=adopted), 1)
    assert coordinator.change("a", change).moved == ["ana"]


def test_a_new_home_that_does_not_confirm_is_not_waited_for_for_ever(both: Both) -> None:
    coordinator, _ = both
    coordinator.drain("a")
    live(coordinator, HELD_S, "a", "b")
    assert moved(coordinator, HELD_S) == []
    assert moved(coordinator, HELD_S + 0.5) == ["ana"]
    assert coordinator.change("a", [SessionEnded("ana", "s")]).moved == [], "b has not read the record, even so"
    coordinator.lookup("b", ["ana"], take=True)
    assert coordinator.change("a", [SessionEnded("ana", "s")]).moved == ["ana"]


def test_after_a_restart_of_the_coordinator_the_waiting_begins_anew(both: Both) -> None:
    coordinator, store = both
    coordinator.drain("a")
    live(coordinator, HELD_S, "a", "b")
    again = coordinator_over(store, now=100)
    assert moved(again, 100 + HELD_S) == []
    assert moved(again, 100 + HELD_S + 0.5) == ["ana"]


def test_a_new_home_that_dies_before_it_confirms_is_followed_by_another_and_the_old_one_waits(both: Both) -> None:
    coordinator, _ = both
    coordinator.drain("a")
    coordinator.register(broker("c"), 0.5)
    now = live(coordinator, 4, "a", "c", since=0.5)
    assert moved(coordinator, now) == []
    assert coordinator.heartbeat("c", report(), now).adopt == ["ana"]
    coordinator.heartbeat("c", report(adopted=read(coordinator, "c", "ana")), now)
    assert moved(coordinator, now) == ["ana"]


def test_whoever_takes_confirms_by_itself_and_is_told_only_if_it_does_not(both: Both) -> None:
    coordinator, _ = both
    adopted = read(coordinator, "b", "ana")
    assert moved(coordinator) == []
    assert coordinator.heartbeat("b", report(adopted={**adopted, "nobody": 1}), 1).adopt == []
    assert moved(coordinator) == ["ana"]
    coordinator.lookup("a", ["ana"], take=True)
    assert coordinator.heartbeat("a", report(), 2).adopt == [], "that heartbeat may have been on its way"
    assert coordinator.heartbeat("a", report(), 2).adopt == ["ana"], "the answer to the lookup may be lost"


def test_a_confirmation_counts_for_what_was_read_and_not_for_what_was_told_since(both: Both) -> None:
    coordinator, _ = both
    coordinator.drain("a")
    coordinator.heartbeat("b", report(), 1)
    adopted = read(coordinator, "b", "ana")
    coordinator.change("a", [Subscribed("ana", "x", "near", [], 0)])
    assert coordinator.heartbeat("b", report(), 1).adopt == ["ana"]
    assert coordinator.heartbeat("b", report(adopted=adopted), 2).adopt == ["ana"], "it has not read x"
    found = coordinator.lookup("b", ["ana"], take=True)
    assert "x" in found.records["ana"]["subscriptions"]  # type: ignore[operator]
    assert coordinator.heartbeat("b", report(adopted=adopted), 3).adopt == ["ana"], "a heartbeat may come late"
    assert coordinator.heartbeat("b", report(adopted=found.handovers), 3).adopt == []


def test_a_confirmation_of_an_earlier_move_does_not_hide_a_later_one(both: Both) -> None:
    coordinator, _ = both
    coordinator.heartbeat("b", report(adopted=read(coordinator, "b", "ana")), 1)
    first = coordinator.heartbeat("a", report(), 1).moved
    for name in ("a", "b"):
        coordinator.heartbeat(name, report(adopted=read(coordinator, name, "ana")), 2)
    late = coordinator.heartbeat("a", report(forgot=first), 3)
    assert list(late.moved) == ["ana"], "that was before it came back"


def test_reading_without_taking_changes_nothing_for_anybody(both: Both) -> None:
    coordinator, store = both
    coordinator.drain("a")
    before = list(store._connection.iterdump())
    for name in ("a", "b"):
        assert list(coordinator.lookup(name, ["ana", "ghost"], take=False).records) == ["ana"]
    assert list(store._connection.iterdump()) == before
    assert coordinator.change("a", [Subscribed("ana", "x", "near", [], 0)]).applied == 1
    assert coordinator.heartbeat("b", report(), 1).adopt == ["ana"]


def test_a_draining_broker_reads_its_own_and_no_others(both: Both) -> None:
    coordinator, _ = both
    coordinator.leave("b")
    coordinator.drain("a")
    assert list(coordinator.lookup("a", ["ana"], take=True).records) == ["ana"], "nobody else is there"
    coordinator.register(broker("b"), 1)
    assert coordinator.lookup("a", ["ana", "ghost"], take=True) == Found({}, ["ana"])
