"""Coordinators over a real store, and brokers that play their part against one, as real brokers should."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.model import BrokerRecord
from newsstand.coordinator.registry import LeaseLimits, SelectionContext
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.geo.location import LinkGraph, Location
from newsstand.wire.coordination import HeartbeatRequest

SECRET = "a secret of at least thirty-two characters"
LEASE_S = 3.0
HELD_S = 6.0


LEASES = LeaseLimits(LEASE_S, HELD_S)


def coordinator_over(
    store: CoordinatorStore, policy: str = "least-loaded", now: float = 0.0, leases: LeaseLimits = LEASES
) -> Coordinator:
    links = [("core", "north"), ("core", "south"), ("south", "harbour")]
    around = SelectionContext(Random(7), LinkGraph(links))
    return Coordinator(store, around, now, policy=policy, leases=leases)


@contextmanager
def coordinating(
    folder: Path, policy: str = "least-loaded", **limits: int
) -> Iterator[tuple[Coordinator, CoordinatorStore]]:
    store = CoordinatorStore(folder / "coordinator.sqlite", **limits)
    try:
        yield coordinator_over(store, policy), store
    finally:
        store.close()


def broker(name: str, capacity: float = 100, lat: float | None = None, lon: float | None = None) -> BrokerRecord:
    return BrokerRecord(name, f"http://{name}:8790", Location(lat, lon, name), capacity)


def report(
    connections: int = 0,
    adopted: Mapping[str, int] | None = None,
    forgot: Mapping[str, int] | None = None,
    stored: list[str] | None = None,
) -> HeartbeatRequest:
    return HeartbeatRequest(connections, connections, adopted or {}, forgot or {}, stored or [])


def read(coordinator: Coordinator, name: str, *names: str) -> Mapping[str, int]:
    """Let a broker read the records of subscribers; return what it confirms afterwards."""
    return coordinator.lookup(name, names, take=True).handovers


def live(coordinator: Coordinator, until: float, *alive: str, since: float = 0.0) -> float:
    """Let time pass in which only some brokers are heard of; return when it is."""
    now = since
    while now < until:
        now = min(until, now + 0.5)
        for name in alive:
            coordinator.heartbeat(name, report(), now)
        coordinator.tick(now)
    return now
