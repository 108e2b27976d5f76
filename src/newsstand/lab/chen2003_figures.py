"""Figures 3 to 7 of Chen, LaPaugh & Singh (2003), the beta sweep of section 5.1, and their tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from newsstand.lab.chen2003 import (
    BETAS,
    COMPARED,
    DUAL,
    LABELS,
    QUALITIES,
    TABLE_2,
    TRACES,
    Results,
)
from newsstand.lab.chen2003_measured import CAPACITIES, Measured
from newsstand.lab.figures import bars, lines, panels, save

TITLES = {"news": "NEWS (α = 1.5)", "alternative": "ALTERNATIVE (α = 1.0)"}


def tables(results: Results) -> dict[str, pd.DataFrame]:
    """Every number behind the figures: means and standard deviations over the seeds."""
    runs = results.at_paper_betas()
    keys = ["trace", "sq", "capacity", "policy", "beta"]
    hit = runs.groupby(keys)["hit_ratio"].agg(["mean", "std", "count"]).reset_index()
    beta = results.runs[results.runs["sweep"] == "beta"]
    beta = beta.groupby(["trace", "policy", "capacity", "beta"])["hit_ratio"].agg(["mean", "std"]).reset_index()
    measured = Measured(results)
    table_2 = pd.DataFrame(
        [
            {
                "trace": trace,
                "policy": policy,
                "paper": paper,
                "measured": round(measured.gain(trace, policy), 1),
            }
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


def draw(results: Results, folder: Path) -> dict[str, Path]:
    """Draw every figure as SVG and PNG; returns the SVG of each."""
    folder.mkdir(parents=True, exist_ok=True)
    measured = Measured(results)
    figures = {
        "beta_sweep": _beta_sweep(results),
        "fig3": _capacity_bars(results, ("gdstar", *DUAL), ("news",)),
        "fig4": _capacity_bars(results, COMPARED, TRACES),
        "fig5": _quality(measured),
        "fig6": _hourly_hits(measured),
        "fig7": _hourly_traffic(measured),
    }
    return {name: save(figure, folder / name)[0] for name, figure in figures.items()}


def _beta_sweep(results: Results) -> Figure:
    beta = results.runs[results.runs["sweep"] == "beta"]
    mean = beta.groupby(["trace", "policy", "capacity", "beta"])["hit_ratio"].mean()
    figure, axes = panels(2)
    for panel, trace in zip(axes, TRACES, strict=True):
        lines(
            panel,
            BETAS,
            {
                f"{LABELS[policy]} {capacity:.0%}": [mean.loc[(trace, policy, capacity, b)] for b in BETAS]
                for policy in ("gdstar", "sg1", "sg2")
                for capacity in CAPACITIES
            },
            marker=".",
        )
        panel.set_xscale("log", base=2)
        panel.set_xticks(BETAS, [f"{b:g}" for b in BETAS])
        panel.set(title=TITLES[trace], xlabel="β", ylabel="hit ratio")
    axes[1].legend(fontsize=6, ncols=3)
    return figure


def _capacity_bars(results: Results, policies: tuple[str, ...], traces: tuple[str, ...]) -> Figure:
    runs = results.at_paper_betas()
    of = runs[runs["sq"] == 1.0].groupby(["trace", "policy", "capacity"])["hit_ratio"]
    mean, deviation = of.mean(), of.std().fillna(0.0)
    figure, axes = panels(len(traces))
    for panel, trace in zip(axes, traces, strict=True):
        bars(
            panel,
            [f"{c:.0%}" for c in CAPACITIES],
            {LABELS[p]: [mean.loc[(trace, p, c)] for c in CAPACITIES] for p in policies},
            {LABELS[p]: [deviation.loc[(trace, p, c)] for c in CAPACITIES] for p in policies},
        )
        panel.set(title=TITLES[trace], xlabel="capacity", ylabel="hit ratio", ylim=(0, 1))
    axes[0].legend(fontsize=7, ncols=2)
    return figure


def _quality(measured: Measured) -> Figure:
    figure, axes = panels(2)
    for panel, trace in zip(axes, TRACES, strict=True):
        lines(
            panel,
            QUALITIES,
            {LABELS[p]: [measured.hit(trace, p, sq=q) for q in QUALITIES] for p in COMPARED},
            marker="o",
        )
        panel.set(title=TITLES[trace], xlabel="subscription quality", ylabel="hit ratio", xticks=QUALITIES)
    axes[0].legend(fontsize=7)
    return figure


def _hourly_hits(measured: Measured) -> Figure:
    figure, axes = panels(2)
    for panel, trace in zip(axes, TRACES, strict=True):
        hourly = {LABELS[p]: measured.hourly(trace, p) for p in ("gdstar", "sub", "sg2")}
        hours = [float(hour) for hour in hourly["GD*"].index]
        lines(panel, hours, {label: list(h["hits"] / h["requests"]) for label, h in hourly.items()})
        panel.set(title=TITLES[trace], xlabel="hour", ylabel="hit ratio of the hour", ylim=(0, 1))
    axes[0].legend(fontsize=7)
    return figure


def _hourly_traffic(measured: Measured) -> Figure:
    figure, axes = panels(2)
    for panel, scheme in zip(axes, ("always", "needed"), strict=True):
        series = {}
        for policy in ("gdstar", "sub", "sg2"):
            hourly = measured.hourly("news", policy)
            series[LABELS[policy]] = list(hourly["fetched_pages"] + hourly[f"pushed_pages_{scheme}"])
        hours = [float(hour) for hour in measured.hourly("news", "gdstar").index]
        lines(panel, hours, series)
        name = "Always Pushing" if scheme == "always" else "Pushing When Necessary"
        panel.set(title=f"NEWS, {name}", xlabel="hour", ylabel="pages per hour, all seeds")
    top = max(panel.get_ylim()[1] for panel in axes)
    for panel in axes:
        panel.set_ylim(0, top)
    axes[0].legend(fontsize=7)
    return figure
