"""One simulation of push-caching, described: the paper's parameters and ours."""

from __future__ import annotations

from dataclasses import dataclass

from newsstand.errors import BadOption
from newsstand.lab.push_cache_internet import MOST_PUSH_CACHES
from newsstand.planning.push_cache import ORIGIN_SHARE
from newsstand.planning.push_strategies import STRATEGIES

CLIENT_CACHES = ("none", "infinite")
SLOTS = 1_000


@dataclass(frozen=True)
class PushCacheSetting:
    """The parameters; messages name them as the options of the command."""

    threshold: float = 100.0
    """push-threshold: an origin pushes when its load is above."""
    pages: int = 10
    """pages-to-push: so many at a time."""
    servers: int = 20
    """server-number: the push-caches that are available."""
    caching: str = "hops"
    """caching-strategy: what nearest means where an origin chooses a push-cache."""
    lookup: str = "hops"
    """lookup-strategy: what nearest means where an origin answers a client."""
    client_cache: str = "none"
    """Whether each subnet has a proxy that keeps all it has got."""
    slots: int = SLOTS
    """Pages that a push-cache holds."""
    cap: float = ORIGIN_SHARE
    """The share of them that any one origin may have."""
    seed: int = 1
    """Of places, generated networks, and random choices."""

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise BadOption(f"--threshold {self.threshold:g}: cannot be negative")
        for option, value, least, most in (
            ("pages", self.pages, 1, 1_000_000),
            ("servers", self.servers, 0, MOST_PUSH_CACHES),
            ("slots", self.slots, 1, 10_000_000),
            ("seed", self.seed, 0, 2**63 - 1),
        ):
            if not least <= value <= most:
                raise BadOption(f"--{option} {value}: must be in {least} … {most}")
        for option, name, known in (
            ("caching", self.caching, tuple(STRATEGIES)),
            ("lookup", self.lookup, tuple(STRATEGIES)),
            ("client-cache", self.client_cache, CLIENT_CACHES),
        ):
            if name not in known:
                raise BadOption(f"--{option} {name}: choose of {', '.join(known)}")
        if not 0 < self.cap <= 1:
            raise BadOption(f"--cap {self.cap:g}: must be above 0 and at most 1")
