"""The compiled replay of a policy, by its name."""

from __future__ import annotations

from functools import cache

from newsstand.caching.kernels.loading import load_without_compiler
from newsstand.caching.kernels.pages import PageReplayKernel
from newsstand.caching.kernels.pages.offline import belady_size, pfoo_l, pfoo_l_push
from newsstand.caching.kernels.pages.queues import lru, s3_fifo, sieve, w_tinylfu
from newsstand.caching.kernels.pages.scored import dual_caches, dual_methods, scored
from newsstand.caching.pages.policy import Policy

load_without_compiler()

KERNELS: dict[str, PageReplayKernel] = {
    "dm": dual_methods,
    "dc-fp": dual_caches(relabels=False, bounded=False),
    "dc-ap": dual_caches(relabels=True, bounded=False),
    "dc-lap": dual_caches(relabels=True, bounded=True),
    "lru": lru,
    "sieve": sieve,
    "s3-fifo": s3_fifo,
    "w-tinylfu": w_tinylfu,
    "belady-size": belady_size,
    "pfoo-l": pfoo_l,
    "pfoo-l-push": pfoo_l_push,
}
"""The policies that are not one scoring function, and those that a kernel of their own replays faster."""


@cache
def compiled(policy: Policy) -> PageReplayKernel:
    """Return the kernel of a policy, made at most once in a process."""
    return KERNELS.get(policy.name) or scored(policy)
