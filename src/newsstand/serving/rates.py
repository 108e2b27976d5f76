"""Limits on how often something may happen."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from newsstand.errors import Busy

MOST_KEYS = 100_000
"""Keys that are remembered; the one that was used longest ago makes room."""


class Rate:
    """So many events in each period for each key: a bucket that holds them all and is refilled evenly."""

    def __init__(
        self,
        most: int,
        period_s: float,
        clock: Callable[[], float] = time.monotonic,
        most_keys: int = MOST_KEYS,
    ) -> None:
        self._most = most
        self._pause_s = period_s / most
        self._clock = clock
        self._most_keys = most_keys
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """When each bucket is full again."""

    def take(self, key: str, what: str) -> None:
        """Count one event; raise Busy if there are too many, with the time after which there is room."""
        now = self._clock()
        full_at = max(now, self._full_at.pop(key, now)) + self._pause_s
        wait_s = full_at - now - self._most * self._pause_s
        if wait_s > 1e-6:
            self._full_at[key] = full_at - self._pause_s
            raise Busy(what, wait_s)
        self._full_at[key] = full_at
        if len(self._full_at) > self._most_keys:
            self._full_at.popitem(last=False)
