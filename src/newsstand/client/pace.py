"""How patient a client is, and how it waits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Seconds and numbers by which a client goes."""

    deadline_s: float = 30.0
    """How long a call is tried before it raises Unreachable. Iterating over results never gives up."""
    first_s: float = 0.5
    longest_s: float = 5.0
    """A repetition waits a random time of at most `first_s`, then twice that … up to `longest_s`."""
    answer_s: float = 15.0
    """How long one answer may take."""
    acks: int = 100
    ack_within_s: float = 0.2
    """Acknowledgements go together: after so many results, or so many seconds."""
    poll_s: float = 30.0
    """Without any signal for so long, a client looks for results."""
    limit: int = 100
    """Results in one answer, at most 1000."""


def full_jitter(pace: Pace, rng: random.Random) -> Iterator[float]:
    """How long to wait before each repetition: anything from 0 to a ceiling that doubles.

    M. Brooker, "Exponential backoff and jitter", 2015: those who were cut off together do not come back together.
    """
    ceiling = pace.first_s
    while True:
        yield rng.uniform(0.0, ceiling)
        ceiling = min(pace.longest_s, 2 * ceiling)
