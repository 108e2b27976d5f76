"""The input of the oracle for a whole run, and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from faults.journal import Line


@dataclass(frozen=True)
class Violation:
    """A violated guarantee."""

    rule: str
    who: str
    what: str
    line: Line

    def __str__(self) -> str:
        return f"{self.rule}: {self.who}: {self.what}: {self.line}"


@dataclass
class Report:
    """The violations and figures of a run."""

    violations: list[Violation] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    """The longest time from the answer to a publication until a waiting subscriber received it."""

    def wrong(self, rule: str, who: str, what: str, line: Line) -> None:
        self.violations.append(Violation(rule, who, what, line))


@dataclass(frozen=True)
class World:
    """The state that all subscribers share: absences of the coordinator, and publications."""

    away: Sequence[tuple[float, float]]
    """The times at which the coordinator was away, or a broker could consider it away."""
    log: Sequence[Line]
    streams: Mapping[str, Sequence[str]]
    """The ids of each stream's results, read from the cluster at the end."""
    sent_at: Mapping[str, float] = field(default_factory=dict)
    answered_at: Mapping[str, float] = field(default_factory=dict)
    """When publications were first sent, and first answered."""

    def asks_coordinator(self, line: Line) -> bool:
        """Return whether the broker of an answer could reach the coordinator at that time."""
        if line.get("durability") == "replicated":
            return True
        return not any(start <= line["got"] and line["sent"] <= end for start, end in self.away)
