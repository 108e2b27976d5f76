"""Figures 4 to 7 of Sourlas et al. (2011), drawn from the experiments, and the map of errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from newsstand.lab.papers.survival2011.experiment import (
    AXES,
    EXACT,
    LEVELS,
    MAPPED,
    NOP,
    POLICIES,
    PRT,
    REDUCED,
    SurvivalCurve,
    SurvivalGrid,
)
from newsstand.lab.papers.survival2011.measurements import MODELS, POPULAR, TIMES, UNPOPULAR, SurvivalMeasurements
from newsstand.lab.reporting.figures import legend, means, panels, save_all
from newsstand.lab.reporting.statistics import Interval, interval

BLUE, ORANGE, GREEN, PURPLE, GREY, BLACK = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#888888", "#000000"
"""Okabe and Ito's."""
MODEL_LOOKS = {REDUCED: (ORANGE, "s", "--"), "ours": (GREEN, "^", "-")}
POLICY_LOOKS = dict(zip(POLICIES, ((BLUE, "o"), (PURPLE, "D"), (ORANGE, "s"), (GREY, "X")), strict=True))
MST = "mean survival time"
LARGEST_ERROR = 0.25
"""The error at the ends of the colour scale."""


def draw(measured: SurvivalMeasurements, folder: Path) -> dict[str, Path]:
    """Draw every figure as SVG and PNG; return the SVG of each."""
    return save_all({name: figure(measured) for name, figure in FIGURES.items()}, folder)


def _single(m: SurvivalMeasurements) -> Figure:
    figure, axes = panels(4, width=3.8, height=3.6)
    for panel, curve in zip(axes[::2], m.experiment.single, strict=True):
        rows = {x: m.simulated(setting) for x, setting in curve.points.items()}
        low, high = ([np.mean(row.quartiles[place]) for row in rows.values()] for place in (0, 2))
        panel.fill_between(list(rows), low, high, color="#dddddd", lw=0, label="quartiles, simulated")
        means(panel, {x: interval(row.mean_time) for x, row in rows.items()}, "simulation", (BLACK, "o", ""))
        for method, look in ((EXACT, (BLUE, "", "-")), (REDUCED, (ORANGE, "", "--"))):
            of = {x: Interval(m.single(setting, method).mst[0]) for x, setting in curve.points.items()}
            means(panel, of, f"{method} model", look)
        panel.set(xlabel=AXES[curve.axis], ylabel=MST)
    looks = ((BLACK, "o"), (BLUE, "v"), (GREEN, "s"), (PURPLE, "^"), (ORANGE, "D"))
    for panel, curve in zip(axes[1::2], m.experiment.single, strict=True):
        for what, (colour, marker) in zip(TIMES, looks, strict=True):
            # Differences that are rounding are drawn at the bottom, which a logarithmic axis must have.
            apart = [max(m.single_difference(one, what), 1e-16) for one in curve.points.values()]
            label = what.upper() if what == "mst" else what
            panel.plot(list(curve.points), apart, color=colour, marker=marker, ms=4, lw=1, label=label)
        panel.set(xlabel=AXES[curve.axis], ylabel="reduced and exact differ by", yscale="log")
    legend(figure, axes)
    return figure


def _network(m: SurvivalMeasurements) -> Figure:
    figure, axes = panels(len(m.experiment.network), width=3.8, height=3.6)
    for panel, curve in zip(axes, m.experiment.network, strict=True):
        _bounds(panel, curve)
        means(
            panel,
            {x: m.mst(setting).interval for x, setting in curve.points.items()},
            "simulation",
            (BLACK, "o", ""),
        )
        for model, look in MODEL_LOOKS.items():
            of = {x: Interval(m.model(setting, model)) for x, setting in curve.points.items()}
            means(panel, of, MODELS[model], look)
        _labelled(panel, curve)
    legend(figure, axes)
    return figure


def _bounds(panel: Axes, curve: SurvivalCurve) -> None:
    bounds = np.array([setting.bounds for setting in curve.points.values()])
    for bound, dashes, label in zip(bounds.T, (":", "-."), ("least possible", "most possible"), strict=True):
        panel.plot(list(curve.points), bound, dashes, color=GREY, lw=1, label=label)


def _labelled(panel: Axes, curve: SurvivalCurve) -> None:
    _across(panel, curve.axis)
    panel.set(ylabel=MST, yscale="log" if curve.axis == "publish_rate" else "linear")


