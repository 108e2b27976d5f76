"""Figures, tables and report of chen2003."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from newsstand.lab.papers.chen2003.claims import claims
from newsstand.lab.papers.chen2003.experiment import (
    BETAS,
    CACHE_SIZES,
    COMPARED,
    DUAL,
    HOURS,
    LABELS,
    QUALITIES,
    TABLE_2,
    TRACES,
    NewsExperiment,
    NewsMeasurements,
    NewsResults,
    TraceName,
)
from newsstand.lab.reporting.claims import report_text
from newsstand.lab.reporting.figures import bars, lines, panels, save_all
from newsstand.lab.reporting.report import ReportSection, ReportTable, captioned, write_report, write_tables

TITLES = {"news": "NEWS (α = 1.5)", "alternative": "ALTERNATIVE (α = 1.0)"}


def tables(results: NewsResults) -> dict[str, pd.DataFrame]:
    """Return every number behind the figures: means and standard deviations over the seeds."""
    runs = results.at_paper_betas()
    keys = ["trace", "sq", "capacity", "policy", "beta"]
    hit = runs.groupby(keys)["hit_ratio"].agg(["mean", "std", "count"]).reset_index()
    beta = results.runs[results.runs["sweep"] == "beta"]
    beta = beta.groupby(["trace", "policy", "capacity", "beta"])["hit_ratio"].agg(["mean", "std"]).reset_index()
    measured = NewsMeasurements(results)
    table_2 = pd.DataFrame(
        [
            {"trace": trace, "policy": policy, "paper": paper, "measured": round(measured.gain(trace, policy), 1)}
            for trace in TRACES
            for policy, paper in TABLE_2[trace].items()
        ]
    )
    hours = results.hours.groupby(["trace", "policy", "beta", "hour"]).sum(numeric_only=True).reset_index()
    hours = hours.drop(columns=["seed", "capacity"])
    return {
        "table2": table_2,
        "beta_sweep": beta,
        "fig3": hit[(hit["sq"] == 1.0) & hit["policy"].isin(["gdstar", *DUAL])],
        "fig4": hit[(hit["sq"] == 1.0) & hit["policy"].isin(COMPARED)],
        "fig5": hit[(hit["capacity"] == 0.05)],
        "fig6_fig7": hours,
    }


def draw(results: NewsResults, folder: Path) -> dict[str, Path]:
    """Draw every figure as SVG and PNG; return the SVG of each."""
    measured = NewsMeasurements(results)
    figures = {
        "beta_sweep": _beta_sweep(results),
        "fig3": _capacity_bars(results, ("gdstar", *DUAL), ("news",)),
        "fig4": _capacity_bars(results, COMPARED, TRACES),
        "fig5": _quality(measured),
        "fig6": _hourly_hits(measured),
        "fig7": _hourly_traffic(measured),
    }
    return save_all(figures, folder)


def _lines_by_trace(
    x: Sequence[float],
    series: Callable[[TraceName], Mapping[str, Sequence[float]]],
    marker: str = "",
    **labels: object,
) -> Figure:
    figure, axes = panels(2)
    for panel, trace in zip(axes, TRACES, strict=True):
        lines(panel, x, series(trace), marker)
        panel.set(title=TITLES[trace], **labels)
    axes[0].legend(fontsize=7)
    return figure


def _beta_sweep(results: NewsResults) -> Figure:
    beta = results.runs[results.runs["sweep"] == "beta"]
    mean = beta.groupby(["trace", "policy", "capacity", "beta"])["hit_ratio"].mean()
    figure, axes = panels(2)
    for panel, trace in zip(axes, TRACES, strict=True):
        series = {
            f"{LABELS[policy]} {capacity:.0%}": [mean.loc[(trace, policy, capacity, b)] for b in BETAS]
            for policy in ("gdstar", "sg1", "sg2")
            for capacity in CACHE_SIZES
        }
        lines(panel, BETAS, series, marker=".")
        panel.set_xscale("log", base=2)
        panel.set_xticks(BETAS, [f"{b:g}" for b in BETAS])
        panel.set(title=TITLES[trace], xlabel="β", ylabel="hit ratio")
    axes[1].legend(fontsize=6, ncols=3)
    return figure


def _capacity_bars(results: NewsResults, policies: tuple[str, ...], traces: tuple[str, ...]) -> Figure:
    runs = results.at_paper_betas()
    of = runs[runs["sq"] == 1.0].groupby(["trace", "policy", "capacity"])["hit_ratio"]
    mean, deviation = of.mean(), of.std().fillna(0.0)
    figure, axes = panels(len(traces))
    for panel, trace in zip(axes, traces, strict=True):
        bars(
            panel,
            [f"{c:.0%}" for c in CACHE_SIZES],
            {LABELS[p]: [mean.loc[(trace, p, c)] for c in CACHE_SIZES] for p in policies},
            {LABELS[p]: [deviation.loc[(trace, p, c)] for c in CACHE_SIZES] for p in policies},
        )
        panel.set(title=TITLES[trace], xlabel="capacity", ylabel="hit ratio", ylim=(0, 1))
    axes[0].legend(fontsize=7, ncols=2)
    return figure


def _quality(m: NewsMeasurements) -> Figure:
    return _lines_by_trace(
        QUALITIES,
        lambda trace: {LABELS[p]: [m.hit(trace, p, sq=q) for q in QUALITIES] for p in COMPARED},
        marker="o",
        xlabel="subscription quality",
        ylabel="hit ratio",
        xticks=QUALITIES,
    )


def _hourly_hits(m: NewsMeasurements) -> Figure:
    def series(trace: TraceName) -> dict[str, list[float]]:
        hourly = {LABELS[p]: m.hourly(trace, p) for p in ("gdstar", "sub", "sg2")}
        return {label: list(counts["hits"] / counts["requests"]) for label, counts in hourly.items()}

    return _lines_by_trace(range(HOURS), series, xlabel="hour", ylabel="hit ratio of the hour", ylim=(0, 1))


def _hourly_traffic(measured: NewsMeasurements) -> Figure:
    figure, axes = panels(2)
    for panel, scheme in zip(axes, ("always", "needed"), strict=True):
        series = {}
        for policy in ("gdstar", "sub", "sg2"):
            hourly = measured.hourly("news", policy)
            series[LABELS[policy]] = list(hourly["fetched_pages"] + hourly[f"pushed_pages_{scheme}"])
        lines(panel, range(HOURS), series)
        name = "Always Pushing" if scheme == "always" else "Pushing When Necessary"
        panel.set(title=f"NEWS, {name}", xlabel="hour", ylabel="pages per hour, all seeds")
    top = max(panel.get_ylim()[1] for panel in axes)
    for panel in axes:
        panel.set_ylim(0, top)
    axes[0].legend(fontsize=7)
    return figure


def write(results: NewsResults, experiment: NewsExperiment, command: str, out: Path) -> dict[str, object]:
    """Write tables, figures and the report; return the result for programs."""
    drawn, written = draw(results, out / "figures"), tables(results)
    write_tables({"fig6_fig7": written.pop("fig6_fig7")}, out)  # too large for the result
    title = "Table 2: relative improvement over GD* in per cent, capacity 5 %"
    listed = [ReportTable.of(title, written["table2"])]
    seeds = ", ".join(map(str, experiment.seeds))
    return write_report(
        out,
        "chen2003",
        [ReportSection("", "", claims(results), captioned("chen2003", drawn), listed)],
        lead=report_text("chen2003").describe(experiment=experiment, seeds=seeds),
        command=command,
        tables=written,
        figures=drawn,
    )
