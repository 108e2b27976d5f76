"""Figures, tables and report of storage2011."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from newsstand.lab.papers.storage2011.claims import bound_table, claims, extension_claims
from newsstand.lab.papers.storage2011.experiment import (
    TREES,
    PlanningCurve,
    PlanningExperiment,
    PlanningMeasurements,
)
from newsstand.lab.papers.storage2011.plans import (
    EXACT,
    OPTIMUM,
    PAPER,
    REASSIGNING,
    RELAXED,
    SWAP,
    PlanningRow,
    PlanningSetting,
    PlanningStage,
)
from newsstand.lab.reporting.claims import report_text
from newsstand.lab.reporting.figures import legend, means, panels, save_all
from newsstand.lab.reporting.report import (
    ReportSection,
    ReportTable,
    Row,
    captioned,
    cells,
    write_report,
)
from newsstand.lab.reporting.statistics import Interval

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
STAGES = {
    PlanningStage.STAYED: (":", "not reassigned"),
    PlanningStage.REASSIGNED: ("-", "reassigned"),
    PlanningStage.PLANNED: ("--", "replanned"),
}
"""Dashes and name of each stage."""
HOPS, TRAFFIC, INSTALLED, GAIN = "mean hops", "traffic (requests × hops / s)", "storages", "hops spared (%)"


def draw(measured: PlanningMeasurements, folder: Path) -> dict[str, Path]:
    """Draw every figure that was run as SVG and PNG; return the SVG of each."""
    figures = {number: measured.experiment.of_figures(number) for number in range(4, 11)}
    drawn = {f"fig{number}": _DRAWN[number](measured, curves) for number, curves in figures.items() if curves}
    return save_all(drawn, folder)


def _hops_and_traffic(measured: PlanningMeasurements, curves: list[PlanningCurve]) -> Figure:
    figure, axes = panels(2, width=5.0, height=3.6)
    for panel, what, name in zip(axes, ("mean_hops", "traffic"), (HOPS, TRAFFIC), strict=True):
        _over_points(panel, measured, curves[0], what, name)
    legend(figure, axes)
    return figure


def _hops_by_storages(measured: PlanningMeasurements, curves: list[PlanningCurve]) -> Figure:
    figure, axes = panels(len(curves), width=5.0, height=3.6)
    for panel, curve in zip(axes, curves, strict=True):
        _over_points(panel, measured, curve, "mean_hops", HOPS)
    legend(figure, axes)
    return figure


def _hops_and_storages(measured: PlanningMeasurements, curves: list[PlanningCurve]) -> Figure:
    figure, axes = panels(len(curves) + 1, width=4.4, height=3.6)
    for panel, curve, dashes in zip(axes, curves, ("-", "--"), strict=False):
        _over_points(panel, measured, curve, "mean_hops", HOPS)
        of = {x: measured.of("storages", setting, "grd_opt").interval for x, setting in curve.points.items()}
        means(axes[-1], of, f"grd_opt, {curve.series}", (LOOKS["grd_opt"][0], "^", dashes))
        given = next(iter(curve.points.values())).storages or 0
        axes[-1].axhline(given, color="#999999", ls=dashes, lw=1)
    axes[-1].set(title="installed by grd_opt; grey: M", xlabel=curves[0].axis, ylabel=INSTALLED)
    legend(figure, axes)
    return figure


def _reassignment(measured: PlanningMeasurements, curves: list[PlanningCurve]) -> Figure:
    (curve,) = curves
    figure, axes = panels(2, width=5.4, height=3.8)
    for method in REASSIGNING:
        colour, marker, _ = LOOKS[method]
        for stage, (dashes, name) in STAGES.items():
            of = {x: measured.hops(setting, method, stage).interval for x, setting in curve.points.items()}
            means(axes[0], of, f"{method}, {name}", (colour, marker, dashes))
        gains = {x: measured.gain(setting, method) for x, setting in curve.points.items()}
        means(axes[1], gains, f"{method}, reassigned", (colour, marker, "-"), factor=100)
    axes[0].set(xlabel=f"{curve.axis} now; storages were planned for −1", ylabel=HOPS)
    axes[1].set(xlabel=f"{curve.axis} now; storages were planned for −1", ylabel=GAIN)
    legend(figure, axes, columns=len(STAGES))
    return figure


_DRAWN: Mapping[int, Callable[[PlanningMeasurements, list[PlanningCurve]], Figure]] = {
    4: _hops_and_traffic,
    5: _hops_and_traffic,
    6: _hops_and_traffic,
    7: _hops_by_storages,
    8: _hops_and_storages,
    9: _reassignment,
    10: _reassignment,
}


def _over_points(axes: Axes, measured: PlanningMeasurements, curve: PlanningCurve, what: str, name: str) -> None:
    for method, look in LOOKS.items():
        of = {
            x: _level(measured, what, setting, method)
            for x, setting in curve.points.items()
            if measured.rows(setting, method)
        }
        if of:
            means(axes, of, method, look)
    axes.set(title=curve.series, xlabel=curve.axis, ylabel=name)


def _level(measured: PlanningMeasurements, what: str, setting: PlanningSetting, method: str) -> Interval:
    """Return a mean over all seeds; for a method with few, swap's mean plus the difference within these."""
    own, swap = measured.of(what, setting, method), measured.of(what, setting, SWAP)
    return own.interval if own.keys() == swap.keys() else Interval(swap.mean + (own - swap).mean)


