"""Metrics for Prometheus and the dashboard. Labels are routes and constants, never input of callers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from newsstand.http.app import StageHistogram
from newsstand.http.request_log import RequestCounts
from newsstand.overlay.broker.caching import CachingBroker

Source = Literal["hit", "pushed", "peer", "miss"]
"""The source of a page: the match cache, the push-cache, another broker, or the origin."""
SOURCES: tuple[Source, ...] = get_args(Source)
_CACHE_EVENTS = ("cached", "copied", "regenerated", "degraded", "requests")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 15, 60)


class RecentLatencies:
    """Latencies of the last minute."""

    def __init__(self) -> None:
        self._measured: deque[tuple[float, float]] = deque(maxlen=10_000)

    def add(self, milliseconds: float) -> None:
        self._measured.append((time.monotonic(), milliseconds))

    def quantiles(self) -> dict[str, float | None]:
        """Return the median and the 99th percentile, in milliseconds."""
        since = time.monotonic() - 60
        values = sorted(value for at, value in self._measured if at >= since)
        if not values:
            return {"p50": None, "p99": None}
        return {"p50": values[len(values) // 2], "p99": values[min(len(values) - 1, len(values) * 99 // 100)]}


class Metrics:
    """The counters of one broker; used from the event loop's thread."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.notifications = 0
        self.notification_ms = RecentLatencies()
        self.results_ms = RecentLatencies()
        self._results = Counter("newsstand_broker_results", "Results served.", ["origin"], registry=registry)
        self._cached = self._results.labels("cache")
        self._fetched = self._results.labels("cluster")
        self._notifications = Counter(
            "newsstand_broker_notifications", "Frames to subscribers.", registry=registry
        )
        self._notification_seconds = Histogram(
            "newsstand_broker_notification_seconds",
            "From the production of a result until its subscribers are notified.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.stages = StageHistogram(
            "newsstand_broker_stage_seconds", "Seconds of each stage of publications at the broker.", registry
        )
        self._removed = Counter(
            "newsstand_broker_removed", "Results that left the caches.", ["reason"], registry=registry
        )
        self.webhooks = Counter(
            "newsstand_broker_webhooks", "Notifications of the cluster.", ["outcome"], registry=registry
        )
        self.requests = RequestCounts(registry, _SECONDS)
        self.removed = {"dropped": 0, "consumed": 0, "abandoned": 0}

    def gauge(self, name: str, help: str, value: Callable[[], float]) -> None:
        """Register a value that is read at each scrape."""
        Gauge(f"newsstand_broker_{name}", help, registry=self.registry).set_function(value)

    def count_read(self, hits: int, misses: int, seconds: float) -> None:
        if hits:
            self._cached.inc(hits)
        if misses:
            self._fetched.inc(misses)
        self.results_ms.add(seconds * 1000)

    def count_inline(self, results: int) -> None:
        """Count cached results that were sent with notifications."""
        self._cached.inc(results)

    def count_notifications(self, connections: int, seconds: float) -> None:
        self.notifications += connections
        self._notifications.inc(connections)
        self._notification_seconds.observe(seconds)
        self.notification_ms.add(seconds * 1000)

    def count_removed(self, reason: str) -> None:
        self.removed[reason] += 1
        self._removed.labels(reason).inc()

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        return generate_latest(self.registry)


class PageMetrics:
    """The counters of a broker's pages; used from the event loop's thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.pages: dict[Source, int] = dict.fromkeys(SOURCES, 0)
        self._pages = Counter("newsstand_broker_pages", "Pages served, by source.", ["source"], registry=registry)
        self._bytes = Counter(
            "newsstand_broker_page_served_bytes",
            "Bytes served, by source.",
            ["source"],
            registry=registry,
        )
        self.redirects = Counter(
            "newsstand_broker_page_redirects",
            "Redirects of readers to other brokers (sent), and failed attempts there (missed).",
            ["outcome"],
            registry=registry,
        )

    def served(self, source: Source, size: int) -> None:
        self.pages[source] += 1
        self._pages.labels(source).inc()
        self._bytes.labels(source).inc(size)


class TopicMetrics:
    """The counters of a broker's topics; used from the event loop's thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._registry = metrics.registry
        self._gauge = metrics.gauge

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"newsstand_broker_{name}", text, labels, registry=self._registry)

        published = counter("topic_publications", "Publications of clients.", "stored")
        self.published = {stored: published.labels(str(stored).lower()) for stored in (True, False)}
        self.delivered = counter("topic_deliveries", "Messages delivered to clients.")
        self.stored = counter("topic_stored", "Publications stored by this broker.")
        self.abandoned = counter(
            "topic_abandoned", "Unconfirmed publications removed because their topic has no storage any more."
        )
        self.history = counter("topic_history", "Publications returned by history queries.")
        messages = counter("overlay_messages", "Messages exchanged with neighbours.", "direction")
        self.sent, self.received = messages.labels("sent"), messages.labels("received")

    def gauges(
        self,
        *,
        links: Callable[[], float],
        topics: Callable[[], float],
        outbox: Callable[[], float],
        dropped: Callable[[], float],
    ) -> None:
        self._gauge("overlay_links", "Linked neighbours.", links)
        self._gauge("topics_stored", "Topics that this broker stores or is about to store.", topics)
        self._gauge("topic_outbox", "Publications that no storage has confirmed yet.", outbox)
        self._gauge("overlay_dropped", "Overlay messages dropped.", dropped)

    def cache_of(self, node: CachingBroker) -> None:
        self._registry.register(MessageCacheCollector(node))


class MessageCacheCollector(Collector):
    """The contents and the events of a broker's message cache."""

    def __init__(self, node: CachingBroker) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        name = "newsstand_broker_topic_cache"
        cache = self._node.cache
        yield GaugeMetricFamily(f"{name}_messages", "Messages in the cache.", len(cache))
        yield GaugeMetricFamily(f"{name}_bytes", "Approximate size of the cached messages in bytes.", cache.bytes)
        events = CounterMetricFamily(f"{name}_events", "Events of the message cache.", labels=["event"])
        for event in _CACHE_EVENTS:
            events.add_metric([event], self._node.cache_events[event])
        yield events
