"""The verdicts on Uddin & Venkatasubramanian (2018, section V)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from newsstand.lab.papers.bad2018.experiment import AT_EQUAL_B, AT_EQUAL_MEMORY, NC
from newsstand.lab.papers.bad2018.measurements import ResultCacheMeasurements
from newsstand.lab.reporting.claims import Claim, Finding, Judge, all_known, judge_all, verdict
from newsstand.lab.reporting.statistics import Interval

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
"""The unit of differences, and the factor to it."""
LOW = {"mean_latency_s", "fetch_bytes", "miss_bytes"}
"""Measures of which less is better."""


@dataclass(frozen=True)
class SchemeLead:
    """A claim: one scheme has clearly more, or clearly less, than each of others at every size."""

    id: str
    what: str
    one: str
    others: tuple[str, ...] = ()
    """None: all others of the paper."""
    less: bool = False
    variant: str = AT_EQUAL_B
    """The variant of the other schemes."""

    def __call__(self, m: ResultCacheMeasurements) -> Iterator[Finding]:
        """Yield the verdict if all these schemes were run."""
        others = self.others or tuple(label for label in m.of_paper if label != self.one)
        sizes = [b for b in m.sizes_of(self.one) if all(b in m.sizes_of(o, self.variant) for o in others)]
        if not sizes or not others:
            return
        sign = -1 if self.less else 1
        leads = {b: {o: m.less(self.what, self.one, o, b, self.variant) for o in others} for b in sizes}
        nearest = {b: min(others, key=lambda o: sign * leads[b][o].mean) for b in sizes}
        closest = {b: leads[b][nearest[b]] for b in sizes}
        every = [one for of in leads.values() for one in of.values()]
        is_ahead = all(one.is_below if self.less else one.is_above for one in every)
        measured = f"{self._differences(m, closest, nearest, others)}; {_sides(closest.values())}"
        yield Finding(self.id, measured, verdict(is_ahead, every))

    def _differences(
        self,
        m: ResultCacheMeasurements,
        closest: Mapping[int, Interval],
        nearest: Mapping[int, str],
        others: Sequence[str],
    ) -> str:
        unit, factor = UNITS[self.what]
        if len(others) > 1:
            by_size = (f"{closest[b].text(factor)} ({nearest[b]}) at {b} MB" for b in few(list(closest)))
            return f"{self.one} less the nearest other, in {unit}: {', '.join(by_size)}"
        text = f"{self.one} less {others[0]}, in {unit}: {at_sizes(closest, factor)}"
        if self.what == "hit_ratio":
            late = {b: m.less("hit_ratio_late", self.one, others[0], b, self.variant) for b in closest}
            text += f"; late retrievals alone: {at_sizes(late, factor)}"
        return text


@dataclass(frozen=True)
class SizeTrend:
    """A claim: as the cache grows, a measurement goes one way under all schemes of the paper."""

    what: str

    def __call__(self, m: ResultCacheMeasurements) -> Iterator[Finding]:
        """Yield the verdict if there are several sizes."""
        if len(m.sizes) < 2:
            return
        sign = -1 if self.what in LOW else 1
        wrong = [
            f"{scheme} from {a} to {b} MB"
            for scheme in m.of_paper
            for a, b in itertools.pairwise(m.sizes)
            if sign * (m.of(self.what, scheme, b) - m.of(self.what, scheme, a)).mean <= 0
        ]
        ends = ", ".join(self._ends(m, scheme) for scheme in m.of_paper)
        against = f"; against it {', '.join(wrong)}" if wrong else ""
        yield Finding(
            f"V-size-{NAMES[self.what].replace(' ', '-')}",
            f"{m.sizes[0]} to {m.sizes[-1]} MB: {ends}{against}",
            None if m.is_single else not wrong,
        )

    def _ends(self, m: ResultCacheMeasurements, scheme: str) -> str:
        first, last = (m.mean(self.what, scheme, size) for size in (m.sizes[0], m.sizes[-1]))
        if self.what == "hit_ratio":
            return f"{scheme} {first:.4f} to {last:.4f}"
        return f"{scheme} {last / first - 1:+.2%}"


@dataclass(frozen=True)
class BudgetShare:
    """A claim: a mean over the runs, as a share of something, is where it should be at every size."""

    id: str
    measured: str
    """The text of the measurement; `{}` are the shares."""
    needs: tuple[str, ...]
    share: Callable[[ResultCacheMeasurements, str, int], float]
    """The share of a scheme at a size."""
    holds: Callable[..., bool]
    """Whether the claim holds for the shares of the needed schemes at a size."""
    digits: int = 2

    def __call__(self, m: ResultCacheMeasurements) -> Iterator[Finding]:
        """Yield the verdict if the schemes were run."""
        if set(self.needs) <= set(m.of_paper):
            shares = {scheme: {b: self.share(m, scheme, b) for b in m.sizes} for scheme in self.needs}
            by_scheme = (
                ", ".join(f"{of[b]:.{self.digits}f} at {b} MB" for b in few(m.sizes)) for of in shares.values()
            )
            every = all(self.holds(*(of[b] for of in shares.values())) for b in m.sizes)
            yield Finding(self.id, self.measured.format(*by_scheme), None if m.is_single else every)


def _sides(of: Collection[Interval]) -> str:
    if not all_known(of):
        return "one run has no interval"
    above, below = sum(one.is_above for one in of), sum(one.is_below for one in of)
    return f"clearly above at {above} and clearly below at {below} of {len(of)} sizes"


def few(sizes: Sequence[int]) -> list[int]:
    """Return the smallest, the middle and the largest size."""
    return sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})


def at_sizes(of: Mapping[int, Interval], factor: float, digits: int = 2) -> str:
    """Describe differences at some of the sizes."""
    return ", ".join(f"{of[b].text(factor, digits)} at {b} MB" for b in few(list(of)))


SIMILAR = 0.001
"""Hit ratios that differ by a tenth of a point at most are very similar."""
SLIGHTLY = 0.35
"""A cache that is larger than allowed by at most this share of B is slightly larger."""
EXACT, CLOSE = 0.02, 0.1
"""Relative deviations that are still almost exact, and close."""
GENERALLY = 0.9
"""The share of cases in which what is generally so is so."""


def claims(measured: ResultCacheMeasurements) -> list[Claim]:
    """Return every claim of section V that the schemes of the experiment allow to judge, in the paper's order."""
    return judge_all("bad2018", JUDGES, measured)


