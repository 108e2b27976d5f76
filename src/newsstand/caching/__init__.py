"""The cache policies of the broker and of replays.

>>> cache = page_cache("sg2", capacity=1_000_000)
>>> cache.push("front-page", size=40_000, subscriptions=12)
True
>>> cache.request("front-page", size=40_000)
True
"""

from __future__ import annotations

from collections.abc import Callable

# Registered in the order of listings.
from newsstand.caching.pages import chen2003, access_time  # isort: skip  # noqa: F401
from newsstand.caching.pages.cache import Page, PageCache, ScoredCache
from newsstand.caching.pages.policy import POLICIES, Entry, Policy, policy
from newsstand.caching.results.adaptive import AdaptiveCaches
from newsstand.caching.results.cache import CachedResult, RemovedObject
from newsstand.caching.results.caches import ResultCaches
from newsstand.caching.results.policies import BEYOND, RESULT_POLICIES, ResultPolicy, Tail, result_policy
from newsstand.errors import BadInput

__all__ = [
    "BEYOND",
    "POLICIES",
    "RESULT_POLICIES",
    "AdaptiveCaches",
    "CachedResult",
    "Entry",
    "Page",
    "PageCache",
    "Policy",
    "RemovedObject",
    "ResultCaches",
    "ResultPolicy",
    "Tail",
    "live_page_policies",
    "page_cache",
    "policy",
    "result_policy",
]


def page_cache(
    name: str, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None
) -> PageCache:
    """Return a live page cache under the policy of that name."""
    chosen = POLICIES[name]
    if chosen.score is not None:
        return ScoredCache(chosen, capacity, beta, on_evict)
    if chosen.cache_class is not None:
        return chosen.cache_class(capacity, beta, on_evict)
    raise BadInput(f"policy '{name}' knows the future: it can be replayed, not run live")


def live_page_policies() -> list[str]:
    """Return the names that `page_cache` accepts: all policies except those that need the future."""
    return [name for name, one in POLICIES.items() if not one.offline]
