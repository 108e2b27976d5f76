"""Schedules of faults, determined by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

BROKERS = ("b1", "b2", "b3")
KILLED = {
    ("b1",): 6, ("b2",): 6, ("b3",): 6, ("coordinator",): 7, ("cluster",): 2,
    ("b1", "coordinator"): 2, ("b2", "b3"): 2, ("b1", "b2", "b3"): 2, ("b3", "cluster"): 1,
    ("b2", "cluster", "coordinator"): 1,
}  # fmt: skip
PAUSED = {
    ("b1",): 4, ("b2",): 4, ("b3",): 4, ("coordinator",): 4, ("cluster",): 2,
    ("b1", "coordinator"): 1, ("b2", "b3"): 1, ("b3", "cluster"): 1,
}  # fmt: skip
"""The processes that fail together, and their relative frequencies."""


@dataclass(frozen=True)
class Fault:
    """After `after` seconds the targets are killed or paused at once; they are back `away` seconds later."""

    after: float
    kind: str
    """`kill` or `pause`."""
    targets: tuple[str, ...]
    away: float
    whole: bool = True
    """Whether the process of Spark is killed with the cluster's, or has to notice its end."""


def schedule(seed: int, kills: int, pauses: int, gap: tuple[float, float] = (2.0, 13.0)) -> list[Fault]:
    """Return faults with at least these numbers of killed and paused processes, in a random order."""
    rng = random.Random(f"faults {seed}")
    faults = [*_some(rng, "kill", KILLED, kills), *_some(rng, "pause", PAUSED, pauses)]
    rng.shuffle(faults)
    return [
        Fault(rng.uniform(*gap), kind, targets, _away(rng, kind), rng.random() < 0.5) for kind, targets in faults
    ]


def _some(
    rng: random.Random, kind: str, weights: dict[tuple[str, ...], int], count: int
) -> list[tuple[str, tuple[str, ...]]]:
    chosen: list[tuple[str, tuple[str, ...]]] = []
    while sum(len(targets) for _, targets in chosen) < count:
        chosen.append((kind, rng.choices(list(weights), list(weights.values()))[0]))
    return chosen


def _away(rng: random.Random, kind: str) -> float:
    """Return an absence; half of them are shorter than a lease of 3 s."""
    return rng.choice([rng.uniform(0.0, 2.5), rng.uniform(3.5, 9.0)])


SHORT: Sequence[Fault] = (
    Fault(2.0, "kill", ("b1",), 0.5),
    Fault(2.0, "pause", ("b2",), 4.0),
    Fault(1.0, "kill", ("coordinator",), 1.0),
    Fault(3.0, "kill", ("b3", "cluster"), 0.0),
    Fault(2.0, "kill", ("b2", "coordinator"), 0.5),
)
"""Each kind of process is killed, in less than a minute."""
