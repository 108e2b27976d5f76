"""Metrics of the data cluster, for Prometheus.

Labels are names of the catalog, of registered brokers and of routes, never text that clients choose.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from newsstand.cluster.stages import StageTimes
from newsstand.http.app import StageHistogram
from newsstand.http.request_log import RequestCounts
from newsstand.http.server import wall_clock_ms

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 15, 60)


class Metrics:
    """The counters of one cluster. Methods may be called from any thread."""

    def __init__(self, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.registry = CollectorRegistry()
        self._refreshers: list[Callable[[], object]] = []
        self._lock = threading.Lock()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"newsstand_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"newsstand_{name}", text, labels, registry=self.registry)

        self._accepted = counter("publications_accepted", "Publications made durable.", "dataset")
        self._rejected = counter("publications_rejected", "Records rejected by validation.", "dataset")
        self._executions = Histogram(
            "newsstand_execution_seconds",
            "Seconds from the start of an execution until its results are stored.",
            ["channel"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._stages = StageHistogram(
            "newsstand_stage_seconds", "Seconds of each stage of publications.", self.registry
        )
        self.stages = StageTimes(self._stages, now_ms)
        self._failures = counter("execution_failures", "Executions that failed.", "channel")
        self._results = counter("results", "Results stored.", "channel")
        self.lag = gauge("channel_lag", "Publications on which a channel was not executed yet.", "channel")
        self.executing = gauge(
            "channel_executing_seconds", "Seconds of the running execution so far; 0 if none runs.", "channel"
        )
        self.subscriptions = gauge("channel_subscriptions", "Subscriptions of brokers.", "channel")
        self.suspended = gauge(
            "channel_suspended_streams",
            "Streams left out of executions because the query fails on their values.",
            "channel",
        )
        self.runaway_tasks = gauge(
            "runaway_tasks", "Tasks of cancelled executions that are still running; each occupies a core."
        )
        self._deliveries = counter("deliveries", "Notifications sent to brokers, by outcome.", "broker", "outcome")
        self.pending = gauge("deliveries_pending", "Pending entries of a broker's outbox.", "broker")
        self.away = gauge("broker_away", "1 if a broker does not answer and is marked away, else 0.", "broker")
        self.origin_requests = counter("origin_requests", "Requests for pages answered with the page.")
        self.origin_bytes = counter("origin_bytes", "Bytes of pages in answers to requests for pages.")
        self.origin_redirects = counter("origin_redirects", "Requests for pages answered with a redirect.")
        self._origin_pushes = counter("origin_pushes", "Pushes answered by push-caches.")
        self._origin_pushed_pages = counter("origin_pushed_pages", "Pushed pages stored by push-caches.")
        self.origin_load = gauge("origin_load", "Load of the origin in the last period.")
        self.push_caches = gauge("push_caches", "Push-caches with a valid lease.")
        self.requests = RequestCounts(self.registry, _SECONDS)

    def published(self, dataset: str, accepted: int, rejected: int) -> None:
        """Count the records of a publish call."""
        self._accepted.labels(dataset).inc(accepted)
        self._rejected.labels(dataset).inc(rejected)

    def executed(self, channel: str, seconds: float, results: int) -> None:
        """Count an execution whose results were stored."""
        self._executions.labels(channel).observe(seconds)
        self._results.labels(channel).inc(results)

    def failed(self, channel: str) -> None:
        """Count an execution that failed."""
        self._failures.labels(channel).inc()

    def delivered(self, broker: str, answered: bool) -> None:
        """Count a notification of a broker."""
        self._deliveries.labels(broker, "answered" if answered else "failed").inc()

    def pushed(self, pages: int) -> None:
        """Count a push that was answered, and the pages that the push-cache has stored."""
        self._origin_pushes.inc()
        self._origin_pushed_pages.inc(pages)

    def forget_dataset(self, dataset: str) -> None:
        """Remove the metrics of a dataset."""
        _forget(dataset, self._accepted, self._rejected)
        self.stages.forget_dataset(dataset)

    def forget_channel(self, channel: str) -> None:
        """Remove the metrics of a channel."""
        counters = (self._executions, self._failures, self._results)
        _forget(channel, *counters, self.lag, self.executing, self.subscriptions, self.suspended)
        self._stages.forget(channel)

    def forget_broker(self, broker: str) -> None:
        """Remove the metrics of a broker."""
        _forget(broker, self.pending, self.away)
        for outcome in ("answered", "failed"):
            self._deliveries.remove(broker, outcome)

    def before_scrape(self, refresh: Callable[[], object]) -> None:
        """Call `refresh` before each scrape, to set gauges that are cheaper to query than to follow."""
        self._refreshers.append(refresh)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        with self._lock:
            for refresh in self._refreshers:
                refresh()
            return generate_latest(self.registry)


def _forget(name: str, *families: Counter | Gauge | Histogram) -> None:
    for family in families:
        family.remove(name)
