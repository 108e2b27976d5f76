"""The compiled replay of a policy, by its name; kernels come from disk without the compiler.

Numba imports its whole compiler before it loads a function that an earlier process has compiled. That takes most
of the time until a short replay starts. The function needs nothing of it, and one that is not on disk imports the
compiler before it is compiled. This replaces a method of Numba that is not public.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba.core.caching import Cache
from numba.core.runtime.nrt import rtsys

from newsstand.caching.kernels.pages import PageReplayKernel
from newsstand.caching.kernels.pages.offline import belady_size, pfoo_l, pfoo_l_push
from newsstand.caching.kernels.pages.queues import lru, s3_fifo, sieve, w_tinylfu
from newsstand.caching.kernels.pages.scored import dual_caches, dual_methods, scored
from newsstand.caching.pages.policy import Policy


def _load_overload(cache: Any, signature: Any, target: Any) -> Any:
    rtsys.initialize(target)  # what allocates arrays
    with cache._guard_against_spurious_io_errors():
        return cache._load_overload(signature, target)


if hasattr(Cache, "_load_overload"):
    setattr(Cache, "load_overload", _load_overload)  # noqa: B010  mypy rejects the assignment of a method

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
