"""What Prometheus and the dashboard are told of pages."""

from __future__ import annotations

from collections import Counter
from typing import Literal, get_args

import prometheus_client as prometheus

Source = Literal["hit", "pushed", "peer", "miss"]
"""From the shelf, from a copy that was pushed here, from another broker, or from the origin."""
SOURCES: tuple[Source, ...] = get_args(Source)


class PageMetrics:
    """The counters of one broker's pages; used from the event loop's thread."""

    def __init__(self, registry: prometheus.CollectorRegistry) -> None:
        self.pages: Counter[Source] = Counter()
        self._pages = prometheus.Counter(
            "newsstand_broker_pages", "Pages served, by where they came from.", ["source"], registry=registry
        )
        self._bytes = prometheus.Counter(
            "newsstand_broker_page_served_bytes", "Bytes of them.", ["source"], registry=registry
        )
        self._redirects = prometheus.Counter(
            "newsstand_broker_page_redirects",
            "Readers sent to another broker, and those who were there in vain.",
            ["outcome"],
            registry=registry,
        )

    def served(self, source: Source, size: int) -> None:
        """A page was served."""
        self.pages[source] += 1
        self._pages.labels(source).inc()
        self._bytes.labels(source).inc(size)

    def sent(self) -> None:
        """A reader was sent to another broker."""
        self._redirects.labels("sent").inc()

    def in_vain(self) -> None:
        """A reader was sent to another broker, or this one went for it, and the page was not there."""
        self._redirects.labels("in_vain").inc()
