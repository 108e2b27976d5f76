"""Section VI of Uddin and Venkatasubramanian (2018), on our platform: measurements, verdicts, tables and figures.

A measurement is a row for each broker: its policy, the bytes of its caches (`budget`), the delay that was injected
between it and the data cluster (`delay_ms`), and what its subscribers and its own metrics say.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import pandas as pd
from matplotlib.figure import Figure

from newsstand.lab.papers.bad2018.report import ReportPart, write_part
from newsstand.lab.reporting.claims import Claim, Finding, judge_all, report_text
from newsstand.lab.reporting.figures import COLOURS, panels, save_all
from newsstand.lab.reporting.report import ReportSection, ReportTable, captioned, records, write_tables

POLICIES = ("lru", "lsc", "lscz", "lsd", "exp", "ttl")
LABELS = {"nc": "NC", "lru": "LRU", "lsc": "LSC", "lscz": "LSCz", "lsd": "LSD", "exp": "EXP", "ttl": "TTL"}
CAP_S = 3600.0
"""Seconds of the trace that an object may live at most; brokers with another cap are not compared."""

SMALL = 100_000
"""The cache that the paper calls small."""

TIE = 0.005
"""Hit ratios that differ by less, half a point, are equal: two plays of one scheme differ by so much."""

Rows = Sequence[Mapping[str, object]]


class PrototypeMeasurements:
    """Measurements by policy and size.

    The machine may be busier in one play than in another: what depends on it is compared with NC, the broker
    without a cache, of the same play.
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
        """Return a measurement of a policy at a size, without delay; NC has no size, and the mean of its plays."""
        if policy == "nc":
            return fmean(_value(one[what]) for one in self._none.values())
        return _value(self._near[policy, size][what])

    def share(self, what: str, policy: str, size: int) -> float:
        """Return the same as a share of what NC has in the same play."""
        one = self._near[policy, size]
        return _value(one[what]) / _value(self._none[one["play"]][what])

    def far(self, what: str, policy: str, size: int = 0) -> float | None:
        """Return the same with a delay, if it was played."""
        one = self._far.get((policy, size))
        return None if one is None else _value(one[what])

    def delay_ms(self) -> float:
        """Return the delay that was injected; 0 if none was."""
        return float(self.table["delay_ms"].max())


def prototype_claims(measured: PrototypeMeasurements) -> list[Claim]:
    """Return every claim of section VI that the plays allow to judge, in the paper's order."""
    return judge_all("bad2018", (_on_caching, _on_size, _on_policies, _on_small_cache, _on_far_cluster), measured)


def _on_caching(m: PrototypeMeasurements) -> Iterator[Finding]:
    for name, what in (("latency", "latency_ms"), ("bytes", "fetched_bytes")):
        over = {(p, size): m.share(what, p, size) for p, size in itertools.product(m.policies, m.sizes)}
        ends = " to ".join(
            f"{over[policy, size]:.0%} ({LABELS[policy]}, {_size(size)})"
            for policy, size in (pick(over, key=over.__getitem__) for pick in (min, max))
        )
        yield Finding(f"VI-cache-{name}", f"of NC's in its play: {ends}", max(over.values()) < 1)


def _on_size(m: PrototypeMeasurements) -> Iterator[Finding]:
    if len(m.sizes) < 2:
        return
    first, last = m.sizes[0], m.sizes[-1]
    for name, what in (("hit-ratio", "hit_ratio"), ("latency", "latency_ms"), ("traffic", "fetched_bytes")):
        sign, look, of_nc = (1, m.of, "") if what == "hit_ratio" else (-1, m.share, ", of NC")
        wrong = [
            f"{LABELS[policy]} {_size(a)} to {_size(b)}"
            for policy, (a, b) in itertools.product(m.policies, itertools.pairwise(m.sizes))
            if sign * (look(what, policy, b) - look(what, policy, a)) < 0
        ]
        ends = ", ".join(
            f"{LABELS[p]} {look(what, p, first):.1%} to {look(what, p, last):.1%}" for p in m.policies
        )
        against = f"; against it {', '.join(wrong)}" if wrong else ""
        yield Finding(
            f"VI-size-{name}", f"from {_size(first)} to {_size(last)}{of_nc}: {ends}{against}", not wrong
        )


