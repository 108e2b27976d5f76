"""What Prometheus is told of topics."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter

from newsstand.broker.metrics import Metrics
from newsstand.broker.topic_caches import CacheNumbers
from newsstand.overlay.opportunistic import CachingBroker


class TopicMetrics:
    """Counters beside those of the broker; used from the event loop's thread."""

    def __init__(self, metrics: Metrics) -> None:
        registry = self._registry = metrics.registry
        self._gauge = metrics.gauge
        published = Counter(
            "newsstand_broker_topic_publications", "Publications of clients.", ["stored"], registry=registry
        )
        self._published = {stored: published.labels(str(stored).lower()) for stored in (True, False)}
        self._delivered = Counter("newsstand_broker_topic_deliveries", "Messages to clients.", registry=registry)
        self._kept = Counter("newsstand_broker_topic_kept", "Publications that were stored.", registry=registry)
        self._given_up = Counter(
            "newsstand_broker_topic_given_up",
            "Publications that no storage has confirmed before their topic had none any more.",
            registry=registry,
        )
        self._answered = Counter(
            "newsstand_broker_topic_past", "Publications of the past that clients got.", registry=registry
        )
        messages = Counter(
            "newsstand_broker_overlay_messages", "Messages of links.", ["direction"], registry=registry
        )
        self._sent, self._received = messages.labels("sent"), messages.labels("received")

    def gauges(
        self,
        *,
        links: Callable[[], float],
        kept: Callable[[], float],
        outbox: Callable[[], float],
        dropped: Callable[[], float],
    ) -> None:
        """Numbers that are asked for at each scrape."""
        self._gauge("overlay_links", "Neighbours that are linked.", links)
        self._gauge("topics_kept", "Topics that are kept here, or are about to be.", kept)
        self._gauge("topic_outbox", "Publications that no storage has confirmed yet.", outbox)
        self._gauge("overlay_dropped", "Messages of the overlay that were of no use.", dropped)

    def caches(self, node: CachingBroker) -> None:
        """The same of what a broker caches."""
        self._registry.register(CacheNumbers(node))

    def published(self, stored: bool) -> None:
        """A client has published."""
        self._published[stored].inc()

    def delivered(self) -> None:
        """A client was sent a message."""
        self._delivered.inc()

    def kept(self) -> None:
        """A publication was stored."""
        self._kept.inc()

    def given_up(self, count: int) -> None:
        """Publications wait for a storage no longer."""
        self._given_up.inc(count)

    def answered(self, count: int) -> None:
        """A client got some of the past."""
        self._answered.inc(count)

    def sent(self) -> None:
        """A neighbour was sent a message."""
        self._sent.inc()

    def received(self, count: int) -> None:
        """Messages have come from a neighbour."""
        self._received.inc(count)
