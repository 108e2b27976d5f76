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
    """(proxy, page, count) for every pair that was requested, sorted; count = ceil(P_ij / SQ_ij).

    Pages are numbered from 0 and fit, as proxies do, into 31 bits.
    """
    # One integer a pair sorts many times faster than two columns do.
    pairs, requests = np.unique((proxy.astype(np.int64) << 32) | page, return_counts=True)
    proxy, page = (pairs >> 32).astype(np.int32), pairs & 0xFFFFFFFF
    return proxy, page, _counts(seed, sq, proxy, page, requests)


@njit(cache=True)
def _counts(seed, sq, proxy, page, requests):  # type: ignore[no-untyped-def]
    low, high = (2.0 * sq - 1.0, 1.0) if sq > 0.5 else (0.0, 2.0 * sq)
    counts = np.empty(len(requests), np.int32)
    for i in range(len(requests)):
        quality = max(LEAST_QUALITY, low + (high - low) * uniform(seed, proxy[i], page[i]))
        counts[i] = min(np.ceil(requests[i] / quality), 2147483647.0)
    return counts
