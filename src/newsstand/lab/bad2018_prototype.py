"""What section VI of Uddin and Venkatasubramanian (2018) claims of its prototype, against what ours measured.

A measurement is a row for each broker: its policy, the bytes of its caches (`budget`), how long its way to the
data cluster was made (`delay_ms`), and what its subscribers and its own books say.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import pandas as pd

from newsstand.lab.claims import Claim

POLICIES = ("lru", "lsc", "lscz", "lsd", "exp", "ttl")
LABELS = {"nc": "NC", "lru": "LRU", "lsc": "LSC", "lscz": "LSCz", "lsd": "LSD", "exp": "EXP", "ttl": "TTL"}
CAP_S = 3600.0
"""Seconds of the trace that an object may live at most; brokers with another cap are not compared."""

SMALL = 100_000
"""The cache that the paper calls small."""

TIE = 0.005
"""Hit ratios that differ by less, half a point, are equal: two plays of one scheme differ by so much."""

Rows = Sequence[Mapping[str, object]]


class Measured:
    """Looks measurements up.

    The machine may be busier in one play than in another: what depends on it is taken in relation to NC, the
    broker without a cache, of the same play.
    """

    def __init__(self, rows: Rows) -> None:
        self.table = pd.DataFrame(rows)
        usual = [one for one in rows if one["cap_s"] == CAP_S]
        self._near = {(one["policy"], one["budget"]): one for one in usual if not one["delay_ms"]}
        self._far = {(one["policy"], one["budget"]): one for one in usual if one["delay_ms"]}
        self._none = {one["play"]: one for one in rows if one["policy"] == "nc" and not one["delay_ms"]}
        self.policies = [one for one in POLICIES if any(one == policy for policy, _ in self._near)]
        self.sizes = sorted({int(str(size)) for policy, size in self._near if policy != "nc"})

    def of(self, what: str, policy: str, size: int = 0) -> float:
        """A measurement of a policy at a size, without delay; NC has no size, and the mean of its plays."""
        if policy == "nc":
            return fmean(_value(one[what]) for one in self._none.values())
        return _value(self._near[policy, size][what])

    def share(self, what: str, policy: str, size: int) -> float:
        """The same as a share of what NC has in the same play."""
        one = self._near[policy, size]
        return _value(one[what]) / _value(self._none[one["play"]][what])

    def cases(self) -> list[tuple[str, int]]:
        """All policies at all sizes."""
        return [(policy, size) for policy in self.policies for size in self.sizes]

    def far(self, what: str, policy: str, size: int = 0) -> float | None:
        """The same with a delay, if it was played."""
        one = self._far.get((policy, size))
        return None if one is None else _value(one[what])

    def delay_ms(self) -> float:
        """The delay that was injected; 0 if none was."""
        return float(self.table["delay_ms"].max())


def claims(measured: Measured) -> list[Claim]:
    """Every claim of section VI, in the paper's order."""
    return [
        *_on_caching(measured),
        *_on_size(measured),
        *_on_policies(measured),
        *_on_small_cache(measured),
        *_on_far_cluster(measured),
    ]


def _on_caching(m: Measured) -> list[Claim]:
    told = []
    for name, what, text in (
        ("latency", "latency_ms", "Any cache has a lower subscriber latency than none."),
        ("bytes", "fetched_bytes", "Any cache has fewer bytes fetched from the data cluster than none."),
    ):
        over = {case: m.share(what, *case) for case in m.cases()}
        worst = max(over, key=lambda case: over[case])
        best = min(over, key=lambda case: over[case])
        told.append(
            Claim(
                f"VI-cache-{name}",
                text,
                "significantly reduces",
                f"of NC's in its play: {over[best]:.0%} ({_case(best)}) to {over[worst]:.0%} ({_case(worst)})",
                all(value < 1 for value in over.values()),
            )
        )
    return told


def _on_size(m: Measured) -> list[Claim]:
    if len(m.sizes) < 2:
        return []
    told = []
    parts = (("hit ratio", "hit_ratio"), ("latency", "latency_ms"), ("traffic", "fetched_bytes"))
    for name, what in parts:
        sign, look, goes = (1, m.of, "increases") if what == "hit_ratio" else (-1, m.share, "declines")
        steps = [(policy, a, b) for policy in m.policies for a, b in itertools.pairwise(m.sizes)]
        wrong = [(p, a, b) for p, a, b in steps if sign * (look(what, p, b) - look(what, p, a)) < 0]
        ends = [
            f"{LABELS[p]} {look(what, p, m.sizes[0]):.1%} to {look(what, p, m.sizes[-1]):.1%}" for p in m.policies
        ]
        against = f"; against it {', '.join(f'{LABELS[p]} {_size(a)} to {_size(b)}' for p, a, b in wrong)}"
        told.append(
            Claim(
                f"VI-size-{name.replace(' ', '-')}",
                f"As the cache grows, {name} {goes} in all caching schemes.",
                goes,
                f"from {_size(m.sizes[0])} to {_size(m.sizes[-1])}{'' if sign > 0 else ', of NC'}: "
                f"{', '.join(ends)}{against if wrong else ''}",
                not wrong,
            )
        )
    return told


