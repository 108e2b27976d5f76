"""What Prometheus is told.

Labels are names of the catalog, of registered brokers and of routes, never what callers invent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from newsstand.serving.request_counts import RequestCounts

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 15, 60)


class Metrics:
    """The counters of one cluster. Methods may be called from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._refreshers: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        registry = self.registry
        self._accepted = Counter(
            "newsstand_publications_accepted", "Publications made durable.", ["dataset"], registry=registry
        )
        self._refused = Counter(
            "newsstand_publications_refused", "Records refused at the door.", ["dataset"], registry=registry
        )
        self._executions = Histogram(
            "newsstand_execution_seconds",
            "From the start of an execution until it is stored.",
            ["channel"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._failures = Counter(
            "newsstand_execution_failures", "Executions that failed.", ["channel"], registry=registry
        )
        self._results = Counter("newsstand_results", "Results stored.", ["channel"], registry=registry)
        self._lag = Gauge(
            "newsstand_channel_lag", "Publications not yet executed on.", ["channel"], registry=registry
        )
        self._subscriptions = Gauge(
            "newsstand_channel_subscriptions", "Subscriptions of brokers.", ["channel"], registry=registry
        )
        self._suspended = Gauge(
            "newsstand_channel_suspended_streams",
            "Streams that are left out because the query fails on their values.",
            ["channel"],
            registry=registry,
        )
        self._deliveries = Counter(
            "newsstand_deliveries", "Requests to brokers.", ["broker", "outcome"], registry=registry
        )
        self._pending = Gauge(
            "newsstand_deliveries_pending", "Entries of a broker's outbox.", ["broker"], registry=registry
        )
        self._away = Gauge("newsstand_broker_away", "1 if a broker is away.", ["broker"], registry=registry)
        self._origin_requests = Counter(
            "newsstand_origin_requests", "Requests for pages answered with the page.", registry=registry
        )
        self._origin_bytes = Counter("newsstand_origin_bytes", "Bytes of those answers.", registry=registry)
        self._origin_redirects = Counter(
            "newsstand_origin_redirects", "Requests for pages answered with a redirect.", registry=registry
        )
        self._origin_pushes = Counter("newsstand_origin_pushes", "Pushes that were answered.", registry=registry)
        self._origin_pushed_pages = Counter(
            "newsstand_origin_pushed_pages", "Pages that push-caches kept of them.", registry=registry
        )
        self._origin_load = Gauge("newsstand_origin_load", "The load of the last period.", registry=registry)
        self._push_caches = Gauge("newsstand_push_caches", "Push-caches that are available.", registry=registry)
        self.requests = RequestCounts(registry, _SECONDS)

    def published(self, dataset: str, accepted: int, refused: int) -> None:
        """A publish call to a dataset of the catalog was answered."""
        self._accepted.labels(dataset).inc(accepted)
        self._refused.labels(dataset).inc(refused)

    def executed(self, channel: str, seconds: float, results: int) -> None:
        """An execution was stored."""
        self._executions.labels(channel).observe(seconds)
        self._results.labels(channel).inc(results)

    def failed(self, channel: str) -> None:
        """An execution failed."""
        self._failures.labels(channel).inc()

    def channel_stands(self, channel: str, lag: int, subscriptions: int, suspended: int) -> None:
        """Where a channel stands."""
        self._suspended.labels(channel).set(suspended)
        self._lag.labels(channel).set(lag)
        self._subscriptions.labels(channel).set(subscriptions)

    def delivered(self, broker: str, answered: bool) -> None:
        """A request to a broker was answered, or was not."""
        self._deliveries.labels(broker, "answered" if answered else "failed").inc()

    def broker_stands(self, broker: str, pending: int, away: bool) -> None:
        """Where a broker stands."""
        self._pending.labels(broker).set(pending)
        self._away.labels(broker).set(away)

    def page_answered(self, size: int) -> None:
        """A request for a page that tells where it comes from was answered with so many bytes of it."""
        self._origin_requests.inc()
        self._origin_bytes.inc(size)

    def page_redirected(self) -> None:
        """Such a request was sent to a push-cache."""
        self._origin_redirects.inc()

    def pushed(self, pages: int) -> None:
        """A push-cache has answered a push, and kept so many pages."""
        self._origin_pushes.inc()
        self._origin_pushed_pages.inc(pages)

    def origin_stands(self, load: float, push_caches: int) -> None:
        """How busy the origin was, and how many push-caches there are."""
        self._origin_load.set(load)
        self._push_caches.set(push_caches)

    def forget_dataset(self, dataset: str) -> None:
        """A dataset was dropped."""
        _forget(dataset, self._accepted, self._refused)

    def forget_channel(self, channel: str) -> None:
        """A channel was dropped."""
        counters = (self._executions, self._failures, self._results)
        _forget(channel, *counters, self._lag, self._subscriptions, self._suspended)

    def forget_broker(self, broker: str) -> None:
        """A broker was dismissed."""
        _forget(broker, self._pending, self._away)
        for outcome in ("answered", "failed"):
            self._deliveries.remove(broker, outcome)

    def before_telling(self, refresh: Callable[[], object]) -> None:
        """Call this before each scrape, to set what is cheaper to ask for than to follow."""
        self._refreshers.append(refresh)

    def text(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        with self._lock:
            for refresh in self._refreshers:
                refresh()
            return generate_latest(self.registry)


def _forget(name: str, *families: Counter | Gauge | Histogram) -> None:
    for family in families:
        family.remove(name)
