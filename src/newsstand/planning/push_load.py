"""How busy an origin is: a load factor as Unix has it (Gwertzman and Seltzer 1995).

>>> load = LoadAverage(started=0.0)
>>> for second in range(300):
...     load.record(float(second))
>>> load.advance(1800.0), load.advance(3600.0)
(150.0, 75.0)
"""

from __future__ import annotations

from newsstand.errors import BadOption

PERIOD_S = 1800.0
DECAY = 0.5


class LoadAverage:
    """Every half hour load = a·load + (1−a)·requests, a being the decay.

    A half hour holds its first moment and not its last. They are counted from `started` on.
    """

    def __init__(self, started: float, decay: float = DECAY, period_s: float = PERIOD_S) -> None:
        if not 0 <= decay < 1:
            raise BadOption(f"decay is {decay}: it must be at least 0 and below 1")
        if not period_s > 0:
            raise BadOption(f"period_s is {period_s}: it must be positive")
        self.load = 0.0
        self._requests = 0
        self._started = started
        self._closed = 0
        self._decay = decay
        self._period_s = period_s

    @property
    def closes_at(self) -> float:
        """When the present half hour ends."""
        # By multiplication, as sums of periods would drift.
        return self._started + (self._closed + 1) * self._period_s

    def record(self, now: float, requests: int = 1) -> float | None:
        """Requests that were answered now; also what `advance` says."""
        highest = self.advance(now)
        self._requests += requests
        return highest

    def advance(self, now: float) -> float | None:
        """Close the half hours that have ended; the highest load at such an end, None if none has ended."""
        if now < self.closes_at:
            return None
        self.load = highest = self._decay * self.load + (1 - self._decay) * self._requests
        self._requests = 0
        self._closed += 1
        if now >= self.closes_at:
            # Nothing was recorded since: the load only falls, however many half hours there are.
            idle = int((now - self.closes_at) // self._period_s) + 1
            self.load *= self._decay**idle
            self._closed += idle
        return highest

    def reset(self) -> None:
        """The load is 0 after a push."""
        self.load = 0.0