def _on_policies(m: PrototypeMeasurements) -> Iterator[Finding]:
    if {"lsc", "lru"} <= set(m.policies):
        lead, late = (
            {size: m.of(what, "lsc", size) - m.of(what, "lru", size) for size in m.sizes}
            for what in ("hit_ratio", "hit_ratio_late")
        )
        yield Finding(
            "VI-lsc-lru",
            f"LSC less LRU in points: {_points(lead)}; late retrievals alone: {_points(late)} "
            "(holds: ahead by more than half a point at every size but those where both hit 99 %)",
            all(lead[size] > TIE for size in m.sizes if m.of("hit_ratio", "lru", size) < 0.99),
        )
    if "ttl" in m.policies:
        others = [policy for policy in m.policies if policy != "ttl"]
        small = m.sizes[: max(1, len(m.sizes) // 2)]
        best = {size: max(others, key=lambda p: m.of("hit_ratio", p, size)) for size in small}
        ahead = {size: m.of("hit_ratio", "ttl", size) - m.of("hit_ratio", best[size], size) for size in small}
        yield Finding(
            "VI-ttl-small",
            "TTL less the best other in points: "
            + ", ".join(f"{100 * ahead[s]:+.1f} ({LABELS[best[s]]}) at {_size(s)}" for s in small),
            all(value > 0 for value in ahead.values()),
        )


def _on_small_cache(m: PrototypeMeasurements) -> Iterator[Finding]:
    if SMALL in m.sizes:
        hit = {policy: m.of("hit_ratio", policy, SMALL) for policy in m.policies}
        drop = {policy: 1 - m.share("latency_ms", policy, SMALL) for policy in m.policies}
        yield Finding("VI-100KB-hit-ratio", _range(hit), min(hit.values()) > 0.5)
        text = f"drop: {_range(drop)} (holds: at least 40 % with every policy)"
        yield Finding("VI-100KB-latency", text, min(drop.values()) >= 0.4)


def _on_far_cluster(m: PrototypeMeasurements) -> Iterator[Finding]:
    """Judge the latencies once more, where the cluster is as far away as the paper's simulation has it."""
    none = m.far("latency_ms", "nc")
    found = {policy: m.far("latency_ms", policy, SMALL) for policy in m.policies}
    drop = {policy: 1 - value / none for policy, value in found.items() if value is not None and none}
    if drop:
        text = f"{m.delay_ms():.0f} ms: NC {none:,.0f} ms; drop: {_range(drop)} (holds: at least 40 %)"
        yield Finding("VI-100KB-latency-far", text, min(drop.values()) >= 0.4)


def _value(measured: object) -> float:
    """Return a number; NaN if nothing was measured."""
    return math.nan if measured is None else float(str(measured))


def _size(size: int) -> str:
    return f"{size / 1000:g} KB"


def _points(lead: Mapping[int, float]) -> str:
    return ", ".join(f"{100 * value:+.1f} at {_size(size)}" for size, value in lead.items())


def _range(of: Mapping[str, float]) -> str:
    low, high = (
        f"{of[policy]:.0%} ({LABELS[policy]})"
        for policy in (min(of, key=of.__getitem__), max(of, key=of.__getitem__))
    )
    return low if low == high else f"{low} to {high}"


COLUMNS = (
    *("play", "policy", "budget", "delay_ms", "cap_s", "hit_ratio", "hit_ratio_online", "hit_ratio_late"),
    *("latency_ms", "latency_p50_ms", "latency_p99_ms", "cluster_wait_ms"),
    *("fetched_bytes", "pulled_bytes", "miss_bytes", "hit_bytes"),
    *("online", "late", "delivered_p50_ms", "delivered_p99_ms", "hits", "misses", "dropped", "consumed"),
    *("cached_bytes", "frontends", "backends", "lag_p99_ms", "troubles"),
)
SHOWN = {
    "policy": ("policy", 1, ""),
    "budget": ("cache KB", 1e-3, "g"),
    "hit_ratio": ("hit ratio", 1, ".3f"),
    "hit_ratio_late": ("late alone", 1, ".3f"),
    "latency_ms": ("latency ms", 1, ".1f"),
    "cluster_wait_ms": ("of it for the cluster ms", 1, ".1f"),
    "pulled_bytes": ("pulled MB", 1e-6, ".2f"),
    "miss_bytes": ("missed MB", 1e-6, ".2f"),
    "fetched_bytes": ("fetched MB", 1e-6, ".2f"),
}
"""The columns for people: title, factor to its unit, and format."""
PANELS = {
    "fig7": (("hit_ratio", "hit ratio"), ("latency_ms", "latency / NC's"), ("fetched_bytes", "bytes / NC's")),
    "late": (("hit_ratio_late", "hit ratio, late alone"), ("cluster_wait_ms", "wait for cluster / NC's")),
}


def write_prototype(rows: Rows, setting: str, command: str, out: Path) -> dict[str, object]:
    """Write tables, figures and the report, with section V if that was simulated; the result for programs."""
    measured = PrototypeMeasurements(rows)
    table = measured.table[list(COLUMNS)]
    is_usual = (table["delay_ms"] == 0) & (table["cap_s"] == CAP_S)
    near, far, short = table[is_usual], table[table["delay_ms"] > 0], table[table["cap_s"] != CAP_S]
    write_tables({"prototype": table}, out)
    drawn = save_all({name: _prototype_figure(measured, name) for name in PANELS}, out / "figures")
    shown = {
        "The prototype: measured": near,
        f"With {measured.delay_ms():.0f} ms between broker and cluster": far,
        f"With times to live of at most {short['cap_s'].max():g} s": short,
    }
    played = ReportSection(
        report_text("bad2018").sections["prototype"].title,
        setting,
        prototype_claims(measured),
        captioned("bad2018", drawn),
        [ReportTable.of(title, prototype_table(part)) for title, part in shown.items() if len(part)],
    )
    return write_part("prototype", ReportPart(command, [played], {"prototype": records(table)}), out)


def prototype_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table for people."""
    found = table[list(SHOWN)].sort_values(["budget", "policy"], kind="stable").copy()
    found["policy"] = [LABELS[policy] for policy in found["policy"]]
    for column, (_, factor, style) in SHOWN.items():
        if style:
            found[column] = [f"{factor * value:{style}}" for value in found[column]]
    return found.rename(columns={column: title for column, (title, *_) in SHOWN.items()})


def _prototype_figure(measured: PrototypeMeasurements, name: str) -> Figure:
    figure, axes = panels(len(PANELS[name]))
    sizes = measured.sizes
    for panel, (what, label) in zip(axes, PANELS[name], strict=True):
        is_ratio = what.startswith("hit_ratio")
        look = measured.of if is_ratio else measured.share
        panel.plot([0], [0.0 if is_ratio else 1.0], "ks", ms=5, label="NC")
        for number, policy in enumerate(measured.policies):
            values = [look(what, policy, size) for size in sizes]
            places = range(1, len(sizes) + 1)
            panel.plot(places, values, "-o", color=COLOURS[number], label=LABELS[policy], ms=4, lw=1.3)
        panel.set_xticks(range(len(sizes) + 1), ["NC", *(f"{size / 1000:g}" for size in sizes)])
        panel.set(xlabel="cache (KB)", ylabel=label)
        panel.set_ylim(bottom=0)
    axes[0].legend(fontsize=7)
    return figure
