"""What Prometheus is told of a coordinator. Labels are states, reasons and routes, never names."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.placement import Progress
from newsstand.coordinator.standing import Reason
from newsstand.serving.request_counts import RequestCounts

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_STATES = ("up", "draining", "dead")
_PROGRESS: tuple[Progress, ...] = ("settled", "moving", "missing")
_REASONS: tuple[Reason, ...] = ("dead", "draining", "left", "took", "asked")


class Metrics:
    """The counters of one coordinator."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._brokers = Gauge(
            "newsstand_coordinator_brokers", "Brokers that are known.", ["state"], registry=registry
        )
        self._connections = Gauge(
            "newsstand_coordinator_connections", "Connections that live brokers tell of.", registry=registry
        )
        self._subscribers = Gauge("newsstand_coordinator_subscribers", "Subscribers.", registry=registry)
        self._homeless = Gauge(
            "newsstand_coordinator_homeless", "Subscribers whose home is not up.", registry=registry
        )
        self._moves = Counter(
            "newsstand_coordinator_moves", "Subscribers that got a new home.", ["reason"], registry=registry
        )
        self._tree_version = Gauge(
            "newsstand_coordinator_tree_version", "Changes of the overlay's tree.", registry=registry
        )
        self._topics = Gauge(
            "newsstand_coordinator_topics", "Topics that brokers keep.", ["progress"], registry=registry
        )
        for reason in _REASONS:
            self._moves.labels(reason)
        self.requests = RequestCounts(registry, _SECONDS)

    def moved(self, reason: Reason, count: int) -> None:
        """Subscribers got a new home."""
        self._moves.labels(reason).inc(count)

    def text(self, coordinator: Coordinator) -> bytes:
        """All metrics, as Prometheus reads them."""
        brokers = coordinator.brokers()
        for state in _STATES:
            self._brokers.labels(state).set(sum(one.state == state for one in brokers))
        self._connections.set(sum(one.connections for one in brokers))
        self._subscribers.set(coordinator.subscribers)
        self._homeless.set(coordinator.homeless)
        self._tree_version.set(coordinator.overlay.tree.version)
        topics = coordinator.overlay.progress()
        for progress in _PROGRESS:
            self._topics.labels(progress).set(topics[progress])
        return generate_latest(self.registry)
