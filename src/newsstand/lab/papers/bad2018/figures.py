"""Figures 3 to 5 of Uddin & Venkatasubramanian (2018), drawn from the simulation, and their tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from newsstand.lab.papers.bad2018.experiment import AT_EQUAL_B, LSC, TTL
from newsstand.lab.papers.bad2018.measurements import ResultCacheMeasurements
from newsstand.lab.reporting.figures import Look, legend, means, panels, save_all
from newsstand.lab.reporting.report import cells
from newsstand.lab.reporting.statistics import Interval

BLUE = "#0072b2"
LOOKS: dict[str, Look] = {
    "LRU": (BLUE, "o", "-"),
    "LSC": ("#009e73", "s", "-"),
    "LSCz": ("#e69f00", "^", "-"),
    "LSD": ("#cc79a7", "v", "--"),
    "EXP": ("#555555", "X", "-"),
    "TTL": ("#d55e00", "D", "-"),
}
"""Colour (Okabe and Ito's, distinct for colour-blind readers), marker and dashes of each scheme."""
OTHER_LOOKS = (("#56b4e9", "P", ":"), ("#000000", "*", ":"), ("#8c6bb1", "<", ":"), ("#b3a100", ">", ":"))
"""The looks of schemes that are not in the paper, in their order."""

MEASURES = {
    "hit_ratio": ("hit ratio", 1.0),
    "hit_ratio_late": ("hit ratio, late retrievals", 1.0),
    "hit_bytes": ("hit bytes (GB)", 1e-9),
    "miss_bytes": ("miss bytes (GB)", 1e-9),
    "fetch_bytes": ("fetch (GB)", 1e-9),
    "vol_bytes": ("Vol (GB)", 1e-9),
    "mean_latency_s": ("latency (s)", 1.0),
    "mean_hold_s": ("holding time (s)", 1.0),
    "mean_hold_dropped_s": ("holding time, dropped (s)", 1.0),
    "mean_ttl_insert_s": ("time to live (s)", 1.0),
    "avg_bytes": ("average size (MB)", 1e-6),
    "max_bytes": ("largest size (MB)", 1e-6),
    "sum_rho_T": ("sum of rho T (MB)", 1e-6),
}
"""The name of each measure, and the factor to its unit."""


def tables(measured: ResultCacheMeasurements) -> dict[str, pd.DataFrame]:
    """Return every number behind the figures: means over the seeds, half widths of their 95 % intervals."""
    keys = measured.results.runs[["variant", "scheme", "megabytes"]].drop_duplicates()
    rows = []
    for variant, scheme, size in keys.itertuples(index=False):
        row: dict[str, object] = {"variant": variant, "scheme": scheme, "megabytes": size}
        row["runs"] = len(measured.of("hit_ratio", scheme, size, variant))
        for what, (name, factor) in MEASURES.items():
            row |= cells(name, measured.of(what, scheme, size, variant).interval, factor)
        rows.append(row)
    return {
        "simulation": pd.DataFrame(rows),
        "simulation_runs": measured.results.runs,
        "simulation_caches": measured.results.caches,
    }


def draw(measured: ResultCacheMeasurements, folder: Path) -> dict[str, Path]:
    """Draw every figure as SVG and PNG; return the SVG of each."""
    figures = {
        "fig3": _over_sizes(measured, ("hit_ratio", "hit_bytes", "miss_bytes")),
        "fig3_late": _late(measured),
        "fig4": _over_sizes(measured, ("fetch_bytes", "mean_latency_s", "mean_hold_s")),
        "fig5a": _cache_sizes(measured),
        "fig5b": _times_to_live(measured),
    }
    return save_all(figures, folder)


def _look(measured: ResultCacheMeasurements, label: str) -> Look:
    beyond = [one for one in measured.schemes if one not in LOOKS]
    return LOOKS.get(label) or OTHER_LOOKS[beyond.index(label) % len(OTHER_LOOKS)]


def _line(
    axes: Axes, measured: ResultCacheMeasurements, label: str, of: Sequence[Interval], factor: float
) -> None:
    # Side by side, so that no scheme's interval hides another's.
    step = 0.05 * (measured.sizes[-1] - measured.sizes[0]) / len(measured.sizes)
    beside = step * (measured.schemes.index(label) - (len(measured.schemes) - 1) / 2)
    places = (size + beside for size in measured.sizes)
    means(axes, dict(zip(places, of, strict=True)), label, _look(measured, label), factor)


def _over_sizes(measured: ResultCacheMeasurements, whats: Sequence[str]) -> Figure:
    figure, axes = panels(len(whats), width=4.2, height=3.4)
    for panel, what, letter in zip(axes, whats, "abc", strict=False):
        name, factor = MEASURES[what]
        for label in measured.schemes:
            of = [measured.of(what, label, size).interval for size in measured.sizes]
            # Bytes differ from run to run far more than from scheme to scheme, and for all schemes alike.
            _line(panel, measured, label, of if factor == 1 else [Interval(one.mean) for one in of], factor)
        if what == "fetch_bytes":
            vol = [factor * measured.mean("vol_bytes", measured.schemes[0], size) for size in measured.sizes]
            panel.plot(measured.sizes, vol, "k-.", lw=1.3, label="Vol")
            panel.set_ylim(bottom=0)
        name_axes(panel, measured, f"({letter})", name)
    legend(figure, axes)
    return figure


def _late(measured: ResultCacheMeasurements) -> Figure:
    figure, axes = panels(2, width=5.6, height=3.4)
    sizes = measured.sizes
    base = "LRU" if "LRU" in measured.schemes else measured.schemes[0]
    for label in measured.schemes:
        _line(axes[0], measured, label, [measured.of("hit_ratio_late", label, size).interval for size in sizes], 1)
        _line(axes[1], measured, label, [measured.less("hit_ratio", label, base, size) for size in sizes], 100)
    name_axes(axes[0], measured, "late retrievals alone", "hit ratio")
    name_axes(axes[1], measured, "all retrievals, seed by seed", f"hit ratio less {base}'s (points)")
    legend(figure, axes)
    return figure


def _cache_sizes(measured: ResultCacheMeasurements) -> Figure:
    figure, axes = panels(2, width=5.6, height=3.6)
    budgets = {size: measured.experiment.bytes_of(size) for size in measured.sizes}
    looks: dict[tuple[str, str], dict[str, Any]] = {
        ("TTL", "max_bytes"): {"label": "TTL, largest", "marker": "D", "ls": "--", "mfc": "white"},
        ("TTL", "avg_bytes"): {"label": "TTL, average", "marker": "D"},
        ("LSC", "max_bytes"): {"label": "LSC, largest", "marker": "s", "ls": "--", "mfc": "white"},
        ("LSC", "avg_bytes"): {"label": "LSC, average", "marker": "s"},
        ("TTL", "sum_rho_T"): {
            "label": "Σ ρᵢTᵢ",
            "marker": "+",
            "ls": "",
            "color": "#0072b2",
            "ms": 9,
            "mew": 1.6,
        },
    }
    for panel, is_share in zip(axes, (False, True), strict=True):
        unit = budgets if is_share else dict.fromkeys(budgets, 1_000_000)
        panel.plot(measured.sizes, [budgets[b] / unit[b] for b in budgets], "k-", lw=1, label="allowed")
        for (scheme, what), look in looks.items():
            if scheme in measured.schemes:
                values = [measured.mean(what, scheme, size) / unit[size] for size in measured.sizes]
                usual: dict[str, Any] = {"color": LOOKS[scheme][0], "ms": 4.5, "lw": 1.3}
                panel.plot(measured.sizes, values, **usual | look)
        name_axes(panel, measured, "", "share of the allowed size" if is_share else "size of all caches (MB)")
        panel.set_ylim(bottom=0.9 if is_share else 0)
    legend(figure, axes)
    return figure


def _times_to_live(measured: ResultCacheMeasurements) -> Figure:
    figure, axes = panels(2, width=4.6, height=4.1)
    caches = measured.results.caches
    drawn = []
    for panel, scheme in zip(axes, (TTL, LSC), strict=True):
        panel.set(title=scheme.label, xscale="log", yscale="log")
        panel.set(xlabel="time to live, mean of a cache (s)", ylabel="holding time of dropped objects (s)")
        if not len(caches):
            continue
        of = caches[(caches["scheme"] == scheme.label) & (caches["hold_dropped_ms"] > 0)]
        ttl, held = of["ttl_put_ms"] / of["put"] / 1000, of["hold_dropped_ms"] / of["dropped"] / 1000
        colour, marker, _ = LOOKS[scheme.label]
        panel.scatter(ttl, held, s=9, color=colour, marker=marker, alpha=0.45, lw=0)
        drawn += [*ttl, *held]
    ends = (0.8 * min(drawn), 1.25 * max(drawn)) if drawn else (1, 10)
    for panel in axes:
        panel.plot(ends, ends, "k-", lw=0.8)
        panel.set(xlim=ends, ylim=ends, aspect="equal")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter("{x:g}")
    return figure


def name_axes(axes: Axes, measured: ResultCacheMeasurements, title: str, name: str) -> None:
    """Name the axes of a measurement over cache sizes."""
    by = f"; run with 1/{measured.experiment.scale}" if measured.experiment.scale > 1 else ""
    axes.set(title=title, xlabel=f"allowed cache size (MB{by})", ylabel=name)
    if len(measured.sizes) <= 5:
        axes.set_xticks(measured.sizes)


def variants_table(measured: ResultCacheMeasurements) -> pd.DataFrame:
    """Return hit ratios under other readings of section V, beside those of the setting, at one size."""
    names = [AT_EQUAL_B, *(variant.name for variant in measured.experiment.variants)]
    texts = {variant.name: variant.text for variant in measured.experiment.variants}
    runs = measured.results.runs
    seeds = measured.experiment.seeds[: measured.experiment.seeds_of_variants]
    runs = runs[(runs["megabytes"] == measured.experiment.middle) & runs["seed"].isin(seeds)]
    rows = []
    for name in names:
        row = {"variant": name, "what": texts.get(name, "the setting of the figures, same seeds")}
        for label in measured.of_paper:
            found = runs[(runs["variant"] == name) & (runs["scheme"] == label)]
            row[label] = f"{found['hit_ratio'].mean():.4f}" if len(found) else ""
        rows.append(row)
    return pd.DataFrame(rows)