def _on_policies(m: Measured) -> list[Claim]:
    told = []
    if {"lsc", "lru"} <= set(m.policies):
        lead = {size: m.of("hit_ratio", "lsc", size) - m.of("hit_ratio", "lru", size) for size in m.sizes}
        late = {
            size: m.of("hit_ratio_late", "lsc", size) - m.of("hit_ratio_late", "lru", size) for size in m.sizes
        }
        told.append(
            Claim(
                "VI-lsc-lru",
                "LSC is way better than LRU in hit ratio.",
                "way better",
                f"LSC less LRU in points: {_points(lead)}; late retrievals alone: {_points(late)} "
                "(holds: ahead by more than half a point at every size but those where both hit 99 %)",
                all(lead[size] > TIE for size in m.sizes if m.of("hit_ratio", "lru", size) < 0.99),
            )
        )
    if "ttl" in m.policies:
        others = [policy for policy in m.policies if policy != "ttl"]
        small = m.sizes[: max(1, len(m.sizes) // 2)]
        best = {size: max(others, key=lambda p: m.of("hit_ratio", p, size)) for size in small}
        ahead = {size: m.of("hit_ratio", "ttl", size) - m.of("hit_ratio", best[size], size) for size in small}
        told.append(
            Claim(
                "VI-ttl-small",
                "TTL does slightly better than the others at the lower cache sizes.",
                "slightly better",
                "TTL less the best other in points: "
                + ", ".join(f"{100 * ahead[s]:+.1f} ({LABELS[best[s]]}) at {_size(s)}" for s in small),
                all(value > 0 for value in ahead.values()),
            )
        )
    return told


def _on_small_cache(m: Measured) -> list[Claim]:
    if SMALL not in m.sizes:
        return []
    hit = {policy: m.of("hit_ratio", policy, SMALL) for policy in m.policies}
    drop = {policy: 1 - m.share("latency_ms", policy, SMALL) for policy in m.policies}
    return [
        Claim(
            "VI-100KB-hit-ratio",
            "A cache of 100 KB is enough for a hit ratio above 50 %.",
            "above 50 %",
            _range(hit),
            min(hit.values()) > 0.5,
        ),
        Claim(
            "VI-100KB-latency",
            "A cache of 100 KB is enough to halve the latency.",
            "around 50 % drop",
            f"drop: {_range(drop)} (holds: at least 40 % with every policy)",
            min(drop.values()) >= 0.4,
        ),
    ]


def _on_far_cluster(m: Measured) -> list[Claim]:
    """The latencies once more, where the cluster is as far away as the paper's simulation has it."""
    none = m.far("latency_ms", "nc")
    found = {policy: m.far("latency_ms", policy, SMALL) for policy in m.policies}
    drop = {policy: 1 - value / none for policy, value in found.items() if value is not None and none}
    if not drop or none is None:
        return []
    return [
        Claim(
            "VI-100KB-latency-far",
            f"The same, with {m.delay_ms():.0f} ms between broker and cluster.",
            "around 50 % drop",
            f"NC {none:,.0f} ms; drop: {_range(drop)} (holds: at least 40 %)",
            min(drop.values()) >= 0.4,
        )
    ]


def _value(measured: object) -> float:
    """A number; what nobody was there to measure is not a number."""
    return math.nan if measured is None else float(str(measured))


def _case(case: tuple[str, int]) -> str:
    return f"{LABELS[case[0]]}, {_size(case[1])}"


def _size(size: int) -> str:
    return f"{size / 1000:g} KB"


def _points(lead: Mapping[int, float]) -> str:
    return ", ".join(f"{100 * value:+.1f} at {_size(size)}" for size, value in lead.items())


def _range(of: Mapping[str, float]) -> str:
    low, high = min(of, key=lambda p: of[p]), max(of, key=lambda p: of[p])
    if low == high:
        return f"{of[low]:.0%} ({LABELS[low]})"
    return f"{of[low]:.0%} ({LABELS[low]}) to {of[high]:.0%} ({LABELS[high]})"
