"""What a simulation of push-caching came to (the metrics of Gwertzman and Seltzer 1995)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PushOutcome:
    """Counts of one simulation. Every request is a client's hit, a hit, a check or an answer of its origin."""

    origins: int = 0
    available: int = 0
    """Push-caches that could be used."""
    active: int = 0
    """Those to which anything was pushed."""
    requests: int = 0
    client_hits: int = 0
    """Answered by what the subnet had already, without asking anybody."""
    client_stale_hits: int = 0
    """Those for which the page had changed."""
    client_bytes: int = 0
    """What the caches of all subnets hold in the end."""
    hits: int = 0
    """Answered by a push-cache without asking the origin."""
    stale_hits: int = 0
    """Those for which the page had changed."""
    checks: int = 0
    """Answered by a push-cache after it had asked the origin."""
    renewals: int = 0
    """Those for which the origin sent a newer page."""
    origin_answers: int = 0
    """Answered by the origin."""
    redirects: int = 0
    """Answers of origins that sent a client to a push-cache."""
    redirected_pages: int = 0
    """The pages that these told of."""
    invalid: int = 0
    """Requests to push-caches that did not have the page, after which the client asked the origin."""
    pushes: int = 0
    pushed_pages: int = 0
    pushed_bytes: int = 0
    stored_bytes: int = 0
    """What all push-caches hold in the end."""
    most_stored_bytes: int = 0
    """The most that they have held at any time."""
    traffic: int = 0
    """Bytes times hops, of all that was sent by anybody."""
    primary_traffic: int = 0
    """Bytes that origins have sent: pages, redirects, pushes, and answers to checks."""
    cache_traffic: int = 0
    """Bytes that push-caches have sent."""

    @property
    def primary_requests(self) -> int:
        """How often an origin had to answer: with a page, redirects, or to a check."""
        return self.origin_answers + self.redirects + self.checks

    @property
    def server_traffic(self) -> float:
        """The mean of the bytes that an origin or an active push-cache has sent."""
        servers = self.origins + self.active
        return (self.primary_traffic + self.cache_traffic) / servers if servers else 0.0
