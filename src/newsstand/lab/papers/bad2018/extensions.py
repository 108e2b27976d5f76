"""Policies that Uddin & Venkatasubramanian (2018) do not have, in their setting, beside TTL, LSC and the bound.

What is slow is run with few seeds and sizes. Its differences from TTL are taken within the runs that both have,
and its levels are TTL's mean over all runs plus that difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from newsstand.lab.papers.bad2018.claims import SchemeLead
from newsstand.lab.papers.bad2018.experiment import AT_EQUAL_B, BOUND, LSC, TTL
from newsstand.lab.papers.bad2018.figures import LOOKS, MEASURES, name_axes
from newsstand.lab.papers.bad2018.measurements import ResultCacheMeasurements
from newsstand.lab.reporting.claims import Claim, report_text
from newsstand.lab.reporting.figures import legend, means, panels, save
from newsstand.lab.reporting.report import ReportSection, ReportTable, captioned
from newsstand.lab.reporting.statistics import Interval

OTHER_LOOKS = (
    ("#56b4e9", "P", "-"),
    ("#8c6bb1", "<", "-"),
    ("#b3006b", "*", "-"),
    ("#b3a100", "o", "--"),
    ("#66a61e", ">", "--"),
)
BETTER = (
    ("hit_ratio", "hit-ratio", "a higher hit ratio"),
    ("mean_latency_s", "latency", "a lower latency"),
    ("fetch_bytes", "fetch", "fewer bytes fetched"),
)
"""Measures by which a policy may beat TTL: field, name in the id of the claim, text."""


def section(measured: ResultCacheMeasurements, folder: Path) -> ReportSection | None:
    """Return their section; None unless TTL, which they are compared with, and one of them were run."""
    labels = ran(measured)
    if TTL.label not in measured.of_paper or not labels:
        return None
    text = report_text("bad2018").sections["beyond"]
    return ReportSection(
        text.title,
        text.describe(slow=_slow(measured)),
        claims(measured),
        captioned("bad2018", {"beyond": save(_figure(measured, labels), folder / "beyond")[0]}),
        [ReportTable.of("Beyond the paper: measured, and how far from the bound", table(measured))],
    )


def ran(measured: ResultCacheMeasurements) -> list[str]:
    """Return the policies that were run."""
    labels = [scheme.label for scheme in measured.experiment.beyond]
    return [label for label in labels if measured.sizes_of(label)]


def claims(measured: ResultCacheMeasurements) -> list[Claim]:
    """Return the claims that a policy beats TTL."""
    leads = {
        f"{label} has {better} than TTL at every cache size.": SchemeLead(
            f"beyond-{label}-{name}", what, label, (TTL.label,), less=what != "hit_ratio"
        )
        for label in ran(measured)
        for what, name, better in BETTER
    }
    return [
        Claim(finding.id, text, "not in the paper", finding.measured, finding.holds)
        for text, lead in leads.items()
        for finding in lead(measured)
    ]


def table(measured: ResultCacheMeasurements) -> pd.DataFrame:
    """Return every scheme at every size that it was run with, and the bound."""
    rows = []
    for size in measured.sizes:
        labels = [TTL.label, LSC.label, *ran(measured)]
        rows += [_row(measured, label, size) for label in labels if size in measured.sizes_of(label)]
        if size in measured.sizes_of(BOUND, BOUND):
            rows.append(_row_of_bound(measured, size))
    return pd.DataFrame(rows).fillna("")


def _row(m: ResultCacheMeasurements, label: str, size: int) -> dict[str, object]:
    ttl, has_bound = TTL.label, size in m.sizes_of(BOUND, BOUND)
    late, fetch, latency = (
        m.level(what, label, ttl, size) for what in ("hit_ratio_late", "fetch_bytes", "mean_latency_s")
    )
    below = m.less("hit_ratio", label, BOUND, size, BOUND) if has_bound else Interval(math.nan)
    reached = m.of_bound(label, size) if has_bound else math.nan
    of_fetch = 100 / m.mean("fetch_bytes", ttl, size)

    def over(what: str, factor: float) -> str:
        return "" if label == ttl else m.less(what, label, ttl, size).text(factor)

    return {
        "cache MB": size,
        "scheme": label,
        "runs": len(m.of("hit_ratio", label, size)),
        "hit ratio": f"{m.level('hit_ratio', label, ttl, size).mean:.4f}",
        "less TTL's (points)": over("hit_ratio", 100),
        "late alone": f"{late.mean:.4f}",
        "less the bound (points)": "" if math.isnan(below.mean) else below.text(100),
        "late hits of the bound's": "" if math.isnan(reached) else f"{reached:.0%}",
        "fetched (GB)": f"{1e-9 * fetch.mean:,.0f}" if fetch.mean > 1e11 else f"{1e-9 * fetch.mean:.2f}",
        "less TTL's (%)": over("fetch_bytes", of_fetch),
        "latency (s)": f"{latency.mean:.4f}",
        "less TTL's (ms)": over("mean_latency_s", 1000),
        "average / B": f"{m.share_of_budget('avg_bytes', label, size):.2f}",
        "largest / B": f"{m.share_of_budget('max_bytes', label, size):.2f}",
    }


def _row_of_bound(m: ResultCacheMeasurements, size: int) -> dict[str, object]:
    hit, late = (m.level(what, BOUND, TTL.label, size, BOUND) for what in ("hit_ratio", "hit_ratio_late"))
    return {
        "cache MB": size,
        "scheme": "the bound",
        "runs": len(m.of("hit_ratio", BOUND, size, BOUND)),
        "hit ratio": f"{hit.mean:.4f}",
        "less TTL's (points)": Interval(hit.mean - m.mean("hit_ratio", TTL.label, size), hit.half).text(100),
        "late alone": f"{late.mean:.4f}",
    }


def _figure(measured: ResultCacheMeasurements, labels: Sequence[str]) -> Figure:
    whats = ("hit_ratio", "fetch_bytes", "mean_latency_s")
    figure, axes = panels(len(whats), width=4.2, height=3.6)
    drawn = [label for label in (TTL.label, LSC.label) if measured.sizes_of(label)] + list(labels)
    looks = LOOKS | dict(zip(labels, OTHER_LOOKS * len(labels), strict=False))
    for panel, what in zip(axes, whats, strict=True):
        name, factor = MEASURES[what]
        for label in drawn:
            sizes = measured.sizes_of(label)
            levels = {size: measured.level(what, label, TTL.label, size) for size in sizes}
            means(panel, levels, label, looks[label], factor)
        if what == "hit_ratio" and (sizes := measured.sizes_of(BOUND, BOUND)):
            bound = [measured.level(what, BOUND, TTL.label, size, BOUND).mean for size in sizes]
            panel.plot(sizes, bound, "k:", marker="_", ms=9, lw=1.3, label="the bound")
        name_axes(panel, measured, "", name)
    legend(figure, axes)
    return figure


def _slow(measured: ResultCacheMeasurements) -> str:
    """Describe which schemes were run with fewer seeds or sizes."""
    runs = measured.results.runs
    notes = []
    for scheme in measured.experiment.beyond:
        of = runs[(runs["scheme"] == scheme.label) & (runs["variant"] == AT_EQUAL_B)]
        seeds, sizes = of["seed"].nunique(), of["megabytes"].nunique()
        if len(of) and (seeds < len(measured.experiment.seeds) or sizes < len(measured.sizes)):
            notes.append(f"{scheme.label} was run with {_many(seeds, 'seed')} and {_many(sizes, 'size')}")
    bounds = measured.results.bounds
    if len(bounds) and bounds["seed"].nunique() < len(measured.experiment.seeds):
        notes.append(f"the bound was computed for {_many(bounds['seed'].nunique(), 'seed')}")
    text = "; ".join(notes)
    return f"{text[0].upper()}{text[1:]}, as both take long. " if notes else ""


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
