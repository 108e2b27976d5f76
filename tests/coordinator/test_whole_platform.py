"""All brokers stop and start: each subscriber stays where it was if its broker returns within a lease."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.coordinator.coordinators import LEASE_S, broker, coordinating, coordinator_over, live, read, report

from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.geo.location import UNKNOWN

Both = tuple[Coordinator, CoordinatorStore]
EVEN = {"a": 10, "b": 10}


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    """Two brokers with ten subscribers each, for a while."""
    with coordinating(tmp_path) as (coordinator, store):
        for owner in EVEN:
            coordinator.register(broker(owner), 0)
            for number in range(10):
                coordinator.add_subscriber(f"{owner}{number}", "hash", owner)
        live(coordinator, 10, "a", "b")
        yield coordinator, store


def start(coordinator: Coordinator, now: float, *, gap: float) -> None:
    """Both start, `b` somewhat later, and live for a while."""
    coordinator.register(broker("a"), now)
    now = live(coordinator, now + gap, "a", since=now)
    coordinator.register(broker("b"), now)
    live(coordinator, now + 3 * LEASE_S, "a", "b", since=now)


def test_brokers_that_leave_in_turn_regain_their_subscribers(both: Both) -> None:
    coordinator, store = both
    assert coordinator.leave("a") == 10
    assert coordinator.leave("b") == 0
    assert store.count_subscribers() == EVEN, "b never read those of a"
    start(coordinator, 60, gap=2)
    assert store.count_subscribers() == EVEN
    assert coordinator.unserved == 0


def test_brokers_that_die_in_turn_regain_their_subscribers(both: Both) -> None:
    coordinator, store = both
    live(coordinator, 11, "b", since=10)
    now = live(coordinator, 20, since=11)
    assert store.count_subscribers() == EVEN
    start(coordinator, now, gap=2)
    assert store.count_subscribers() == EVEN


def test_subscribers_read_by_other_broker_belong_to_it(both: Both) -> None:
    coordinator, store = both
    coordinator.leave("a")
    names = coordinator.heartbeat("b", report(), 10).adopt
    coordinator.heartbeat("b", report(adopted=read(coordinator, "b", *names[:5])), 10)
    coordinator.leave("b")
    assert store.count_subscribers() == {"a": 5, "b": 15}


def test_coordinator_started_with_brokers_waits_for_them(both: Both) -> None:
    _, store = both
    again = coordinator_over(store, now=0)
    now = live(again, LEASE_S - 0.5)
    start(again, now, gap=2)
    assert store.count_subscribers() == EVEN


def test_broker_absent_for_one_lease_loses_its_subscribers(both: Both) -> None:
    coordinator, store = both
    now = live(coordinator, 20, since=10)
    coordinator.register(broker("a"), now)
    live(coordinator, now + LEASE_S - 0.5, "a", since=now)
    assert store.count_subscribers() == EVEN
    live(coordinator, now + LEASE_S, "a", since=now + LEASE_S - 0.5)
    assert store.count_subscribers() == {"a": 20}


def test_lookup_does_not_wait(both: Both) -> None:
    coordinator, store = both
    now = live(coordinator, 20, since=10)
    coordinator.register(broker("a"), now)
    chosen = coordinator.broker_for("b3", UNKNOWN)
    assert chosen is not None
    assert (chosen.broker.name, chosen.sticky) == ("a", False)
    coordinator.lookup("a", ["b4"], take=True)
    assert store.count_subscribers() == {"a": 12, "b": 8}
