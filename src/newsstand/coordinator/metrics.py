"""Prometheus metrics of the coordinator. Labels are states, reasons and routes, never names."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.placement import MoveProgress
from newsstand.coordinator.registry import Reason
from newsstand.http.request_log import RequestCounts

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_STATES = ("up", "draining", "dead")
_PROGRESS: tuple[MoveProgress, ...] = ("settled", "moving", "missing")
_REASONS: tuple[Reason, ...] = ("dead", "draining", "left", "took", "asked")


class Metrics:
    """The counters of one coordinator."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        gauge = partial(Gauge, namespace="newsstand_coordinator", registry=registry)
        self._brokers = gauge("brokers", "Known brokers.", ["state"])
        self._connections = gauge("connections", "Connections that live brokers report.")
        self._subscribers = gauge("subscribers", "Subscribers.")
        self._unserved = gauge("unserved", "Subscribers whose broker is not up.")
        self._tree_version = gauge("tree_version", "Version of the overlay tree.")
        self._topics = gauge("topics", "Topics with storages.", ["progress"])
        self._moves = Counter(
            "newsstand_coordinator_moves", "Moves of subscribers to another broker.", ["reason"], registry=registry
        )
        for reason in _REASONS:
            self._moves.labels(reason)
        self.requests = RequestCounts(registry, _SECONDS)

    def moved(self, reason: Reason, count: int) -> None:
        """Count moves of subscribers."""
        self._moves.labels(reason).inc(count)

    def text(self, coordinator: Coordinator) -> bytes:
        """Return all metrics, as Prometheus reads them."""
        brokers = coordinator.brokers()
        for state in _STATES:
            self._brokers.labels(state).set(sum(one.state == state for one in brokers))
        self._connections.set(sum(one.connections for one in brokers))
        self._subscribers.set(coordinator.subscribers)
        self._unserved.set(coordinator.unserved)
        self._tree_version.set(coordinator.overlay.tree.version)
        topics = coordinator.overlay.progress()
        for progress in _PROGRESS:
            self._topics.labels(progress).set(topics[progress])
        return generate_latest(self.registry)
