"""What the players of the scenario have seen: counts, and how long things took."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

WINDOW_S = 60.0
"""Latencies on the page are those of the last minute."""


@dataclass
class Tally:
    """Counts since the start. One event loop writes it."""

    publications: int = 0
    received: int = 0
    repeated: int = 0
    """Results that came a second time, after a connection was lost."""
    missed: int = 0
    """Results that retention removed unread."""
    troubles: int = 0
    """Times that somebody got no further and tried again."""
    last_trouble: str = ""
    latencies: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=100_000))
    """When a result came, and milliseconds since it was made; of those only who were online when it was made."""

    def came(self, milliseconds: float) -> None:
        """A result has come to somebody who was waiting for it."""
        self.latencies.append((time.monotonic(), milliseconds))

    def quantiles(self, window_s: float | None = None) -> dict[str, float | None]:
        """Median and 99th percentile, of the last so many seconds or of all."""
        after = 0.0 if window_s is None else time.monotonic() - window_s
        values = sorted(value for at, value in self.latencies if at >= after)
        return {"p50": _quantile(values, 0.5), "p99": _quantile(values, 0.99)}


def _quantile(values: list[float], share: float) -> float | None:
    return round(values[min(len(values) - 1, int(share * len(values)))], 1) if values else None
