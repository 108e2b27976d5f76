"""What `newsstand reproduce push1995` leaves in its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from newsstand.lab.figures import COLOURS, Look, legend, means, panels, save
from newsstand.lab.intervals import interval
from newsstand.lab.push1995 import CENTRE, KINDS, STRATEGIES, Experiment, Measured
from newsstand.lab.push1995_claims import by, claims
from newsstand.lab.push_cache_setting import PushCacheSetting
from newsstand.lab.report import REPORT, Listed, Shown, result, write_report, write_tables

LOOKS: dict[str, tuple[str, Look]] = {
    "hops": ("nearest by hops", (COLOURS[0], "o", "-")),
    "miles": ("nearest by miles", (COLOURS[1], "s", "--")),
    "random": ("chosen at random", (COLOURS[7], "^", ":")),
}
"""Labels and looks of the strategies, told apart by colour-blind readers and on grey paper, too."""
METRICS = ("traffic", "primary_traffic", "primary_requests", "server_traffic")
COUNTS = ("active", "available", "stored_bytes", "hits", "stale_hits", "redirects", "invalid", "pushes")
BARS = (
    "Means over the seeds; bars: 95 % intervals. Traffic is bytes times hops, primary traffic the bytes that "
    "servers send themselves; both are compared with no pushing."
)
CAPTIONS = {
    "threshold": ("The push-threshold", BARS),
    "pages": ("The number of pages to push, and what nearest means", BARS),
    "servers": ("The number of push-caches, and what nearest means", BARS),
}
ACTIVE = "active push-caches"
APART = 1.04
"""By this factor lines are apart at every value, so that no bar hides another."""
Metric = Callable[[PushCacheSetting], list[float]]


def write(measured: Measured, command: str, out: Path) -> dict[str, object]:
    """Write tables, figures and the report; the result for programs."""
    judged, drawn = claims(measured), draw(measured, out / "figures")
    tables = {"settings": pd.DataFrame(_rows(measured)), "clients": pd.DataFrame(_client_rows(measured))}
    write_tables(tables, out)
    write_report(
        out / REPORT,
        title="Geographical Push-Caching, reproduced",
        lead=f"Gwertzman and Seltzer (1995): servers push popular pages to where they are wanted. "
        f"{lead(measured.experiment)}",
        command=command,
        claims=judged,
        figures=[Shown(*CAPTIONS[name], file) for name, file in drawn.items()],
        tables=[
            Listed("What pushing saves", tables["settings"].round(4)),
            Listed("What infinite client caches save", tables["clients"].round(4)),
        ],
    )
    return result(judged, tables, drawn, out)


def lead(experiment: Experiment) -> str:
    """What was run, and how verdicts come about."""
    alone = " One seed has no intervals, so nothing is judged." if len(experiment.seeds) == 1 else ""
    return (
        f"The logs of the paper are not to be had: traces are generated, {experiment.requests:,} requests in "
        f"{experiment.days} days for 20 servers from 1000 subnets, with {len(experiment.seeds)} seeds. Unless "
        "said otherwise the push-threshold is 100, 10 pages are pushed at a time, there are 20 push-caches, and "
        "nearest is by hops. Settings are compared seed by seed. A claim holds if all of the 95 % interval is on "
        f"its side, fails if all of it is on the other, and else is undecided.{alone}"
    )


def _rows(m: Measured) -> Iterator[dict[str, object]]:
    for task in m.experiment.settings:
        if not task.setting.servers:
            continue
        told = {name: value for name, value in asdict(task.setting).items() if name != "seed"}
        row: dict[str, object] = {"kind": task.kind, **told}
        for name in METRICS:
            found = interval(m.saved(task.setting, name, task.kind))
            row |= {f"{name} saved": found.mean, f"{name} saved ±": found.half}
        outcomes = m.outcomes(task.setting, task.kind)
        yield row | {name: interval([getattr(one, name) for one in outcomes]).mean for name in COUNTS}


def _client_rows(m: Measured) -> Iterator[dict[str, object]]:
    for kind in KINDS:
        row: dict[str, object] = {"kind": kind}
        for name in METRICS:
            found = interval(m.saved_by_clients(name, kind))
            row |= {f"{name} saved": found.mean, f"{name} saved ±": found.half}
        yield row


def draw(m: Measured, folder: Path) -> dict[str, Path]:
    """A figure for each number that is varied."""
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


def _drawn(m: Measured, path: Path, axis: str, lines: dict[str, dict[float, PushCacheSetting]]) -> Path:
    shown: dict[str, Metric] = {
        "traffic saved, %": lambda one: [100 * share for share in m.saved(one, "traffic")],
        "primary traffic saved, %": lambda one: [100 * share for share in m.saved(one, "primary_traffic")],
        ACTIVE: lambda one: [float(outcome.active) for outcome in m.outcomes(one)],
    }
    figure, axes = panels(len(shown), width=3.8, height=3.4)
    for panel, (title, metric) in zip(axes, shown.items(), strict=True):
        for place, (strategy, settings) in enumerate(lines.items()):
            shift = APART ** (place - (len(lines) - 1) / 2)
            line = {shift * x: interval(metric(setting)) for x, setting in settings.items()}
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
