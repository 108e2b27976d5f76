"""Figures, tables and report of push1995."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from newsstand.lab.papers.push1995.claims import by, claims
from newsstand.lab.papers.push1995.experiment import (
    CENTRE,
    KINDS,
    STRATEGIES,
    PushExperiment,
    PushMeasurements,
    PushTask,
)
from newsstand.lab.push_caching.simulator import PushCacheSetting, PushOutcome
from newsstand.lab.reporting.claims import report_text
from newsstand.lab.reporting.figures import COLOURS, Look, legend, means, panels, save
from newsstand.lab.reporting.report import ReportSection, ReportTable, Row, captioned, cells, write_report
from newsstand.lab.reporting.statistics import Sample

LOOKS: dict[str, tuple[str, Look]] = {
    "hops": ("nearest by hops", (COLOURS[0], "o", "-")),
    "miles": ("nearest by miles", (COLOURS[1], "s", "--")),
    "random": ("chosen at random", (COLOURS[7], "^", ":")),
}
"""Labels and looks of the strategies: distinct for colour-blind readers and on grey paper, too."""
METRICS = ("traffic", "primary_traffic", "primary_requests", "server_traffic")
COUNTS = ("active", "available", "stored_bytes", "hits", "stale_hits", "redirects", "invalid", "pushes")
ACTIVE = "active push-caches"
APART = 1.04
"""The factor between lines at every value, so that no bar hides another."""


def write(
    outcomes: Mapping[PushTask, PushOutcome], experiment: PushExperiment, command: str, out: Path
) -> dict[str, object]:
    """Write tables, figures and the report; return the result for programs."""
    measured = PushMeasurements(outcomes, experiment)
    drawn = draw(measured, out / "figures")
    tables = {"settings": pd.DataFrame(_rows(measured)), "clients": pd.DataFrame(_client_rows(measured))}
    listed = [
        ReportTable.of("What pushing saves", tables["settings"].round(4)),
        ReportTable.of("What infinite client caches save", tables["clients"].round(4)),
    ]
    seeds = len(experiment.seeds)
    return write_report(
        out,
        "push1995",
        [ReportSection("", "", claims(measured), captioned("push1995", drawn), listed)],
        lead=report_text("push1995").describe(is_single=seeds == 1, experiment=experiment, seeds=seeds),
        command=command,
        tables=tables,
        figures=drawn,
    )


def _rows(m: PushMeasurements) -> Iterator[Row]:
    for task in m.experiment.settings:
        if not task.setting.servers:
            continue
        parameters = {name: value for name, value in asdict(task.setting).items() if name != "seed"}
        row: dict[str, object] = {"kind": task.kind, **parameters}
        for name in METRICS:
            row |= cells(f"{name} saved", m.saved(task.setting, name, task.kind).interval)
        yield row | {name: m.of(task.setting, name, task.kind).mean for name in COUNTS}


def _client_rows(m: PushMeasurements) -> Iterator[Row]:
    for kind in KINDS:
        row: dict[str, object] = {"kind": kind}
        for name in METRICS:
            row |= cells(f"{name} saved", m.saved_by_clients(name, kind).interval)
        yield row


def draw(m: PushMeasurements, folder: Path) -> dict[str, Path]:
    """Return a figure for each number that is varied."""
    folder.mkdir(parents=True, exist_ok=True)
    over = m.experiment
    lines: dict[str, tuple[str, dict[str, dict[float, PushCacheSetting]]]] = {
        "threshold": (
            "push-threshold, requests per half hour",
            {"hops": {x: replace(CENTRE, threshold=float(x)) for x in over.thresholds}},
        ),
        "pages": ("pages to push", {name: {x: by(name, pages=x) for x in over.pages} for name in STRATEGIES}),
        "servers": (
            "available push-caches",
            {name: {x: by(name, servers=x) for x in over.servers} for name in STRATEGIES},
        ),
    }
    return {name: _drawn(m, folder / name, *line) for name, line in lines.items()}


def _drawn(m: PushMeasurements, path: Path, axis: str, lines: dict[str, dict[float, PushCacheSetting]]) -> Path:
    shown: dict[str, Callable[[PushCacheSetting], Sample]] = {
        "traffic saved, %": lambda one: m.saved(one, "traffic") * 100,
        "primary traffic saved, %": lambda one: m.saved(one, "primary_traffic") * 100,
        ACTIVE: lambda one: m.of(one, "active"),
    }
    figure, axes = panels(len(shown), width=3.8, height=3.4)
    for panel, (title, metric) in zip(axes, shown.items(), strict=True):
        for place, (strategy, settings) in enumerate(lines.items()):
            shift = APART ** (place - (len(lines) - 1) / 2)
            line = {shift * x: metric(setting).interval for x, setting in settings.items()}
            means(panel, line, *LOOKS[strategy])
        _axes(panel, axis, title, list(next(iter(lines.values()))))
    if len(lines) > 1:
        legend(figure, axes)
    return save(figure, path)[0]


def _axes(panel: Axes, axis: str, title: str, values: list[float]) -> None:
    panel.set_xscale("log")
    panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.minorticks_off()
    panel.set_xlabel(axis)
    panel.set_ylabel(title)
    panel.axhline(0, color="#444444", lw=0.8, zorder=1)
    if title == ACTIVE:
        panel.yaxis.set_major_locator(MaxNLocator(integer=True))