def _across(panel: Axes, axis: str) -> None:
    """Name the axis; whole numbers have no ticks between them."""
    panel.set(xlabel=AXES[axis])
    if axis in ("slots", "brokers", "ratio"):
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _loss(m: SurvivalMeasurements) -> Figure:
    figure, axes = panels(2, width=5.0, height=3.6)
    for panel, axis in zip(axes, ("intensity", "brokers"), strict=True):
        curve = m.experiment.curve(axis)
        for policy, (colour, marker) in POLICY_LOOKS.items():
            of = {x: m.loss(setting, policy) for x, setting in curve.points.items()}
            means(panel, of, str(policy), (colour, marker, "-"), factor=100)
        _across(panel, axis)
        panel.set(ylabel="messages lost (%)")
    legend(figure, axes)
    return figure


def _policies(m: SurvivalMeasurements) -> Figure:
    figure, axes = panels(len(m.experiment.network), width=3.8, height=3.6)
    for panel, curve in zip(axes, m.experiment.network, strict=True):
        for policy, (colour, marker) in POLICY_LOOKS.items():
            points = {x: replace(setting, policy=policy) for x, setting in curve.points.items()}
            means(panel, {x: m.mst(one).interval for x, one in points.items()}, str(policy), (colour, marker, "-"))
            of = [m.model(one, "ours") for one in points.values()]
            panel.plot(list(points), of, "--", color=colour, lw=0.9, label=f"{policy}, our model")
        _labelled(panel, curve)
    legend(figure, axes)
    return figure


def _classes(m: SurvivalMeasurements) -> Figure:
    figure, axes = panels(len(LEVELS), width=4.4, height=3.6)
    ratios = sorted(m.experiment.ratios)
    for panel, level in zip(axes, LEVELS, strict=True):
        for policy, dashes in ((PRT, "-"), (NOP, "--")):
            for place, name, look in ((POPULAR, "popular", (BLUE, "o")), (UNPOPULAR, "unpopular", (ORANGE, "s"))):
                of = {ratio: m.of_class(place, ratio, policy, level).interval for ratio in ratios}
                means(panel, of, f"{name}, {policy}", (*look, dashes))
        _across(panel, "ratio")
        panel.set(title=level, ylabel=MST)
    legend(figure, axes)
    return figure


def _map(m: SurvivalMeasurements) -> Figure:
    grid = m.experiment.grid
    figure, axes = panels(2 * len(MAPPED), width=3.6, height=2.0 + 0.22 * len(grid.brokers) * len(grid.slots))
    sides = [(policy, model) for policy in MAPPED for model in MODELS]
    for panel, (policy, model) in zip(axes, sides, strict=True):
        errors = _errors(m, grid, str(policy), model)
        image = panel.imshow(
            errors, cmap="RdBu_r", vmin=-LARGEST_ERROR, vmax=LARGEST_ERROR, aspect="auto", interpolation="nearest"
        )
        for (row, column), error in np.ndenumerate(errors):
            if not np.isnan(error):
                colour = "w" if abs(error) > 0.7 * LARGEST_ERROR else "k"
                text = f"{100 * error:+.0f}"
                panel.text(column, row, text, ha="center", va="center", fontsize=6, color=colour)
        panel.grid(visible=False)
        panel.set_title(f"{policy}, {MODELS[model]}", fontsize=9)
        columns = [f"{rho:g}, {rate:g}" for rho in grid.intensities for rate in grid.publish_rates]
        panel.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
        panel.set_xlabel("ρ_c, λ_b")
        rows = [f"{n}, {k}" for n in grid.brokers for k in grid.slots]
        panel.set_yticks(range(len(rows)), rows if panel is axes[0] else [""] * len(rows), fontsize=7)
    axes[0].set_ylabel("n, k")
    figure.colorbar(image, ax=axes, label="error", shrink=0.6)
    return figure


def _errors(m: SurvivalMeasurements, grid: SurvivalGrid, policy: str, model: str) -> np.ndarray:
    """Return a row for each n and k, a column for each ρ_c and λ_b."""
    columns = [(rho, rate) for rho in grid.intensities for rate in grid.publish_rates]
    rows = [(n, k) for n in grid.brokers for k in grid.slots]
    errors = np.full((len(rows), len(columns)), np.nan)  # of what was left out
    for setting in grid.settings:
        if str(setting.policy) == policy:
            row = rows.index((setting.brokers, setting.slots))
            column = columns.index((setting.intensity, setting.publish_rate))
            errors[row, column] = m.error(setting, model).mean
    return errors


FIGURES: Mapping[str, Callable[[SurvivalMeasurements], Figure]] = {
    "fig4": _single,
    "fig5": _network,
    "fig6-loss": _loss,
    "fig6": _policies,
    "fig7": _classes,
    "errors": _map,
}
