"""The kinds of claims that a simulation of bad2018 can judge, each as data with what it takes to judge it.

"Above" means: the 95 % interval of the difference, taken seed by seed, lies above zero at every cache size. One
run has no intervals, so it refutes and confirms nothing but what has to be so in every single run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from newsstand.lab.bad2018_simulation import AT_EQUAL_B
from newsstand.lab.bad2018_simulation_measured import Measured
from newsstand.lab.claims import Claim
from newsstand.lab.intervals import Interval

NAMES = {
    "hit_ratio": "hit ratio",
    "hit_bytes": "hit byte",
    "miss_bytes": "miss byte",
    "mean_latency_s": "latency",
    "fetch_bytes": "fetch",
    "mean_hold_s": "holding time",
}
UNITS = {
    "hit_ratio": ("points", 100.0),
    "mean_latency_s": ("ms", 1000.0),
    "fetch_bytes": ("GB", 1e-9),
    "mean_hold_s": ("seconds", 1.0),
}
"""What differences are told in, and by what they are multiplied for it."""
LOW = {"mean_latency_s", "fetch_bytes", "miss_bytes"}
"""Where less is better."""


@dataclass(frozen=True)
class Lead:
    """One scheme has clearly more, or clearly less, than each of others at every size."""

    id: str
    text: str
    paper: str
    what: str
    one: str
    others: tuple[str, ...] = ()
    """None: all others of the paper."""
    less: bool = False
    variant: str = AT_EQUAL_B
    """Of the others."""

    def judged(self, m: Measured) -> list[Claim]:
        """The claim with its verdict, if everybody was run."""
        others = self.others or tuple(label for label in m.of_paper if label != self.one)
        sizes = [b for b in m.sizes_of(self.one) if all(b in m.sizes_of(o, self.variant) for o in others)]
        if not sizes or not others:
            return []
        sign = -1 if self.less else 1
        leads = {b: {o: m.less(self.what, self.one, o, b, self.variant) for o in others} for b in sizes}
        nearest = {b: min(others, key=lambda o: sign * leads[b][o].mean) for b in sizes}
        closest = {b: leads[b][nearest[b]] for b in sizes}
        every = [one for of in leads.values() for one in of.values()]
        is_ahead = all(one.is_below if self.less else one.is_above for one in every)
        measured = f"{self._told(m, closest, nearest, others)}; {_sides(list(closest.values()))}"
        return [Claim(self.id, self.text, self.paper, measured, verdict(is_ahead, every))]

    def _told(
        self, m: Measured, closest: Mapping[int, Interval], nearest: Mapping[int, str], others: Sequence[str]
    ) -> str:
        unit, factor = UNITS[self.what]
        if len(others) > 1:
            by_size = (f"{closest[b].told(factor)} ({nearest[b]}) at {b} MB" for b in few(list(closest)))
            return f"{self.one} less the nearest other, in {unit}: {', '.join(by_size)}"
        told = f"{self.one} less {others[0]}, in {unit}: {at_sizes(closest, factor)}"
        if self.what == "hit_ratio":
            late = {b: m.less("hit_ratio_late", self.one, others[0], b, self.variant) for b in closest}
            told += f"; late retrievals alone: {at_sizes(late, factor)}"
        return told


@dataclass(frozen=True)
class Trend:
    """As the cache grows, a measurement goes one way under all schemes of the paper."""

    what: str

    def judged(self, m: Measured) -> list[Claim]:
        """The claim with its verdict, if there are several sizes."""
        if len(m.sizes) < 2:
            return []
        sign, goes = (-1, "decreases") if self.what in LOW else (1, "increases")
        steps = [(s, a, b) for s in m.of_paper for a, b in itertools.pairwise(m.sizes)]
        wrong = [f"{s} from {a} to {b} MB" for s, a, b in steps if sign * m.grows(self.what, s, a, b).mean <= 0]
        ends = ", ".join(self._ends(m, scheme) for scheme in m.of_paper)
        against = f"; against it {', '.join(wrong)}" if wrong else ""
        return [
            Claim(
                f"V-size-{NAMES[self.what].replace(' ', '-')}",
                f"As the cache grows, {NAMES[self.what]} {goes} in all schemes.",
                goes,
                f"{m.sizes[0]} to {m.sizes[-1]} MB: {ends}{against}",
                None if m.is_single else not wrong,
            )
        ]

    def _ends(self, m: Measured, scheme: str) -> str:
        first, last = (m.mean(self.what, scheme, size) for size in (m.sizes[0], m.sizes[-1]))
        if self.what == "hit_ratio":
            return f"{scheme} {first:.4f} to {last:.4f}"
        return f"{scheme} {last / first - 1:+.2%}"


@dataclass(frozen=True)
class Share:
    """A mean over the runs, as a share of something, is where it should be at every size."""

    id: str
    text: str
    paper: str
    told: str
    """What is a share of what; `{}` are the shares."""
    needs: tuple[str, ...]
    of: Callable[[Measured, str, int], float]
    holds: Callable[..., bool]
    """Of the shares of the needed schemes at a size."""
    digits: int = 2

    def judged(self, m: Measured) -> list[Claim]:
        """The claim with its verdict, if the schemes were run."""
        if not set(self.needs) <= set(m.of_paper):
            return []
        shares = {scheme: {b: self.of(m, scheme, b) for b in m.sizes} for scheme in self.needs}
        by_scheme = (
            ", ".join(f"{of[b]:.{self.digits}f} at {b} MB" for b in few(m.sizes)) for of in shares.values()
        )
        every = all(self.holds(*(of[b] for of in shares.values())) for b in m.sizes)
        return [
            Claim(self.id, self.text, self.paper, self.told.format(*by_scheme), None if m.is_single else every)
        ]


def verdict(holds: bool, intervals: Sequence[Interval]) -> bool | None:
    """A verdict that rests on intervals: there is none without them."""
    return holds if all(one.is_known for one in intervals) else None


def _sides(of: Sequence[Interval]) -> str:
    if not all(one.is_known for one in of):
        return "one run has no interval"
    above, below = sum(one.is_above for one in of), sum(one.is_below for one in of)
    return f"clearly above at {above} and clearly below at {below} of {len(of)} sizes"


def few(sizes: Sequence[int]) -> list[int]:
    """Smallest, middle and largest."""
    return sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})


def at_sizes(of: Mapping[int, Interval], factor: float, digits: int = 2) -> str:
    """Differences at some of the sizes."""
    return ", ".join(f"{of[b].told(factor, digits)} at {b} MB" for b in few(list(of)))
