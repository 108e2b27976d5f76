"""What a broker answered before it heard of a move counts, although it tells of it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from coordinating import broker, coordinating, coordinator_over, read, report

from newsstand.coordinator import changes_sql
from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.records import (
    Acknowledged,
    Change,
    SessionChanged,
    SessionEnded,
    Subscribed,
    Unsubscribed,
)
from newsstand.coordinator.store_sqlite import SqliteStore

Both = tuple[Coordinator, SqliteStore]
LATER = 2**42
BEFORE: list[Change] = [
    SessionChanged("ana", "one", 3, LATER),
    SessionChanged("ana", "two", 1, LATER),
    Subscribed("ana", "x", "near", [1], 5),
]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    """`ana` was at home at `a`, and `b` took her and has confirmed."""
    with coordinating(tmp_path) as (coordinator, store):
        coordinator.register(broker("a"), 0)
        coordinator.register(broker("b"), 0)
        coordinator.add_subscriber("ana", "hash", "a")
        coordinator.change("a", BEFORE)
        caught_up(coordinator)
        yield coordinator, store


def sessions(coordinator: Coordinator) -> dict[str, int]:
    found = coordinator.lookup("a", ["ana"], take=False).records["ana"]["sessions"]
    return {sid: one["generation"] for sid, one in found.items()}  # type: ignore[attr-defined]


def subscriptions(coordinator: Coordinator) -> dict[str, int]:
    found = coordinator.lookup("a", ["ana"], take=False).records["ana"]["subscriptions"]
    return {key: one["acked"] for key, one in found.items()}  # type: ignore[attr-defined]


def behind(coordinator: Coordinator) -> bool:
    """Whether `b` is told to look her up."""
    coordinator.heartbeat("b", report(), 1)
    return coordinator.heartbeat("b", report(), 1).adopt == ["ana"]


def caught_up(coordinator: Coordinator) -> None:
    assert coordinator.heartbeat("b", report(adopted=read(coordinator, "b", "ana")), 1).adopt == []


def test_a_late_logout_and_a_late_end_of_a_subscription_count(both: Both) -> None:
    coordinator, _ = both
    done = coordinator.change("a", [SessionEnded("ana", "one"), Unsubscribed("ana", "x")])
    assert (done.applied, done.moved) == (2, ["ana"])
    assert (sessions(coordinator), subscriptions(coordinator)) == ({"two": 1}, {})
    assert behind(coordinator)
    caught_up(coordinator)
    assert coordinator.change("a", [SessionEnded("ana", "one")]).applied == 0, "the same again"
    assert not behind(coordinator)


def test_a_late_subscription_counts_unless_it_is_there(both: Both) -> None:
    coordinator, _ = both
    late: list[Change] = [
        Subscribed("ana", "x", "other", [2], 9),
        Subscribed("ana", "y", "near", [2], 1),
        Acknowledged("ana", "y", 4),
    ]
    assert coordinator.change("a", late).applied == 2
    assert subscriptions(coordinator) == {"x": 5, "y": 4}
    assert behind(coordinator)


def test_a_late_acknowledgement_counts_and_the_home_catches_up(both: Both) -> None:
    coordinator, _ = both
    assert coordinator.change("a", [Acknowledged("ana", "x", 7)]).applied == 1
    assert subscriptions(coordinator) == {"x": 7}
    assert behind(coordinator), "otherwise the home would deliver again what was acknowledged"


def test_late_changes_do_not_undo_newer_ones(both: Both) -> None:
    coordinator, _ = both
    coordinator.change("b", [Subscribed("ana", "z", "near", [3], 1, 10), Unsubscribed("ana", "z", 11)])
    assert coordinator.change("a", [Subscribed("ana", "z", "near", [3], 1, 9)]).applied == 0, (
        "it was removed since"
    )
    coordinator.change("b", [Subscribed("ana", "z", "near", [3], 5, 12)])
    late: list[Change] = [Unsubscribed("ana", "z", 11), Acknowledged("ana", "z", 99, 10)]
    assert coordinator.change("a", late).applied == 0, "both are of the subscription before"
    assert subscriptions(coordinator) == {"x": 5, "z": 5}
    assert coordinator.change("a", [Unsubscribed("ana", "z", 13)]).applied == 1
    assert subscriptions(coordinator) == {"x": 5}


def test_a_late_session_counts_if_it_is_new_or_newer_and_was_not_ended(both: Both) -> None:
    coordinator, _ = both
    coordinator.change("b", [SessionEnded("ana", "two")])
    late: list[Change] = [SessionChanged("ana", "one", 2, LATER), SessionChanged("ana", "two", 2, LATER)]
    assert coordinator.change("a", late).applied == 0
    assert not behind(coordinator)
    late = [SessionChanged("ana", "one", 4, LATER), SessionChanged("ana", "new", 0, LATER)]
    assert coordinator.change("a", late).applied == 2
    assert sessions(coordinator) == {"one": 4, "new": 0}
    assert behind(coordinator)


def test_a_home_that_tells_of_a_session_that_was_ended_elsewhere_has_to_catch_up(both: Both) -> None:
    coordinator, store = both
    coordinator.change("a", [SessionEnded("ana", "one")])
    caught_up(coordinator)
    coordinator.change("b", [SessionChanged("ana", "one", 4, LATER)])
    assert "one" not in sessions(coordinator)
    assert behind(coordinator)
    again = coordinator_over(store, now=1)
    again.change("b", [SessionChanged("ana", "one", 5, LATER)])
    assert "one" not in sessions(again), "that it was ended outlives the coordinator"


def test_what_was_never_heard_of_is_not_made_up(both: Both) -> None:
    coordinator, store = both
    late: list[Change] = [SessionChanged("ghost", "one", 1, LATER), Subscribed("ghost", "x", "near", [], 0)]
    done = coordinator.change("a", late)
    assert (done.applied, done.moved) == (0, ["ghost"])
    assert store.records(["ghost"]) == {}
    assert store.handovers("b", "adopt", 9) == {}


def test_ends_of_sessions_are_kept_in_numbers(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator, store = both
    monkeypatch.setattr(changes_sql, "MOST_SESSIONS", 2)
    for number in range(5):
        sid = f"s{number}"
        coordinator.change("b", [SessionChanged("ana", sid, 0, LATER + number), SessionEnded("ana", sid)])
    kept = store._connection.execute("SELECT sid FROM ended ORDER BY sid").fetchall()
    assert kept == [("s3",), ("s4",)]


def test_ends_of_sessions_that_have_expired_are_dropped_when_the_store_is_opened(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, _):
        coordinator.register(broker("a"), 0)
        coordinator.add_subscriber("ana", "hash", "a")
        for sid, expires in (("past", 99), ("future", LATER)):
            coordinator.change("a", [SessionChanged("ana", sid, 0, expires), SessionEnded("ana", sid)])
    with coordinating(tmp_path) as (_, store):
        assert store._connection.execute("SELECT sid FROM ended").fetchall() == [("future",)]


def test_ended_sessions_are_removed_after_they_expire(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, _):
        coordinator.register(broker("a"), 0)
        coordinator.add_subscriber("ana", "hash", "a")
        coordinator.change("a", [SessionChanged("ana", "old", 1, 1), SessionChanged("ana", "new", 1, LATER)])
        coordinator.change("a", [SessionEnded("ana", "old"), SessionEnded("ana", "new")])
    with coordinating(tmp_path) as (coordinator, _):
        assert [coordinator.is_revoked("ana", sid) for sid in ("old", "new")] == [False, True]
