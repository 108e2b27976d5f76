"""Figures 4 to 10 of Sourlas et al. (2011), drawn from the experiments, and their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from newsstand.lab.figures import legend, means, panels, save
from newsstand.lab.intervals import Interval, apart
from newsstand.lab.storage2011 import Curve
from newsstand.lab.storage2011_measured import Measured
from newsstand.lab.storage2011_plans import EXACT, OPTIMUM, PAPER, REASSIGNING, RELAXED, SWAP, Stage
from newsstand.lab.storage2011_workload import Setting

LOOKS = {
    "srl": ("#0072b2", "o", "-"),
    "wrr": ("#d55e00", "s", "-"),
    "rnd": ("#555555", "X", "-"),
    "grd_opt": ("#009e73", "^", "-"),
    OPTIMUM: ("#009e73", "v", ":"),
    SWAP: ("#cc79a7", "D", "-"),
    RELAXED: ("#e69f00", "P", "--"),
    EXACT: ("#000000", "*", ""),
}
"""Colour (Okabe and Ito's), marker and dashes of each method."""
METHODS = tuple(LOOKS)
STAGES = {Stage.STAYED: ":", Stage.REASSIGNED: "-", Stage.PLANNED: "--"}
NAMES = {Stage.STAYED: "not assigned anew", Stage.REASSIGNED: "assigned anew", Stage.PLANNED: "planned anew"}
HOPS, TRAFFIC, INSTALLED, GAIN = "mean hops", "traffic (requests × hops / s)", "storages", "hops spared (%)"


def draw(measured: Measured, folder: Path) -> dict[str, Path]:
    """Draw every figure that was run as SVG and PNG; returns the SVG of each."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {number: measured.experiment.of_figures(number) for number in range(4, 11)}
    drawn = {f"fig{number}": _DRAWN[number](measured, curves) for number, curves in figures.items() if curves}
    return {name: save(figure, folder / name)[0] for name, figure in drawn.items()}


def _hops_and_traffic(measured: Measured, curves: list[Curve]) -> Figure:
    figure, axes = panels(2, width=5.0, height=3.6)
    for panel, what, name in zip(axes, ("mean_hops", "traffic"), (HOPS, TRAFFIC), strict=True):
        _over_points(panel, measured, curves[0], what)
        panel.set(xlabel=curves[0].axis, ylabel=name)
    legend(figure, axes)
    return figure


def _hops_by_storages(measured: Measured, curves: list[Curve]) -> Figure:
    figure, axes = panels(len(curves), width=5.0, height=3.6)
    for panel, curve in zip(axes, curves, strict=True):
        _over_points(panel, measured, curve, "mean_hops")
        panel.set(title=curve.series, xlabel=curve.axis, ylabel=HOPS)
    legend(figure, axes)
    return figure


def _hops_and_storages(measured: Measured, curves: list[Curve]) -> Figure:
    figure, axes = panels(len(curves) + 1, width=4.4, height=3.6)
    for panel, curve in zip(axes, curves, strict=False):
        _over_points(panel, measured, curve, "mean_hops")
        panel.set(title=curve.series, xlabel=curve.axis, ylabel=HOPS)
    for curve, dashes in zip(curves, ("-", "--"), strict=False):
        of = {x: measured.of("storages", setting, "grd_opt") for x, setting in curve.points.items()}
        means(axes[-1], of, f"grd_opt, {curve.series}", (LOOKS["grd_opt"][0], "^", dashes))
        given = next(iter(curve.points.values())).storages or 0
        axes[-1].axhline(given, color="#999999", ls=dashes, lw=1)
    axes[-1].set(title="installed by grd_opt; grey: M", xlabel=curves[0].axis, ylabel=INSTALLED)
    legend(figure, axes)
    return figure


def _reassignment(measured: Measured, curves: list[Curve]) -> Figure:
    (curve,) = curves
    figure, axes = panels(2, width=5.4, height=3.8)
    for method in REASSIGNING:
        colour, marker, _ = LOOKS[method]
        for stage, dashes in STAGES.items():
            of = {x: measured.hops(setting, method, stage) for x, setting in curve.points.items()}
            means(axes[0], of, f"{method}, {NAMES[stage]}", (colour, marker, dashes))
        gains = {x: measured.gain(setting, method) for x, setting in curve.points.items()}
        means(axes[1], gains, f"{method}, {NAMES[Stage.REASSIGNED]}", (colour, marker, "-"), factor=100)
    axes[0].set(xlabel=f"{curve.axis} now; storages were planned for −1", ylabel=HOPS)
    axes[1].set(xlabel=f"{curve.axis} now; storages were planned for −1", ylabel=GAIN)
    legend(figure, axes, columns=len(STAGES))
    return figure


_DRAWN: Mapping[int, Callable[[Measured, list[Curve]], Figure]] = {
    4: _hops_and_traffic,
    5: _hops_and_traffic,
    6: _hops_and_traffic,
    7: _hops_by_storages,
    8: _hops_and_storages,
    9: _reassignment,
    10: _reassignment,
}


def _over_points(axes: Axes, measured: Measured, curve: Curve, what: str) -> None:
    for method in METHODS:
        of = {
            x: beside(measured, what, setting, method)
            for x, setting in curve.points.items()
            if measured.rows(setting, method)
        }
        if of:
            means(axes, of, method, LOOKS[method])


def beside(measured: Measured, what: str, setting: Setting, method: str) -> Interval:
    """A mean over all seeds; of a method that has few of them, swap's and how far it is from that within these."""
    own, swap = measured.values(what, setting, method), measured.values(what, setting, SWAP)
    if own.keys() == swap.keys():
        return measured.of(what, setting, method)
    return Interval(measured.of(what, setting, SWAP).mean + apart(own, swap).mean)


def tables(measured: Measured) -> dict[str, pd.DataFrame]:
    """Every number behind the figures: means over the seeds and half widths of their 95 % intervals."""
    rows = [
        _row(measured, curve, x, method, stage)
        for curve in measured.experiment.drawn
        for x, setting in curve.points.items()
        for method in METHODS
        for stage in (STAGES if setting.planned_for is not None else (Stage.PLANNED,))
        if measured.rows(setting, method, stage)
    ]
    return {"plans": pd.DataFrame(rows)}


def _row(measured: Measured, curve: Curve, x: float, method: str, stage: Stage) -> dict[str, object]:
    setting = curve.points[x]
    found = measured.rows(setting, method, stage)
    row: dict[str, object] = {
        "figure": curve.figure,
        "series": curve.series,
        "axis": curve.axis,
        "at": x,
        "method": method,
        "stage": stage.value,
        "runs": len(found),
    }
    for what in ("mean_hops", "traffic", "storages", "short"):
        of = measured.of(what, setting, method, stage)
        row |= {what: of.mean, f"{what} ±": of.half}
    gaps = [one.gap for one in found.values() if one.gap is not None]
    return row | {"largest gap": max(gaps) if gaps else None}


def hops_table(measured: Measured) -> pd.DataFrame:
    """Mean hops of every method at every point of Figs. 4 to 8, for people."""
    rows = []
    for curve in measured.experiment.of_figures(4, 5, 6, 7, 8):
        for x, setting in curve.points.items():
            row = {"figure": curve.name, "at": f"{curve.axis} {x:g}"}
            for method in (*PAPER, OPTIMUM, SWAP):
                row[method] = measured.hops(setting, method).told(digits=3, sign="")
            row["storages of grd_opt"] = measured.of("storages", setting, "grd_opt").told(digits=1, sign="")
            rows.append(row)
    return pd.DataFrame(rows)


def reassignment_table(measured: Measured) -> pd.DataFrame:
    """Figs. 9 and 10 in numbers, for people."""
    rows = []
    for curve in measured.experiment.of_figures(9, 10):
        for x, setting in curve.points.items():
            row = {"figure": curve.name, "at": f"{curve.axis} {x:g}"}
            for method in REASSIGNING:
                hops = (measured.hops(setting, method, stage).mean for stage in STAGES)
                row[f"{method}: stays, assigned, planned anew"] = ", ".join(f"{one:.3f}" for one in hops)
                row[f"{method}: spared (%)"] = measured.gain(setting, method).told(100, 1)
            rows.append(row)
    return pd.DataFrame(rows)


def trees_table(measured: Measured) -> pd.DataFrame:
    """Mean hops on other kinds of trees, for people."""
    names = ("M open, s_p 1", "M = 20, s_p 1", "M = 20, s_l 1")
    rows = []
    for tree, settings in measured.experiment.variants.items():
        for name, setting in zip(names, settings, strict=True):
            row = {"trees": tree, "setting": name}
            for method in (*PAPER, SWAP):
                row[method] = measured.hops(setting, method).told(digits=3, sign="")
            for other in ("rnd", "grd_opt"):
                row[f"wrr over {other} (%)"] = measured.over(setting, "wrr", other).told(100, 1)
            row["wrr over srl (%)"] = measured.over(setting, "wrr", "srl").told(100, 1)
            rows.append(row)
    return pd.DataFrame(rows)