def tables(measured: PlanningMeasurements) -> dict[str, pd.DataFrame]:
    """Return every number behind the figures: means over the seeds, half widths of their 95 % intervals."""
    rows = []
    for curve, x, setting in measured.experiment.points(*range(4, 11)):
        stages = STAGES if setting.planned_for is not None else (PlanningStage.PLANNED,)
        for method, stage in itertools.product(LOOKS, stages):
            if found := measured.rows(setting, method, stage):
                row = {"figure": curve.figure, "series": curve.series, "axis": curve.axis, "at": x}
                row |= {"method": method, "stage": stage.value, "runs": len(found)}
                for what in ("mean_hops", "traffic", "storages", "short"):
                    row |= cells(what, measured.of(what, setting, method, stage).interval)
                gaps = [one.gap for one in found.values() if one.gap is not None]
                rows.append(row | {"largest gap": max(gaps, default=None)})
    return {"plans": pd.DataFrame(rows)}


def hops_table(measured: PlanningMeasurements) -> Iterator[Row]:
    """Yield mean hops of every method at every point of Figs. 4 to 8."""
    for curve, x, setting in measured.experiment.points(4, 5, 6, 7, 8):
        row = {"figure": curve.name, "at": f"{curve.axis} {x:g}"}
        row |= _hops(measured, setting, (*PAPER, OPTIMUM, SWAP))
        installed = measured.of("storages", setting, "grd_opt").interval
        yield row | {"storages of grd_opt": installed.text(digits=1, sign="")}


def _hops(measured: PlanningMeasurements, setting: PlanningSetting, methods: Iterable[str]) -> dict[str, str]:
    return {method: measured.hops(setting, method).interval.text(digits=3, sign="") for method in methods}


def reassignment_table(measured: PlanningMeasurements) -> Iterator[Row]:
    """Yield Figs. 9 and 10 in numbers."""
    for curve, x, setting in measured.experiment.points(9, 10):
        row = {"figure": curve.name, "at": f"{curve.axis} {x:g}"}
        for method in REASSIGNING:
            hops = (measured.hops(setting, method, stage).mean for stage in STAGES)
            row[f"{method}: kept, reassigned, replanned"] = ", ".join(f"{one:.3f}" for one in hops)
            row[f"{method}: spared (%)"] = measured.gain(setting, method).text(100, 1)
        yield row


def trees_table(measured: PlanningMeasurements) -> Iterator[Row]:
    """Yield mean hops on other kinds of trees."""
    names = ("M open, s_p 1", "M = 20, s_p 1", "M = 20, s_l 1")
    for tree, settings in measured.experiment.variants.items():
        for name, setting in zip(names, settings, strict=True):
            row = {"trees": tree, "setting": name} | _hops(measured, setting, (*PAPER, SWAP))
            for other in ("rnd", "grd_opt", "srl"):
                row[f"wrr over {other} (%)"] = measured.excess(setting, "wrr", other).text(100, 1)
            yield row


def write(
    rows: Sequence[PlanningRow], experiment: PlanningExperiment, command: str, out: Path
) -> dict[str, object]:
    """Write tables, figures and the report; the result for programs."""
    measured = PlanningMeasurements(rows, experiment)
    drawn = draw(measured, out / "figures")
    paper, beyond = report_text("storage2011").sections.values()
    runs = len(experiment.seeds)
    lead = paper.describe(
        is_single=runs == 1, trees=f"{runs} random {'tree' if runs == 1 else 'trees'}", kind=TREES[experiment.tree]
    )
    of_paper = ReportSection(
        paper.title,
        lead,
        claims(measured),
        captioned("storage2011", drawn),
        [
            ReportTable.of("Mean hops, Figs. 4 to 8", hops_table(measured)),
            ReportTable.of("Mean hops and what is spared, Figs. 9 and 10", reassignment_table(measured)),
            ReportTable.of("Other kinds of trees", trees_table(measured)),
        ],
    )
    of_extensions = ReportSection(
        beyond.title,
        beyond.describe(runs=min(experiment.seeds_of_relaxed, runs)),
        extension_claims(measured),
        [],
        [ReportTable.of("Above what no plan can pass", bound_table(measured))],
    )
    return write_report(
        out, "storage2011", [of_paper, of_extensions], command=command, tables=tables(measured), figures=drawn
    )
