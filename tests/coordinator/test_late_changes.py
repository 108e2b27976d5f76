"""Changes that a broker accepted before it learned of a move count, although they arrive later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.coordinator.coordinators import broker, coordinating, coordinator_over, read, report

from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.wire.subscribers import (
    Ack,
    AddSubscription,
    EndSession,
    RemoveSubscription,
    SessionChange,
    SubscriberChange,
)

Both = tuple[Coordinator, CoordinatorStore]
LATER = 2**42
BEFORE: list[SubscriberChange] = [
    SessionChange("ana", "one", 3, LATER),
    SessionChange("ana", "two", 1, LATER),
    AddSubscription("ana", "x", "near", [1], 5),
]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    """`ana` was at broker at `a`, and `b` took her and has confirmed."""
    with coordinating(tmp_path) as (coordinator, store):
        coordinator.register(broker("a"), 0)
        coordinator.register(broker("b"), 0)
        coordinator.add_subscriber("ana", "hash", "a")
        coordinator.change("a", BEFORE)
        caught_up(coordinator)
        yield coordinator, store


def sessions(coordinator: Coordinator) -> dict[str, int]:
    found = coordinator.lookup("a", ["ana"], take=False).subscribers["ana"].sessions
    return {sid: one.generation for sid, one in found.items()}


def subscriptions(coordinator: Coordinator) -> dict[str, int]:
    found = coordinator.lookup("a", ["ana"], take=False).subscribers["ana"].subscriptions
    return {key: one.acked for key, one in found.items()}


def behind(coordinator: Coordinator) -> bool:
    """Whether `b` has to look her up."""
    coordinator.heartbeat("b", report(), 1)
    return coordinator.heartbeat("b", report(), 1).adopt == ["ana"]


def caught_up(coordinator: Coordinator) -> None:
    assert coordinator.heartbeat("b", report(adopted=read(coordinator, "b", "ana")), 1).adopt == []


def test_late_logout_and_late_unsubscription_count(both: Both) -> None:
    coordinator, _ = both
    done = coordinator.change("a", [EndSession("ana", "one"), RemoveSubscription("ana", "x")])
    assert (done.applied, done.moved) == (2, ["ana"])
    assert (sessions(coordinator), subscriptions(coordinator)) == ({"two": 1}, {})
    assert behind(coordinator)
    caught_up(coordinator)
    assert coordinator.change("a", [EndSession("ana", "one")]).applied == 0, "the same again"
    assert not behind(coordinator)


def test_late_subscription_counts_unless_present(both: Both) -> None:
    coordinator, _ = both
    late: list[SubscriberChange] = [
        AddSubscription("ana", "x", "other", [2], 9),
        AddSubscription("ana", "y", "near", [2], 1),
        Ack("ana", "y", 4),
    ]
    assert coordinator.change("a", late).applied == 2
    assert subscriptions(coordinator) == {"x": 5, "y": 4}
    assert behind(coordinator)


def test_late_acknowledgement_counts_and_broker_catches_up(both: Both) -> None:
    coordinator, _ = both
    assert coordinator.change("a", [Ack("ana", "x", 7)]).applied == 1
    assert subscriptions(coordinator) == {"x": 7}
    assert behind(coordinator), "otherwise the broker would deliver again what was acknowledged"


def test_repeated_change_undoes_no_later_change(both: Both) -> None:
    coordinator, _ = both
    made = AddSubscription("ana", "z", "near", [3], 1, 10)
    coordinator.change("b", [made, Ack("ana", "z", 7, 10)])
    coordinator.change("b", [made, Ack("ana", "z", 6, 10)])
    assert subscriptions(coordinator)["z"] == 7
    coordinator.change("b", [RemoveSubscription("ana", "z", 11)])
    coordinator.change("b", [made])
    assert "z" not in subscriptions(coordinator)


def test_late_session_of_same_generation_changes_nothing(both: Both) -> None:
    """Both brokers were asked to refresh it at once."""
    coordinator, _ = both
    coordinator.change("b", [SessionChange("ana", "one", 4, LATER)])
    assert coordinator.change("a", [SessionChange("ana", "one", 4, LATER + 1)]).applied == 0
    assert not behind(coordinator)


def test_late_changes_do_not_undo_newer_ones(both: Both) -> None:
    coordinator, _ = both
    coordinator.change("b", [AddSubscription("ana", "z", "near", [3], 1, 10), RemoveSubscription("ana", "z", 11)])
    assert coordinator.change("a", [AddSubscription("ana", "z", "near", [3], 1, 9)]).applied == 0, (
        "it was removed since"
    )
    coordinator.change("b", [AddSubscription("ana", "z", "near", [3], 5, 12)])
    late: list[SubscriberChange] = [RemoveSubscription("ana", "z", 11), Ack("ana", "z", 99, 10)]
    assert coordinator.change("a", late).applied == 0, "both are of the subscription before"
    assert subscriptions(coordinator) == {"x": 5, "z": 5}
    assert coordinator.change("a", [RemoveSubscription("ana", "z", 13)]).applied == 1
    assert subscriptions(coordinator) == {"x": 5}


@pytest.mark.parametrize("teller", ["a", "b"])
def test_older_subscription_does_not_replace_newer_one(both: Both, teller: str) -> None:
    """A broker was away, or one of its requests was on the way for long, and it is the broker again."""
    coordinator, _ = both
    coordinator.change("b", [AddSubscription("ana", "z", "near", [3], 5, 12)])
    coordinator.change(teller, [AddSubscription("ana", "z", "near", [3], 9, 11)])
    found = coordinator.lookup("a", ["ana"], take=False).subscribers["ana"].subscriptions["z"]
    assert (found.version, found.acked) == (12, 5)


def test_older_removal_does_not_lift_ban_of_newer_one(both: Both) -> None:
    coordinator, _ = both
    coordinator.change("b", [AddSubscription("ana", "z", "near", [3], 1, 12), RemoveSubscription("ana", "z", 13)])
    coordinator.change("a", [RemoveSubscription("ana", "z", 11), AddSubscription("ana", "z", "near", [3], 1, 12)])
    assert "z" not in subscriptions(coordinator)


def test_late_session_counts_if_newer_and_not_ended(both: Both) -> None:
    coordinator, _ = both
    coordinator.change("b", [EndSession("ana", "two")])
    late: list[SubscriberChange] = [SessionChange("ana", "one", 2, LATER), SessionChange("ana", "two", 2, LATER)]
    assert coordinator.change("a", late).applied == 0
    assert not behind(coordinator)
    late = [SessionChange("ana", "one", 4, LATER), SessionChange("ana", "new", 0, LATER)]
    assert coordinator.change("a", late).applied == 2
    assert sessions(coordinator) == {"one": 4, "new": 0}
    assert behind(coordinator)


def test_broker_with_session_ended_elsewhere_must_catch_up(both: Both) -> None:
    coordinator, store = both
    coordinator.change("a", [EndSession("ana", "one")])
    caught_up(coordinator)
    coordinator.change("b", [SessionChange("ana", "one", 4, LATER)])
    assert "one" not in sessions(coordinator)
    assert behind(coordinator)
    again = coordinator_over(store, now=1)
    again.change("b", [SessionChange("ana", "one", 5, LATER)])
    assert "one" not in sessions(again), "that it was ended outlives the coordinator"


def test_unknown_subscriber_is_not_created_by_late_changes(both: Both) -> None:
    coordinator, store = both
    late: list[SubscriberChange] = [
        SessionChange("ghost", "one", 1, LATER),
        AddSubscription("ghost", "x", "near", [], 0),
    ]
    done = coordinator.change("a", late)
    assert (done.applied, done.moved) == (0, ["ghost"])
    assert store.records(["ghost"]) == {}
    assert store.handovers("b", "adopt", 9) == {}


def test_session_ends_are_stored_as_numbers(tmp_path: Path) -> None:
    with coordinating(tmp_path, most_sessions=2) as (coordinator, _):
        coordinator.register(broker("b"), 0)
        coordinator.add_subscriber("ana", "hash", "b")
        sids = [f"s{number}" for number in range(5)]
        for number, sid in enumerate(sids):
            coordinator.change("b", [SessionChange("ana", sid, 0, LATER + number), EndSession("ana", sid)])
        assert [sid for sid in sids if coordinator.store.has_ended("ana", sid)] == ["s3", "s4"]


def test_session_ends_are_dropped_at_open_after_expiry(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, _):
        coordinator.register(broker("a"), 0)
        coordinator.add_subscriber("ana", "hash", "a")
        for sid, expires in (("past", 99), ("future", LATER)):
            coordinator.change("a", [SessionChange("ana", sid, 0, expires), EndSession("ana", sid)])
    with coordinating(tmp_path) as (coordinator, _):
        assert [sid for sid in ("past", "future") if coordinator.store.has_ended("ana", sid)] == ["future"]


def test_ended_sessions_are_removed_after_they_expire(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, _):
        coordinator.register(broker("a"), 0)
        coordinator.add_subscriber("ana", "hash", "a")
        coordinator.change("a", [SessionChange("ana", "old", 1, 1), SessionChange("ana", "new", 1, LATER)])
        coordinator.change("a", [EndSession("ana", "old"), EndSession("ana", "new")])
    with coordinating(tmp_path) as (coordinator, _):
        assert [coordinator.store.has_ended("ana", sid) for sid in ("old", "new")] == [False, True]
