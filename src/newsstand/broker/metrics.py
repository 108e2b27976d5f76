"""What Prometheus and the dashboard are told. Labels are routes and fixed words, never what callers invent."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from newsstand.serving.request_counts import RequestCounts

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 15, 60)


class Latest:
    """Quantiles of what was measured in the last minute."""

    def __init__(self, seconds: float = 60, most: int = 10_000) -> None:
        self._seconds = seconds
        self._measured: deque[tuple[float, float]] = deque(maxlen=most)

    def add(self, milliseconds: float) -> None:
        """Something took so long."""
        self._measured.append((time.monotonic(), milliseconds))

    def quantiles(self) -> dict[str, float | None]:
        """The median and the 99th percentile, in milliseconds."""
        since = time.monotonic() - self._seconds
        values = sorted(value for at, value in self._measured if at >= since)
        if not values:
            return {"p50": None, "p99": None}
        return {"p50": values[len(values) // 2], "p99": values[min(len(values) - 1, len(values) * 99 // 100)]}


class Metrics:
    """The counters of one broker; used from the event loop's thread."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.notifications = 0
        self.notification_ms = Latest()
        self.results_ms = Latest()
        self._results = Counter("newsstand_broker_results", "Results served.", ["origin"], registry=registry)
        self._cached = self._results.labels("cache")
        self._fetched = self._results.labels("cluster")
        self._signals = Counter("newsstand_broker_signals", "Frames to subscribers.", registry=registry)
        self._signalling = Histogram(
            "newsstand_broker_signal_seconds",
            "From the production of a result until its subscribers are signalled.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._removed = Counter(
            "newsstand_broker_removed", "Results that left the caches.", ["reason"], registry=registry
        )
        self._webhooks = Counter(
            "newsstand_broker_webhooks", "Notifications of the cluster.", ["outcome"], registry=registry
        )
        self.requests = RequestCounts(registry, _SECONDS)
        self.removed = {"dropped": 0, "consumed": 0, "abandoned": 0}

    def gauge(self, name: str, words: str, value: Callable[[], float]) -> None:
        """A number that is asked for at each scrape."""
        Gauge(f"newsstand_broker_{name}", words, registry=self.registry).set_function(value)

    def read(self, hits: int, misses: int, seconds: float) -> None:
        """A subscriber has read."""
        if hits:
            self._cached.inc(hits)
        if misses:
            self._fetched.inc(misses)
        self.results_ms.add(seconds * 1000)

    def signalled(self, connections: int, seconds: float) -> None:
        """Subscribers were told that a stream has grown."""
        self.notifications += connections
        self._signals.inc(connections)
        self._signalling.observe(seconds)
        self.notification_ms.add(seconds * 1000)

    def left(self, reason: str) -> None:
        """A result has left the caches."""
        self.removed[reason] += 1
        self._removed.labels(reason).inc()

    def webhook(self, outcome: str) -> None:
        """A notification of the cluster was taken, was seen before, or was refused."""
        self._webhooks.labels(outcome).inc()

    def text(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        return generate_latest(self.registry)
