"""Requests, as Prometheus is told of them: by method, route and status, never by what callers invent."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The type of what Prometheus reads."""
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))


class RequestCounts:
    """One histogram of all requests of a server."""

    def __init__(self, registry: CollectorRegistry, buckets: tuple[float, ...]) -> None:
        self._seconds = Histogram(
            "newsstand_http_request_seconds",
            "Requests by route.",
            ["method", "route", "status"],
            buckets=buckets,
            registry=registry,
        )
        self._known: dict[tuple[str, str | None, int], Histogram] = {}
        """To look labels up is what costs."""

    def requested(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """A request was answered; `route` is the template of its path, None if no route fits."""
        if method not in _METHODS:
            method = "other"
        counted = self._known.get((method, route, status))
        if counted is None:
            counted = self._seconds.labels(method, route or "none", str(status))
            self._known[method, route, status] = counted
        counted.observe(seconds)