def _caching(m: ResultCacheMeasurements) -> Iterator[Finding]:
    if NC not in m.experiment.schemes:
        return
    less = {(s, b): m.less("mean_latency_s", s, "NC", b) for s in m.of_paper for b in m.sizes}
    none = m.mean("mean_latency_s", "NC", m.sizes[0])
    shares = [1 + one.mean / none for one in less.values()]
    yield Finding(
        "V-cache-latency",
        f"NC {none:.3f} s; with a cache {min(shares):.0%} to {max(shares):.0%} of it",
        verdict(all(one.is_below for one in less.values()), list(less.values())),
    )


def _similar(m: ResultCacheMeasurements) -> Iterator[Finding]:
    if not {"LSCz", "LSD"} <= set(m.of_paper):
        return
    apart = {b: m.less("hit_ratio", "LSCz", "LSD", b) for b in m.sizes}
    most = max(abs(one.mean) + one.half for one in apart.values())
    yield Finding(
        "V-lscz-lsd",
        f"LSCz less LSD, in points: {at_sizes(apart, 100, digits=3)} (very similar: within {100 * SIMILAR:g})",
        verdict(most <= SIMILAR, list(apart.values())),
    )


def _agreement(m: ResultCacheMeasurements) -> Iterator[Finding]:
    """Judge whether schemes with clearly different hit ratios are in the same order by other measurements."""
    pairs = [(one, other, b) for one, other in itertools.permutations(m.of_paper, 2) for b in m.sizes]
    clear = [(one, other, b) for one, other, b in pairs if m.less("hit_ratio", one, other, b).is_above]
    agreed = {
        what: sum((m.less(what, *pair).mean > 0) != (what in LOW) for pair in clear) / max(1, len(clear))
        for what in ("hit_bytes", "miss_bytes", "mean_latency_s", "fetch_bytes")
    }
    text = ", ".join(f"{NAMES[what]} {share:.0%}" for what, share in agreed.items())
    yield Finding(
        "V-agreement",
        f"of {len(clear)} pairs of schemes with clearly different hit ratios: {text} (generally: {GENERALLY:.0%})"
        if clear
        else "no two schemes have clearly different hit ratios",
        min(agreed.values()) >= GENERALLY if clear else None,
    )


