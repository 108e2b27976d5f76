"""Every cache policy, written once.

>>> cache = page_cache("sg2", capacity=1_000_000)
>>> cache.push("front-page", size=40_000, subscriptions=12)
True
>>> cache.request("front-page", size=40_000)
True
"""

from __future__ import annotations

from collections.abc import Callable

# Registered in the order of listings.
from newsstand.caching import chen2003, dual, classics, sieve, s3fifo, wtinylfu, offline  # isort: skip  # noqa: F401
from newsstand.caching.adaptive import AdaptiveCaches
from newsstand.caching.bad2018 import RESULT_POLICIES, ResultPolicy, Tail, result_policy
from newsstand.caching.bad2018_beyond import BEYOND
from newsstand.caching.page_cache import PageCache, ScoredCache
from newsstand.caching.policy import POLICIES, Entry, Policy, policy
from newsstand.caching.ranking import Page
from newsstand.caching.result_cache import Hit, Removed
from newsstand.caching.results import ResultCaches
from newsstand.errors import BadInput

__all__ = [
    "BEYOND",
    "POLICIES",
    "RESULT_POLICIES",
    "AdaptiveCaches",
    "Entry",
    "Hit",
    "Page",
    "PageCache",
    "Policy",
    "Removed",
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
    """A live page cache under the policy of that name."""
    chosen = POLICIES[name]
    if chosen.score is not None:
        return ScoredCache(chosen, capacity, beta, on_evict)
    if chosen.machine is not None:
        return chosen.machine(capacity, beta, on_evict)
    raise BadInput(f"policy '{name}' knows the future: it can be replayed, not run live")


def live_page_policies() -> list[str]:
    """Return the names that `page_cache` takes: all policies but those that know the future."""
    return [name for name, one in POLICIES.items() if not one.offline]
