"""The compiled replay of a policy, by its name."""

from __future__ import annotations

from newsstand.caching.kernels.dual import dual_caches, dual_methods
from newsstand.caching.kernels.offline import belady_size, pfoo_l, pfoo_l_push
from newsstand.caching.kernels.outcome import Decide
from newsstand.caching.kernels.queues import lru, s3_fifo, sieve
from newsstand.caching.kernels.scored import scored
from newsstand.caching.kernels.wtinylfu import w_tinylfu
from newsstand.caching.policy import Policy

KERNELS: dict[str, Decide] = {
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
"""The policies that are more than one scoring function, and those that one can replay faster."""

_compiled: dict[Policy, Decide] = {}


def compiled(policy: Policy) -> Decide:
    """The kernel of a policy, made at most once in a process."""
    if policy.name in KERNELS:
        return KERNELS[policy.name]
    if policy not in _compiled:
        _compiled[policy] = scored(policy)
    return _compiled[policy]
