"""The order of a handover: the old broker keeps a subscriber until the new one confirms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.coordinator.coordinators import HELD_S, broker, coordinating, coordinator_over, live, read, report

from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.wire.coordination import LookupResponse
from newsstand.wire.subscribers import AddSubscription, EndSession

Both = tuple[Coordinator, CoordinatorStore]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    """Brokers `a` and `b`, and `ana` at broker at `a`."""
    with coordinating(tmp_path) as (coordinator, store):
        coordinator.register(broker("a"), 0)
        coordinator.register(broker("b"), 0)
        coordinator.add_subscriber("ana", "hash", "a")
        yield coordinator, store


def moved(coordinator: Coordinator, now: float = 1) -> list[str]:
    return list(coordinator.heartbeat("a", report(), now).moved)


def test_old_broker_learns_of_move_after_confirmation(both: Both) -> None:
    coordinator, _ = both
    coordinator.set_draining("a", True)
    assert moved(coordinator) == []
    assert coordinator.heartbeat("b", report(), 1).adopt == ["ana"]
    assert moved(coordinator) == []
    adopted = read(coordinator, "b", "ana")
    assert moved(coordinator) == [], "it was read, but b does not follow the streams yet"
    assert coordinator.heartbeat("b", report(adopted=adopted), 1).adopt == []
    departures = coordinator.heartbeat("a", report(), 1).moved
    assert list(departures) == ["ana"]
    assert coordinator.heartbeat("a", report(forgot=departures), 1).moved == {}


def test_answer_to_changes_does_not_reveal_move_before_confirmation(both: Both) -> None:
    coordinator, _ = both
    change = [EndSession("ana", "s")]
    coordinator.set_draining("a", True)
    assert coordinator.change("a", change).moved == []
    adopted = read(coordinator, "b", "ana")
    assert coordinator.change("a", change).moved == []
    coordinator.heartbeat("b", report(adopted=adopted), 1)
    assert coordinator.change("a", change).moved == ["ana"]


def test_wait_for_confirmation_of_new_broker_is_limited(both: Both) -> None:
    coordinator, _ = both
    coordinator.set_draining("a", True)
    live(coordinator, HELD_S, "a", "b")
    assert moved(coordinator, HELD_S) == []
    assert moved(coordinator, HELD_S + 0.5) == ["ana"]
    assert coordinator.change("a", [EndSession("ana", "s")]).moved == [], "b has not read the record, even so"
    coordinator.lookup("b", ["ana"], take=True)
    assert coordinator.change("a", [EndSession("ana", "s")]).moved == ["ana"]


def test_wait_for_confirmation_starts_over_after_restart(both: Both) -> None:
    coordinator, store = both
    coordinator.set_draining("a", True)
    live(coordinator, HELD_S, "a", "b")
    again = coordinator_over(store, now=100)
    assert moved(again, 100 + HELD_S) == []
    assert moved(again, 100 + HELD_S + 0.5) == ["ana"]


def test_new_broker_that_dies_unconfirmed_is_replaced_and_old_one_waits(
    both: Both,
) -> None:
    coordinator, _ = both
    coordinator.set_draining("a", True)
    coordinator.register(broker("c"), 0.5)
    now = live(coordinator, 4, "a", "c", since=0.5)
    assert moved(coordinator, now) == []
    assert coordinator.heartbeat("c", report(), now).adopt == ["ana"]
    coordinator.heartbeat("c", report(adopted=read(coordinator, "c", "ana")), now)
    assert moved(coordinator, now) == ["ana"]


def test_taking_broker_is_asked_to_adopt_only_without_confirmation(both: Both) -> None:
    coordinator, _ = both
    adopted = read(coordinator, "b", "ana")
    assert moved(coordinator) == []
    assert coordinator.heartbeat("b", report(adopted={**adopted, "nobody": 1}), 1).adopt == []
    assert moved(coordinator) == ["ana"]
    coordinator.lookup("a", ["ana"], take=True)
    assert coordinator.heartbeat("a", report(), 2).adopt == [], "that heartbeat may have been on its way"
    assert coordinator.heartbeat("a", report(), 2).adopt == ["ana"], "the answer to the lookup may be lost"


def test_confirmation_applies_to_records_read_and_not_to_later_ones(both: Both) -> None:
    coordinator, _ = both
    coordinator.set_draining("a", True)
    coordinator.heartbeat("b", report(), 1)
    adopted = read(coordinator, "b", "ana")
    coordinator.change("a", [AddSubscription("ana", "x", "near", [], 0)])
    assert coordinator.heartbeat("b", report(), 1).adopt == ["ana"]
    assert coordinator.heartbeat("b", report(adopted=adopted), 2).adopt == ["ana"], "it has not read x"
    found = coordinator.lookup("b", ["ana"], take=True)
    assert "x" in found.subscribers["ana"].subscriptions
    assert coordinator.heartbeat("b", report(adopted=adopted), 3).adopt == ["ana"], "a heartbeat may come late"
    assert coordinator.heartbeat("b", report(adopted=found.handovers), 3).adopt == []


def test_confirmation_of_earlier_move_does_not_hide_later_one(both: Both) -> None:
    coordinator, _ = both
    coordinator.heartbeat("b", report(adopted=read(coordinator, "b", "ana")), 1)
    first = coordinator.heartbeat("a", report(), 1).moved
    for name in ("a", "b"):
        coordinator.heartbeat(name, report(adopted=read(coordinator, name, "ana")), 2)
    late = coordinator.heartbeat("a", report(forgot=first), 3)
    assert list(late.moved) == ["ana"], "that was before it came back"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("coordinator.sqlite*")}


def test_read_without_take_changes_nothing(both: Both, tmp_path: Path) -> None:
    coordinator, _ = both
    coordinator.set_draining("a", True)
    before = contents(tmp_path)
    for name in ("a", "b"):
        assert list(coordinator.lookup(name, ["ana", "ghost"], take=False).subscribers) == ["ana"]
    assert contents(tmp_path) == before
    assert coordinator.change("a", [AddSubscription("ana", "x", "near", [], 0)]).applied == 1
    assert coordinator.heartbeat("b", report(), 1).adopt == ["ana"]


def test_draining_broker_reads_only_its_subscribers(both: Both) -> None:
    coordinator, _ = both
    coordinator.leave("b")
    coordinator.set_draining("a", True)
    assert list(coordinator.lookup("a", ["ana"], take=True).subscribers) == ["ana"], "nobody else is there"
    coordinator.register(broker("b"), 1)
    assert coordinator.lookup("a", ["ana", "ghost"], take=True) == LookupResponse({}, ["ana"], {})


def test_move_numbers_continue_after_restart(tmp_path: Path) -> None:
    """An epoch that comes twice would make an older record look like the newest."""
    with coordinating(tmp_path) as (coordinator, store):
        for name in ("a", "b"):
            coordinator.register(broker(name), 0)
        coordinator.add_subscriber("ana", "hash", "a")
        read(coordinator, "b", "ana")
        before = store.owners(["ana"])["ana"][1]
    with coordinating(tmp_path) as (coordinator, store):
        coordinator.register(broker("a"), 0)
        read(coordinator, "a", "ana")
        assert store.owners(["ana"])["ana"][1] > before
