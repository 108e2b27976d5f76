"""The broker's workload of Uddin & Venkatasubramanian (2018, section V): its settings and its results.

Subscribers join, come online and go offline, and change their subscriptions; subscriptions bring results. Where
Table II is silent or at odds with the text, this is taken:

- A kilobyte has 1000 bytes. A log-normal law has its mu and sigma in the table, and is one of minutes. The text's
  means of 20 and 30 minutes online and offline are not those of the table's laws, 15.9 and 20.7; the table counts.
- A subscription's mean interval between results is uniform over 10 to 60 seconds. Its results are a Poisson stream
  from time 0 on, whether or not anybody has subscribed.
- A subscriber has the same number of live subscriptions at all times. When one ends, another is made in the same
  millisecond: any but those still live, so the one that ended may come again.
- Whoever joins makes all subscriptions at that moment, and comes online then (`online`), or is in either state as
  if the past had been long (`stationary`).
- Nothing lasts for less than a millisecond.
- Under `zipf` the popularity of a subscription falls with its number.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from newsstand.errors import BadOption
from newsstand.workload.randomness import generator

MINUTE = 60_000.0
"""In milliseconds."""
JOINING, PRESENCE, SUBSCRIBING, RESULTS = 11, 12, 13, 14
"""The streams of draws."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Pair = tuple[float, float]


@dataclass(frozen=True)
class SimulationSettings:
    """Table II, but for what belongs to the replay; log-normal laws as (mu, sigma) in minutes."""

    subscribers: int = 10_000
    subscriptions: int = 1_000
    per_subscriber: int = 10
    hours: float = 6.0
    interval: Pair = (10.0, 60.0)
    """Between which seconds the mean interval of a subscription's results lies."""
    size: tuple[int, int] = (1_000, 500_000)
    """Between which bytes the size of a result lies, both included."""
    on: Pair = (1.753, 1.425)
    off: Pair = (2.415, 1.11)
    duration: Pair = (1.0, 2.0)
    """How long a subscription lasts."""
    popularity: Literal["uniform", "zipf"] = "uniform"
    exponent: float = 1.0
    join_minutes: float = 0.0
    """Everybody joins at a time that is uniform over these first minutes."""
    start: Literal["online", "stationary"] = "online"
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("subscribers", "subscriptions", "per_subscriber"):
            if not 1 <= getattr(self, name) < 2**31:
                raise BadOption(f"{_option(name)} {getattr(self, name)} is outside 1 … 2^31 - 1")
        if not 0 <= self.seed < 2**63:
            raise BadOption(f"seed {self.seed} is outside 0 … 2^63 - 1")
        if self.per_subscriber > self.subscriptions:
            raise BadOption(
                f"per-subscriber {self.per_subscriber} is more than there are: subscriptions {self.subscriptions}"
            )
        if not 0 < self.hours <= 10_000:
            raise BadOption(f"hours {self.hours} is outside (0, 10000]")
        if not 0 <= self.join_minutes <= self.hours * 60:
            raise BadOption(f"join-minutes {self.join_minutes} is outside 0 … {self.hours * 60:g}, the whole time")
        if not 0.001 <= self.interval[0] <= self.interval[1] < math.inf:
            raise BadOption(f"interval {_shown(self.interval)} is not a range of seconds from 0.001 on")
        if not 1 <= self.size[0] <= self.size[1] < 2**31:
            raise BadOption(f"size {_shown(self.size)} is not a range of bytes within 1 … 2^31 - 1")
        for name in ("on", "off", "duration"):
            mu, sigma = getattr(self, name)
            if not (abs(mu) <= 50 and 0 <= sigma <= 10):
                raise BadOption(f"{name} {_shown((mu, sigma))} is not a mu within ±50 and a sigma in 0 … 10")
        if self.popularity not in ("uniform", "zipf"):
            raise BadOption(f"popularity '{self.popularity}' is neither uniform nor zipf")
        if not 0 <= self.exponent <= 100:
            raise BadOption(f"exponent {self.exponent} is outside 0 … 100")
        if self.start not in ("online", "stationary"):
            raise BadOption(f"start '{self.start}' is neither online nor stationary")

    @property
    def end_ms(self) -> int:
        """Every event happens before."""
        return max(1, round(self.hours * 60 * MINUTE))

    @cached_property
    def popularities(self) -> Floats:
        """The weight with which each subscription is chosen."""
        ranks = np.arange(1, self.subscriptions + 1, dtype=np.float64)
        weight: Floats = ranks**-self.exponent if self.popularity == "zipf" else np.ones_like(ranks)
        return weight

    def described(self) -> dict[str, object]:
        """What was asked for, as JSON has it."""
        return {"workload": "bad2018", **asdict(self), "end_ms": self.end_ms}


def _option(name: str) -> str:
    return name.replace("_", "-")


def _shown(pair: tuple[float, float]) -> str:
    return f"{pair[0]:g} {pair[1]:g}"


def results(settings: SimulationSettings, unit: int, first: int, last: int) -> tuple[Ints, Ints, Ints]:
    """The results of the subscriptions from `first` to before `last`: time, subscription, size.

    A Poisson stream has a Poisson number of arrivals, each at a uniform time.
    """
    draw = generator(settings.seed, RESULTS, unit)
    interval = draw.uniform(*settings.interval, last - first)
    counts = draw.poisson(settings.end_ms / 1000 / interval)
    arrivals = int(counts.sum())
    time = np.floor(draw.random(arrivals) * settings.end_ms).astype(np.int64)
    size = draw.integers(settings.size[0], settings.size[1], arrivals, endpoint=True)
    return time, np.repeat(np.arange(first, last), counts), size
