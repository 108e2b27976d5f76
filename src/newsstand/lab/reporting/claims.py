"""The claims of papers, the rules by which intervals decide them, and the texts of reports.

A claim that something is above zero at every point holds if all of the 95 % interval is above, at nine tenths of
the points; it fails if all of it is below at more than a tenth, as chance alone would be at one in forty; else it
is undecided. A number that is claimed for all points fails if at any of them the interval lies wholly outside.

The texts are data, in the file `report.toml` of each paper.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from typing import NamedTuple, TypeVar

import msgspec

from newsstand.lab.reporting.statistics import Interval


@dataclass(frozen=True)
class ClaimText:
    """A claim: our words, what the paper says, and why it does not hold where it does not."""

    text: str
    paper: str
    why: str = ""


@dataclass(frozen=True)
class FigureText:
    """The title of a figure, and what to see in it."""

    title: str
    caption: str


@dataclass(frozen=True)
class SectionText:
    """The title and the lead of a section; the lead has fields in braces."""

    title: str
    lead: str
    single: str = ""
    """Added to the lead if there was one run only."""

    def describe(self, *, is_single: bool = False, **values: object) -> str:
        """Return the lead with these values."""
        return self.lead.format(**values) + (f" {self.single}" if is_single else "")


@dataclass(frozen=True)
class ReportText(SectionText):
    """The texts of the report of a paper; claims are in the paper's order."""

    sections: Mapping[str, SectionText] = field(default_factory=dict)
    figures: Mapping[str, FigureText] = field(default_factory=dict)
    claims: Mapping[str, ClaimText] = field(default_factory=dict)


@cache
def report_text(paper: str) -> ReportText:
    """Return the texts of a paper, by the name of its folder."""
    text = (files("newsstand.lab.papers") / paper / "report.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), ReportText)


Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, in our words, with the verdict of a measurement."""

    id: str
    text: str
    paper: str
    measured: str
    holds: bool | None
    """Whether it holds; None if the measurements do not decide it."""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class Finding(NamedTuple):
    """The measurement for the claim with this id, and the verdict."""

    id: str
    measured: str
    holds: bool | None


Judge = Callable[[Measured], Iterable[Finding]]


def judge_all(paper: str, judges: Iterable[Judge[Measured]], measured: Measured) -> list[Claim]:
    """Return the claims of a paper that these judges decide, in the paper's order."""
    texts = report_text(paper).claims
    findings = {finding.id: finding for judge in judges for finding in judge(measured)}
    return [_claim(texts[name], findings[name]) for name in sorted(findings, key=list(texts).index)]


def _claim(text: ClaimText, finding: Finding) -> Claim:
    why = f". {text.why}" if finding.holds is False and text.why else ""
    return Claim(finding.id, text.text, text.paper, finding.measured + why, finding.holds)


NEARLY_ALL, FEW = 0.9, 0.1
ROUNDING = 1e-9
"""Intervals are wider by this, for values that are equal in every replication."""

Intervals = Mapping[str, Interval]
"""Intervals by the name of their point."""


def all_known(intervals: Iterable[Interval]) -> bool:
    """Return whether all are intervals, and not single values."""
    return all(one.is_known for one in intervals)


def verdict(holds: bool, intervals: Iterable[Interval]) -> bool | None:
    """Return a verdict that rests on intervals: there is none without them."""
    return holds if all_known(intervals) else None


def above(found: Interval, least: float = 0.0) -> bool | None:
    """Return whether all of an interval is above a number; None if it contains the number."""
    moved = Interval(found.mean - least, found.half)
    return True if moved.is_above else False if moved.is_below else None


def above_everywhere(found: Collection[Interval]) -> bool | None:
    """Return whether something is above zero at every point, if intervals decide it."""
    if not all_known(found):
        return None
    if sum(one.mean + one.half < -ROUNDING for one in found) > FEW * len(found):
        return False
    return True if sum(one.is_above for one in found) >= NEARLY_ALL * len(found) else None


def below_everywhere(found: Collection[Interval]) -> bool | None:
    """Return whether something is below zero at every point, if intervals decide it."""
    return above_everywhere([Interval(-one.mean, one.half) for one in found])


def within(found: Collection[Interval], low: float = -math.inf, high: float = math.inf) -> bool | None:
    """Return whether everything is between two bounds; None if an interval crosses one or is unknown."""
    if not all_known(found):
        return None
    if any(one.mean + one.half + ROUNDING < low or one.mean - one.half - ROUNDING > high for one in found):
        return False
    inside = all(one.mean - one.half + ROUNDING >= low and one.mean + one.half - ROUNDING <= high for one in found)
    return inside or None


def all_of(verdicts: Collection[bool | None]) -> bool | None:
    """Return False if any verdict is False, True if all are True, else None."""
    if any(one is False for one in verdicts):
        return False
    return None if any(one is None for one in verdicts) else True


def extremes(found: Intervals) -> tuple[str, str]:
    """Return the names of the points with the least and the greatest mean."""
    return min(found, key=lambda name: found[name].mean), max(found, key=lambda name: found[name].mean)


def ends(found: Intervals, factor: float = 100, digits: int = 1, unit: str = " %") -> str:
    """Describe the least and the greatest interval, with their points."""
    first, last = (f"{found[name].text(factor, digits)}{unit} ({name})" for name in extremes(found))
    return first if first == last else f"{first} to {last}"


def count_sides(found: Collection[Interval]) -> str:
    """Describe at how many points an interval is above zero, and at how many below."""
    above, below = sum(one.is_above for one in found), sum(one.is_below for one in found)
    return f"above at {above} of {len(found)} points, below at {below}"
