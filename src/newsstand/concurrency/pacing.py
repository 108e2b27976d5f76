"""Pacing of calls: exponential back-off with full jitter, and limits on how often something may happen."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from newsstand.errors import Busy


class Backoff:
    """Waits before repetitions: a random time from 0 to a ceiling that doubles with each failure.

    M. Brooker, "Exponential Backoff and Jitter", 2015: clients that were cut off together do not return together.
    """

    def __init__(
        self, first_s: float = 0.1, longest_s: float = 5.0, jitter: Callable[[], float] = random.random
    ) -> None:
        """`jitter` returns numbers from 0 to 1."""
        self.first_s = first_s
        self.longest_s = longest_s
        self.failures = 0
        self._jitter = jitter

    def ceiling_s(self, failures: int) -> float:
        """Return the longest wait after a number of failures in a row."""
        return min(self.longest_s, self.first_s * 2.0 ** min(failures, 60))

    def wait_s(self, failures: int) -> float:
        """Return a random wait after a number of failures in a row."""
        return self.ceiling_s(failures) * self._jitter()

    def next_s(self) -> float:
        """Count a failure and return the wait before the next attempt."""
        wait_s = self.wait_s(self.failures)
        self.failures += 1
        return wait_s

    async def wait(self) -> None:
        """Count a failure and sleep before the next attempt."""
        await asyncio.sleep(self.next_s())

    def reset(self) -> None:
        """Forget the failures after a success."""
        self.failures = 0


class LogOnce:
    """Logs a failure that repeats when it first occurs and when it changes, not each time."""

    def __init__(self, logger: logging.Logger, level: int = logging.WARNING) -> None:
        self._logger = logger
        self._level = level
        self._last = ""

    def failed(self, message: str, *arguments: object) -> None:
        """Log a failure unless the last one was the same."""
        text = message % arguments
        if text != self._last:
            self._last = text
            self._logger.log(self._level, "%s", text)

    def succeeded(self) -> None:
        """Log the next failure, whatever it is."""
        self._last = ""


K = TypeVar("K", bound=Hashable)
MOST_KEYS = 100_000
"""Keys that are remembered; the one that was used longest ago makes room."""


class Rate:
    """A limit of events in each period for each key: a token bucket that is refilled evenly."""

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


class KeyedSlots(Generic[K]):
    """Slots, a few for each key; used from the event loop's thread only."""

    def __init__(self, per_key: int, in_all: int) -> None:
        self._per_key = per_key
        self._all = asyncio.Semaphore(in_all)
        self._of_key: dict[K, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Hold a slot; waiting for one of this key takes no slot of the others."""
        semaphore, users = self._of_key.get(key) or (asyncio.Semaphore(self._per_key), 0)
        self._of_key[key] = semaphore, users + 1
        try:
            async with semaphore, self._all:
                yield
        finally:
            semaphore, users = self._of_key.pop(key)
            if users > 1:
                self._of_key[key] = semaphore, users - 1