def _volume(m: ResultCacheMeasurements) -> Iterator[Finding]:
    """Judge every single run, so that one is enough."""
    volumes = [[m.of("vol_bytes", s, b) for b in m.sizes] for s in m.of_paper]
    over = [m.mean("miss_bytes", s, b) / m.mean("vol_bytes", s, b) for s in m.of_paper for b in m.sizes]
    yield Finding(
        "V-vol",
        f"Vol {m.mean('vol_bytes', m.of_paper[0], m.sizes[0]) / 1e9:.1f} GB under every policy and size; "
        f"misses {min(over):.1f} to {max(over):.1f} times that",
        all(volume == volumes[0] for volume in volumes),
    )


def _limit(m: ResultCacheMeasurements) -> Iterator[Finding]:
    """Judge every single run, so that one is enough."""
    if not m.evicting:
        return
    budgets = {b: m.experiment.bytes_of(b) for b in m.sizes}
    most = max(max(m.of("max_bytes", s, b).values()) / budgets[b] for s in m.evicting for b in m.sizes)
    yield Finding("V-limit", f"largest size of any run: {most:.4f} B", most <= 1)


JUDGES: tuple[Judge[ResultCacheMeasurements], ...] = (
    _caching,
    *(SizeTrend(what) for what in ("hit_ratio", "hit_bytes", "mean_latency_s", "fetch_bytes")),
    SchemeLead("V-ttl-highest", "hit_ratio", "TTL"),
    SchemeLead("V-ttl-lsc", "hit_ratio", "TTL", ("LSC",)),
    SchemeLead("V-ttl-lsc-equal-memory", "hit_ratio", "TTL", ("LSC",), variant=AT_EQUAL_MEMORY),
    SchemeLead("V-lsc-lru", "hit_ratio", "LSC", ("LRU",)),
    SchemeLead("V-exp-lowest", "hit_ratio", "EXP", less=True),
    _similar,
    _agreement,
    _volume,
    SchemeLead("V-latency-ttl", "mean_latency_s", "TTL", less=True),
    SchemeLead("V-latency-lsc-lru", "mean_latency_s", "LSC", ("LRU",), less=True),
    SchemeLead("V-hold-ttl", "mean_hold_s", "TTL"),
    SchemeLead("V-hold-exp", "mean_hold_s", "EXP", less=True),
    BudgetShare(
        "V-ttl-size",
        f"average over B: {{}} (slightly: above 1, by at most {SLIGHTLY:.0%})",
        ("TTL",),
        lambda m, scheme, b: m.share_of_budget("avg_bytes", scheme, b),
        lambda share: 1 < share <= 1 + SLIGHTLY,
    ),
    _limit,
    BudgetShare(
        "V-ttl-exceeds",
        "largest size over B, mean over runs: {}",
        ("TTL",),
        lambda m, scheme, b: m.share_of_budget("max_bytes", scheme, b),
        lambda share: share > 1,
    ),
    BudgetShare(
        "V-sum-rho-T",
        f"over B, mean over windows: {{}} (almost exactly: within {EXACT:.0%})",
        ("TTL",),
        lambda m, scheme, b: m.share_of_budget("sum_rho_T", scheme, b),
        lambda share: abs(share - 1) <= EXACT,
        digits=3,
    ),
    BudgetShare(
        "V-hold-matches-ttl",
        f"held over time to live, dropped objects: TTL {{}}; LSC {{}} (closely: within {CLOSE:.0%}, and closer "
        "than LSC)",
        ("TTL", "LSC"),
        lambda m, scheme, b: m.hold_over_ttl("mean_hold_dropped_s", scheme, b),
        lambda ttl, lsc: abs(ttl - 1) <= CLOSE and abs(ttl - 1) < abs(lsc - 1),
    ),
    BudgetShare(
        "V-hold-below-ttl",
        "held over time to live, all objects under TTL: {}",
        ("TTL",),
        lambda m, scheme, b: m.hold_over_ttl("mean_hold_s", scheme, b),
        lambda share: share < 1,
    ),
)
