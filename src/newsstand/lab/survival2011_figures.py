"""Figures 4 to 7 of Sourlas et al. (2011), drawn from the experiments, and the map of errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from newsstand.lab.figures import legend, means, panels, save
from newsstand.lab.intervals import Interval, interval
from newsstand.lab.survival2011 import AXES, LEVELS, MAPPED, NOP, POLICIES, PRT, Curve, Grid
from newsstand.lab.survival2011_measured import MODELS, POPULAR, SPREAD, UNPOPULAR, Measured
from newsstand.lab.survival2011_tasks import EXACT, REDUCED

BLUE, ORANGE, GREEN, PURPLE, GREY, BLACK = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#888888", "#000000"
"""Okabe and Ito's."""
MODEL_LOOKS = {REDUCED: (ORANGE, "s", "--"), "ours": (GREEN, "^", "-")}
POLICY_LOOKS = dict(zip(POLICIES, ((BLUE, "o"), (PURPLE, "D"), (ORANGE, "s"), (GREY, "X")), strict=True))
MST = "mean survival time"
LARGEST_ERROR = 0.25
"""Where the colours of the map end."""


def draw(measured: Measured, folder: Path) -> dict[str, Path]:
    """Draw every figure as SVG and PNG; returns the SVG of each."""
    folder.mkdir(parents=True, exist_ok=True)
    return {name: save(drawn(measured), folder / name)[0] for name, drawn in DRAWN.items()}


def _single(m: Measured) -> Figure:
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
        for what, (colour, marker) in zip(("mst", *SPREAD), looks, strict=True):
            # Differences that are rounding are drawn at the bottom, which a logarithmic axis must have.
            apart = {x: max(m.single_difference(one, what), 1e-16) for x, one in curve.points.items()}
            panel.plot(
                list(apart),
                list(apart.values()),
                color=colour,
                marker=marker,
                ms=4,
                lw=1,
                label=what.upper() if what == "mst" else what,
            )
        panel.set(xlabel=AXES[curve.axis], ylabel="reduced and exact differ by", yscale="log")
    legend(figure, axes)
    return figure


def _network(m: Measured) -> Figure:
    figure, axes = panels(len(m.experiment.network), width=3.8, height=3.6)
    for panel, curve in zip(axes, m.experiment.network, strict=True):
        _bounds(panel, curve)
        means(panel, {x: m.mst(setting) for x, setting in curve.points.items()}, "simulation", (BLACK, "o", ""))
        for model, look in MODEL_LOOKS.items():
            of = {x: Interval(m.model(setting, model)) for x, setting in curve.points.items()}
            means(panel, of, MODELS[model], look)
        _labelled(panel, curve)
    legend(figure, axes)
    return figure


def _bounds(panel: Axes, curve: Curve) -> None:
    bounds = np.array([setting.bounds for setting in curve.points.values()])
    for place, dashes in enumerate((":", "-.")):
        label = ("least possible", "most possible")[place]
        panel.plot(list(curve.points), bounds[:, place], dashes, color=GREY, lw=1, label=label)


def _labelled(panel: Axes, curve: Curve) -> None:
    _across(panel, curve.axis)
    panel.set(ylabel=MST)
    if curve.axis == "publish_rate":
        panel.set_yscale("log")


def _across(panel: Axes, axis: str) -> None:
    """Whole numbers have no ticks between them."""
    panel.set(xlabel=AXES[axis])
    if axis in ("slots", "brokers", "ratio"):
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _loss(m: Measured) -> Figure:
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


def _policies(m: Measured) -> Figure:
    figure, axes = panels(len(m.experiment.network), width=3.8, height=3.6)
    for panel, curve in zip(axes, m.experiment.network, strict=True):
        for policy, (colour, marker) in POLICY_LOOKS.items():
            points = {x: replace(setting, policy=policy) for x, setting in curve.points.items()}
            means(panel, {x: m.mst(one) for x, one in points.items()}, str(policy), (colour, marker, "-"))
            of = [m.model(one, "ours") for one in points.values()]
            panel.plot(list(points), of, "--", color=colour, lw=0.9, label=f"{policy}, our model")
        _labelled(panel, curve)
    legend(figure, axes)
    return figure


def _classes(m: Measured) -> Figure:
    figure, axes = panels(len(LEVELS), width=4.4, height=3.6)
    ratios = sorted(m.experiment.ratios)
    for panel, level in zip(axes, LEVELS, strict=True):
        for policy, dashes in ((PRT, "-"), (NOP, "--")):
            for place, name, colour, marker in (
                (POPULAR, "popular", BLUE, "o"),
                (UNPOPULAR, "unpopular", ORANGE, "s"),
            ):
                of = {ratio: interval(m.classes(ratio, policy, level).class_mst[place]) for ratio in ratios}
                means(panel, of, f"{name}, {policy}", (colour, marker, dashes))
        _across(panel, "ratio")
        panel.set(title=level, ylabel=MST)
    legend(figure, axes)
    return figure


def _map(m: Measured) -> Figure:
    grid = m.experiment.grid
    figure, axes = panels(2 * len(MAPPED), width=3.6, height=2.0 + 0.22 * len(grid.brokers) * len(grid.slots))
    sides = [(policy, model) for policy in MAPPED for model in MODELS]
    for panel, (policy, model) in zip(axes, sides, strict=True):
        errors = _errors(m, grid, str(policy), model)
        image = panel.imshow(
            errors, cmap="RdBu_r", vmin=-LARGEST_ERROR, vmax=LARGEST_ERROR, aspect="auto", interpolation="nearest"
        )
        for (row, column), error in np.ndenumerate(errors):
            if np.isnan(error):
                continue
            strong = abs(error) > 0.7 * LARGEST_ERROR
            panel.text(
                column,
                row,
                f"{100 * error:+.0f}",
                ha="center",
                va="center",
                fontsize=6,
                color="w" if strong else "k",
            )
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


def _errors(m: Measured, grid: Grid, policy: str, model: str) -> np.ndarray:
    """A row for each n and k, a column for each ρ_c and λ_b."""
    columns = [(rho, rate) for rho in grid.intensities for rate in grid.publish_rates]
    rows = [(n, k) for n in grid.brokers for k in grid.slots]
    errors = np.full((len(rows), len(columns)), np.nan)  # of what was left out
    for setting in grid.settings:
        if str(setting.policy) == policy:
            row = rows.index((setting.brokers, setting.slots))
            column = columns.index((setting.intensity, setting.publish_rate))
            errors[row, column] = m.error(setting, model).mean
    return errors


DRAWN: Mapping[str, Callable[[Measured], Figure]] = {
    "fig4": _single,
    "fig5": _network,
    "fig6-loss": _loss,
    "fig6": _policies,
    "fig7": _classes,
    "errors": _map,
}
