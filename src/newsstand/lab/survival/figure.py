"""The figure of mean survival times over a range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from newsstand.errors import BadOption
from newsstand.lab.reporting.figures import COLOURS, means, panels, require_drawable, save
from newsstand.lab.reporting.statistics import Interval
from newsstand.lab.survival.solve import SurvivalAnswer

AXES = {
    "brokers": "brokers n",
    "slots": "slots k",
    "publish_rate": "publications per unit of time λ_b",
    "client_rate": "clients per message, broker and unit of time λ_c",
    "intensity": "clients per message and broker ρ_c",
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p", "h", "<", ">")
STYLES = ("-", "--", "-.", ":")
WHOLE = ("brokers", "slots")
MOST_LINES = len(MARKERS)
"""More cannot be distinguished."""
SMALLEST, LARGER = 3.5, 1.1
"""Markers are hollow, each larger than the one before, so that equal lines are visible."""
Line = dict[float, SurvivalAnswer]


def require_drawable_ranges(path: Path, ranged: Sequence[str], count: int = 1) -> None:
    """Raise BadOption for a figure that cannot be drawn, before anything is computed for it."""
    require_drawable(path)
    if not ranged:
        raise BadOption("needs a number with a range, such as `slots` 5:30:5", figure=path)
    if len(ranged) > 2:
        raise BadOption(f"at most two numbers may have a range, not {', '.join(ranged)}", figure=path)
    if count > MOST_LINES:
        raise BadOption(f"{count} lines would be drawn, and at most {MOST_LINES} are legible", figure=path)


def draw_survival(answers: Sequence[SurvivalAnswer], ranged: Sequence[str], path: Path) -> None:
    """Draw a line for each policy, method and value of the second range: mean survival times, or slots found."""
    lines = _lines(answers, ranged)
    figure, (axes,) = panels(1, width=7.4, height=4.2)
    finds_slots = answers[0].question.target_mst is not None
    for label, line in lines.items():
        if finds_slots:
            _draw_line(axes, {x: Interval(float(one.setting.slots)) for x, one in line.items()}, label)
        elif next(iter(line.values())).class_mst:
            _draw_classes(axes, line, label)
        else:
            _draw_line(axes, {x: one.mst for x, one in line.items()}, label)
    if not finds_slots:
        if len(lines) == 1:
            _draw_quartiles(axes, next(iter(lines.values())))
        _draw_bounds(axes, list(lines.values()))
    if ranged[0] in WHOLE:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if finds_slots:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel(AXES[ranged[0]])
    axes.set_ylabel("slots" if finds_slots else "mean survival time")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    save(figure, path, (path.suffix,))


def _lines(answers: Sequence[SurvivalAnswer], ranged: Sequence[str]) -> dict[str, Line]:
    lines: dict[str, Line] = {}
    balanced = {one.question.method for one in answers if one.model == "balanced"} - {"balanced"}
    for answer in answers:
        method = answer.question.method
        name = [str(answer.setting.policy), f"{method} (balanced)" if method in balanced else method]
        if len(ranged) > 1:
            name.append(f"{ranged[1].replace('_', ' ')} {getattr(answer.setting, ranged[1]):g}")
        lines.setdefault(", ".join(name), {})[getattr(answer.setting, ranged[0])] = answer
    return lines


def _draw_line(axes: Axes, of: Mapping[float, Interval], label: str) -> None:
    place = len(axes.containers)
    look = (COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)], STYLES[place % len(STYLES)])
    means(axes, of, label, look)
    (drawn, *_) = axes.containers[-1]
    drawn.set(markerfacecolor="none", markersize=SMALLEST + LARGER * place)


def _draw_classes(axes: Axes, line: Line, label: str) -> None:
    for number, one in enumerate(next(iter(line.values())).question.classes):
        of = {x: answer.class_mst[number] for x, answer in line.items()}
        _draw_line(axes, of, f"{label}, class {number + 1}, intensity {one.intensity:g}")


def _draw_quartiles(axes: Axes, line: Line) -> None:
    low, high = ([one.quantiles[level].mean for one in line.values()] for level in (0.25, 0.75))
    has_classes = bool(next(iter(line.values())).class_mst)
    colour, whose = ("#888888", "quartiles of all messages") if has_classes else (COLOURS[0], "quartiles")
    axes.fill_between(list(line), low, high, color=colour, alpha=0.15, lw=0, label=f"{whose}, if cached")


def _draw_bounds(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw the bounds if they are the same for all lines and not one number."""
    first, *others = ([one.setting.bounds for one in line.values()] for line in lines)
    if any(other != first for other in others) or all(low == high for low, high in first):
        return
    for bounds, dashes, label in zip(zip(*first, strict=True), ("--", ":"), ("least", "most"), strict=True):
        axes.plot(list(lines[0]), bounds, dashes, color="#888888", lw=1, label=f"{label} possible")
