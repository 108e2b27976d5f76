"""What the oracle knows of a whole run, and what it reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from faults.journal import Line


@dataclass(frozen=True)
class Violation:
    """A promise that was broken."""

    rule: str
    who: str
    what: str
    line: Line

    def __str__(self) -> str:
        return f"{self.rule}: {self.who}: {self.what}: {self.line}"


@dataclass
class Report:
    """What the oracle found."""

    violations: list[Violation] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    """The longest from the answer to a publication to its receipt by a subscriber that waited for it."""

    def wrong(self, rule: str, who: str, what: str, line: Line) -> None:
        self.violations.append(Violation(rule, who, what, line))


@dataclass(frozen=True)
class World:
    """What all subscribers share: when processes were away, and what was published."""

    away: Sequence[tuple[float, float]]
    """When the coordinator was, or could be taken for, away."""
    log: Sequence[Line]
    streams: Mapping[str, Sequence[str]]
    """The ids of each stream's results, read from the cluster in the end."""
    sent_at: Mapping[str, float] = field(default_factory=dict)
    answered_at: Mapping[str, float] = field(default_factory=dict)
    """When publications were sent for the first time, and answered for the first time."""

    def asks_coordinator(self, line: Line) -> bool:
        """Whether the broker of an answer had the coordinator's at that time."""
        if line.get("durability") == "replicated":
            return True
        return not any(start <= line["got"] and line["sent"] <= end for start, end in self.away)
