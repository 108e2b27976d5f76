"""Figures 3 to 5 of Uddin & Venkatasubramanian (2018), drawn from the simulation, and their tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from newsstand.lab.bad2018_simulation import AT_EQUAL_B, LSC, TTL
from newsstand.lab.bad2018_simulation_measured import Measured
from newsstand.lab.figures import Look, legend, means, panels, save
from newsstand.lab.intervals import Interval

LOOKS: dict[str, Look] = {
    "LRU": ("#0072b2", "o", "-"),
    "LSC": ("#009e73", "s", "-"),
    "LSCz": ("#e69f00", "^", "-"),
    "LSD": ("#cc79a7", "v", "--"),
    "EXP": ("#555555", "X", "-"),
    "TTL": ("#d55e00", "D", "-"),
}
"""Colour (Okabe and Ito's, which nobody takes for each other), marker and dashes of each scheme."""
OTHER_LOOKS = (("#56b4e9", "P", ":"), ("#000000", "*", ":"), ("#8c6bb1", "<", ":"), ("#b3a100", ">", ":"))
"""Of schemes that are not in the paper, in their order."""

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
"""What is measured: its name, and by what it is multiplied to be in that unit."""


def tables(measured: Measured) -> dict[str, pd.DataFrame]:
    """Every number behind the figures: means over the seeds and half widths of their 95 % intervals."""
    keys = measured.results.runs[["variant", "scheme", "megabytes"]].drop_duplicates()
    rows = []
    for variant, scheme, size in keys.itertuples(index=False):
        row: dict[str, object] = {"variant": variant, "scheme": scheme, "megabytes": size}
        row["runs"] = len(measured.values("hit_ratio", scheme, size, variant))
        for what, (name, factor) in MEASURES.items():
            of = measured.of(what, scheme, size, variant)
            row |= {name: factor * of.mean, f"{name} ±": factor * of.half}
        rows.append(row)
    return {
        "simulation": pd.DataFrame(rows),
        "simulation_runs": measured.results.runs,
        "simulation_caches": measured.results.caches,
    }


def draw(measured: Measured, folder: Path) -> dict[str, Path]:
    """Draw every figure as SVG and PNG; returns the SVG of each."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "fig3": _over_sizes(measured, ("hit_ratio", "hit_bytes", "miss_bytes")),
        "fig3_late": _late(measured),
        "fig4": _over_sizes(measured, ("fetch_bytes", "mean_latency_s", "mean_hold_s")),
        "fig5a": _cache_sizes(measured),
        "fig5b": _times_to_live(measured),
    }
    return {name: save(figure, folder / name)[0] for name, figure in figures.items()}


def _look(measured: Measured, label: str) -> Look:
    beyond = [one for one in measured.schemes if one not in LOOKS]
    return LOOKS.get(label) or OTHER_LOOKS[beyond.index(label) % len(OTHER_LOOKS)]


def _line(axes: Axes, measured: Measured, label: str, of: Sequence[Interval], factor: float) -> None:
    # Side by side, so that no scheme's interval hides another's.
    step = 0.05 * (measured.sizes[-1] - measured.sizes[0]) / len(measured.sizes)
    beside = step * (measured.schemes.index(label) - (len(measured.schemes) - 1) / 2)
    places = (size + beside for size in measured.sizes)
    means(axes, dict(zip(places, of, strict=True)), label, _look(measured, label), factor)


def _over_sizes(measured: Measured, whats: Sequence[str]) -> Figure:
    figure, axes = panels(len(whats), width=4.2, height=3.4)
    for panel, what, letter in zip(axes, whats, "abc", strict=False):
        name, factor = MEASURES[what]
        for label in measured.schemes:
            of = [measured.of(what, label, size) for size in measured.sizes]
            # Bytes differ from run to run far more than from scheme to scheme, and for all schemes alike.
            _line(panel, measured, label, of if factor == 1 else [Interval(one.mean) for one in of], factor)
        if what == "fetch_bytes":
            vol = [factor * measured.mean("vol_bytes", measured.schemes[0], size) for size in measured.sizes]
            panel.plot(measured.sizes, vol, "k-.", lw=1.3, label="Vol")
            panel.set_ylim(bottom=0)
        name_axes(panel, measured, f"({letter})", name)
    legend(figure, axes)
    return figure


def _late(measured: Measured) -> Figure:
    figure, axes = panels(2, width=5.6, height=3.4)
    sizes = measured.sizes
    base = "LRU" if "LRU" in measured.schemes else measured.schemes[0]
    for label in measured.schemes:
        _line(axes[0], measured, label, [measured.of("hit_ratio_late", label, size) for size in sizes], 1)
        _line(axes[1], measured, label, [measured.less("hit_ratio", label, base, size) for size in sizes], 100)
    name_axes(axes[0], measured, "late retrievals alone", "hit ratio")
    name_axes(axes[1], measured, "all retrievals, seed by seed", f"hit ratio less {base}'s (points)")
    legend(figure, axes)
    return figure


def _cache_sizes(measured: Measured) -> Figure:
    figure, axes = panels(2, width=5.6, height=3.6)
    sizes = measured.sizes
    budgets = [measured.experiment.bytes_of(size) / 1e6 for size in sizes]
    drawn = [
        ("TTL", "max_bytes", "TTL, largest", "D", "--"),
        ("TTL", "avg_bytes", "TTL, average", "D", "-"),
        ("LSC", "max_bytes", "LSC, largest", "s", "--"),
        ("LSC", "avg_bytes", "LSC, average", "s", "-"),
    ]
    for panel, is_share in zip(axes, (False, True), strict=True):
        panel.plot(sizes, [1.0] * len(sizes) if is_share else budgets, "k-", lw=1, label="allowed")
        for label, what, text, marker, dashes in drawn:
            if label in measured.schemes:
                values = [1e-6 * measured.mean(what, label, size) for size in sizes]
                shown = [value / budget for value, budget in zip(values, budgets, strict=True)]
                colour = LOOKS[label][0]
                panel.plot(
                    sizes,
                    shown if is_share else values,
                    color=colour,
                    marker=marker,
                    ls=dashes,
                    ms=4.5,
                    lw=1.3,
                    mfc="white" if dashes == "--" else colour,
                    label=text,
                )
        if "TTL" in measured.schemes:
            expected = [1e-6 * measured.mean("sum_rho_T", "TTL", size) for size in sizes]
            shown = [value / budget for value, budget in zip(expected, budgets, strict=True)]
            panel.plot(sizes, shown if is_share else expected, "+", color="#0072b2", ms=9, mew=1.6, label="Σ ρᵢTᵢ")
        name_axes(panel, measured, "", "share of the allowed size" if is_share else "size of all caches (MB)")
        panel.set_ylim(bottom=0.9 if is_share else 0)
    legend(figure, axes)
    return figure


def _times_to_live(measured: Measured) -> Figure:
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


def name_axes(axes: Axes, measured: Measured, title: str, name: str) -> None:
    """Over cache sizes, whatever is measured."""
    by = f"; run with 1/{measured.experiment.scale}" if measured.experiment.scale > 1 else ""
    axes.set(title=title, xlabel=f"allowed cache size (MB{by})", ylabel=name)
    if len(measured.sizes) <= 5:
        axes.set_xticks(measured.sizes)


def variants_table(measured: Measured) -> pd.DataFrame:
    """Hit ratios under other readings of section V, beside those of the setting, at one size."""
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
