"""The times to live of result caches (Uddin & Venkatasubramanian 2018, section IV.B).

Cache i grows by rho_i bytes per unit of time: bytes put minus bytes consumed, without those that the policy drops.
Equation 7 sets T_i = (n_i / sum of all n) B / rho_i, so that the expected bytes, the sum of rho_i T_i, are the
budget B, divided by numbers of subscribers. Growth is measured in windows; T_i changes when a window closes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

LINK_BYTES_PER_MS = 10_000
"""The link to the data cluster: 10 MB/s."""
AVERAGE_OVER = 4
"""The weight of the latest window in an exponential average is one over this number."""


@dataclass(slots=True)
class Lifetime:
    """The time to live in one result cache, and the measurements behind it."""

    ttl_ms: int
    subscribers: int = 0
    growth: int = 0
    """Bytes put minus bytes consumed or abandoned in the open window."""
    closed: deque[int] = field(default_factory=deque)
    """The growth in the latest closed windows, oldest first."""
    average: int | None = None
    """The exponential average of the growth in all closed windows; None if there was none."""

    @property
    def is_blank(self) -> bool:
        """Whether it holds no more information than a new one."""
        return not (self.subscribers or self.growth or any(self.closed))


class Lifetimes:
    """The windows in which all result caches of a broker are measured, and equation 7."""

    def __init__(self, window_ms: int, windows: int, cap_ms: int, start_ms: int) -> None:
        self.window_ms = window_ms
        self.windows = windows
        self.cap_ms = cap_ms
        self.restart(start_ms)

    def restart(self, start_ms: int) -> None:
        """Begin the first window now."""
        self._closed = 0
        self.next_ms = start_ms + self.window_ms
        """When the open window closes."""

    def without_estimate(self, budget: int) -> int:
        """Return the time to live without measurements: the time in which the link fills the budget."""
        return min(self.cap_ms, budget // LINK_BYTES_PER_MS)

    def close(self, lifetimes: Collection[Lifetime], budget: int, *, averages: bool = False) -> float:
        """Close the window, set every time to live, and return the expected bytes, the sum of rho_i T_i.

        Growth is that of the latest windows or, with `averages`, the exponential average of all windows.
        """
        self._closed += 1
        self.next_ms += self.window_ms
        measured = 1 if averages else min(self.windows, self._closed)
        span_ms = measured * self.window_ms
        subscribers = sum(lifetime.subscribers for lifetime in lifetimes)
        expected = 0
        for lifetime in lifetimes:
            grown = self._grown(lifetime, averages)
            if lifetime.subscribers == 0:
                lifetime.ttl_ms = self.without_estimate(budget)
            elif grown <= 0:
                lifetime.ttl_ms = self.cap_ms
            else:
                share = lifetime.subscribers * budget * span_ms // (subscribers * grown)
                lifetime.ttl_ms = min(self.cap_ms, share)
                expected += grown * lifetime.ttl_ms
        return expected / span_ms

    def _grown(self, lifetime: Lifetime, averages: bool) -> int:
        growth, average = lifetime.growth, lifetime.average
        lifetime.average = growth if average is None else average + (growth - average) // AVERAGE_OVER
        lifetime.closed.append(growth)
        lifetime.growth = 0
        if len(lifetime.closed) > self.windows:
            lifetime.closed.popleft()
        return lifetime.average if averages else sum(lifetime.closed)
