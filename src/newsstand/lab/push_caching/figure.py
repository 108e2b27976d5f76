"""The figure of what push-caching saves over a range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.ticker import MaxNLocator

from newsstand.errors import BadOption
from newsstand.lab.push_caching.runs import Comparison
from newsstand.lab.reporting.figures import COLOURS, DASHES, legend, panels, require_drawable, save

AXES = {
    "threshold": "push-threshold, requests per half hour",
    "pages": "pages to push",
    "servers": "available push-caches",
    "slots": "pages a push-cache holds",
    "cap": "share of a push-cache for one server",
    "seed": "seed",
}
ACTIVE = "active push-caches"
SHOWN: dict[str, Callable[[Comparison], float]] = {
    "traffic, % of that without pushing": lambda one: 100 * one.outcome.traffic / one.without.traffic,
    "bytes that servers send,\n% of those without pushing": (
        lambda one: 100 * one.outcome.primary_traffic / one.without.primary_traffic
    ),
    ACTIVE: lambda one: float(one.outcome.active),
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Markers distinguish lines without colours."""
WITHOUT = "#444444"
"""The colour of the line at the value without pushing."""


def require_drawable_ranges(path: Path, ranged: Sequence[str]) -> None:
    """Raise BadOption for a figure that cannot be drawn, before anything is simulated for it."""
    require_drawable(path)
    if not ranged:
        raise BadOption("needs a number with a range, such as `servers` 5:40:5", figure=path)


def draw_push_caches(answers: Sequence[Comparison], ranged: Sequence[str], path: Path) -> None:
    """Draw a panel for each metric over the first range, with a line for each combination of the others."""
    lines = _lines(answers, ranged[0])
    figure, axes = panels(len(SHOWN), width=4.2, height=3.6)
    for panel, (title, metric) in zip(axes, SHOWN.items(), strict=True):
        for place, (label, line) in enumerate(lines.items()):
            dashes, colour = DASHES[place // len(COLOURS) % len(DASHES)], COLOURS[place % len(COLOURS)]
            marker, values = MARKERS[place % len(MARKERS)], [metric(answer) for answer in line.values()]
            panel.plot(list(line), values, dashes, color=colour, marker=marker, ms=4.5, lw=1.3, label=label)
        panel.set_xlabel(AXES[ranged[0]])
        panel.set_ylabel(title)
        panel.axhline(0 if title == ACTIVE else 100, color=WITHOUT, lw=0.8, zorder=1)
        if title == ACTIVE:
            panel.yaxis.set_major_locator(MaxNLocator(integer=True))
    if len(lines) > 1:
        legend(figure, axes, 4)
    save(figure, path, (path.suffix,))


def _lines(answers: Sequence[Comparison], over: str) -> dict[str, dict[float, Comparison]]:
    names = [name for name in AXES if name != over] + ["caching", "lookup", "client_cache"]
    varied = [name for name in names if len({getattr(answer.setting, name) for answer in answers}) > 1]
    lines: dict[str, dict[float, Comparison]] = {}
    for answer in answers:
        label = ", ".join(f"{name.replace('_', ' ')} {getattr(answer.setting, name)}" for name in varied)
        lines.setdefault(label, {})[getattr(answer.setting, over)] = answer
    return lines
