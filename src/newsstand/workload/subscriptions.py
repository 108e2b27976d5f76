"""How many subscriptions match a page at a proxy (Chen, LaPaugh & Singh 2003, section 4.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.workload.randomness import uniform

LEAST_QUALITY = 0.01
"""SQ_ij is kept at least this far from 0 where the paper draws from (0, 2 SQ]."""


def subscriptions(
    seed: int, sq: float, proxy: npt.NDArray[np.int32], page: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """(proxy, page, count) for every pair that was requested, sorted; count = ceil(P_ij / SQ_ij)."""
    order = np.lexsort((page, proxy))
    proxy, page = proxy[order], page[order]
    new = np.empty(len(page), np.bool_)
    new[:1] = True
    new[1:] = (np.diff(proxy) != 0) | (np.diff(page) != 0)
    first = np.flatnonzero(new)
    requests = np.diff(np.append(first, len(page)))
    proxy, page = proxy[first], page[first]
    return proxy, page, _counts(seed, sq, proxy, page, requests)


@njit(cache=True)
def _counts(seed, sq, proxy, page, requests):  # type: ignore[no-untyped-def]
    low, high = (2.0 * sq - 1.0, 1.0) if sq > 0.5 else (0.0, 2.0 * sq)
    counts = np.empty(len(requests), np.int32)
    for i in range(len(requests)):
        quality = max(LEAST_QUALITY, low + (high - low) * uniform(seed, proxy[i], page[i]))
        counts[i] = min(np.ceil(requests[i] / quality), 2147483647.0)
    return counts
