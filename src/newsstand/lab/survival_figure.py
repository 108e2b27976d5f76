"""Mean survival times over a range, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from newsstand.errors import BadOption
from newsstand.lab.figures import COLOURS, DASHES, means, panels, require_drawable, save
from newsstand.lab.intervals import Interval
from newsstand.lab.survival_answers import Answer

AXES = {
    "brokers": "brokers n",
    "slots": "slots k",
    "publish_rate": "publications per unit of time λ_b",
    "client_rate": "clients per message, broker and unit of time λ_c",
    "intensity": "clients per message and broker ρ_c",
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
Line = dict[float, Answer]


def require_drawable_ranges(path: Path, ranged: Sequence[str]) -> None:
    """Refuse what cannot be drawn, before anything is computed for it."""
    require_drawable(path)
    if not ranged:
        raise BadOption(f"--figure {path}: nothing to draw it over; give one option a range, as --slots 5:30:5")
    if len(ranged) > 2:
        raise BadOption(f"--figure {path}: at most two options may have a range, not {', '.join(ranged)}")


def draw_survival(answers: Sequence[Answer], ranged: Sequence[str], path: Path) -> None:
    """A line for each policy, method and value of the second range; slots, if these were asked for."""
    lines = _lines(answers, ranged)
    figure, (axes,) = panels(1, width=7.4, height=4.2)
    finds_slots = answers[0].question.target_mst is not None
    for place, (label, line) in enumerate(lines.items()):
        look = (COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)], DASHES[place // len(COLOURS) % 3])
        if finds_slots:
            means(axes, {x: Interval(float(one.setting.slots)) for x, one in line.items()}, label, look)
        elif next(iter(line.values())).class_mst:
            _draw_classes(axes, line, label, place)
        else:
            means(axes, {x: one.mst for x, one in line.items()}, label, look)
    if not finds_slots:
        if len(lines) == 1:
            _draw_quartiles(axes, next(iter(lines.values())))
        _draw_bounds(axes, list(lines.values()))
    axes.set_xlabel(AXES[ranged[0]])
    axes.set_ylabel("slots" if finds_slots else "mean survival time")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    save(figure, path, (path.suffix,))


def _lines(answers: Sequence[Answer], ranged: Sequence[str]) -> dict[str, Line]:
    lines: dict[str, Line] = {}
    for answer in answers:
        name = [str(answer.setting.policy), answer.question.method]
        if len(ranged) > 1:
            name.append(f"{ranged[1].replace('_', ' ')} {getattr(answer.setting, ranged[1]):g}")
        lines.setdefault(", ".join(name), {})[getattr(answer.setting, ranged[0])] = answer
    return lines


def _draw_classes(axes: Axes, line: Line, label: str, place: int) -> None:
    for number, one in enumerate(next(iter(line.values())).question.classes):
        look = (COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)], DASHES[place % len(DASHES)])
        of = {x: answer.class_mst[number] for x, answer in line.items()}
        means(axes, of, f"{label}, intensity {one.intensity:g}", look)


def _draw_quartiles(axes: Axes, line: Line) -> None:
    low, high = ([one.quantiles[level].mean for one in line.values()] for level in (0.25, 0.75))
    axes.fill_between(list(line), low, high, color=COLOURS[0], alpha=0.15, lw=0, label="quartiles, if cached")


def _draw_bounds(axes: Axes, lines: Sequence[Line]) -> None:
    """Where they are the same for all lines, and not one number."""
    first, *others = ([one.setting.bounds for one in line.values()] for line in lines)
    if any(other != first for other in others) or all(low == high for low, high in first):
        return
    for bounds, dashes, label in zip(zip(*first, strict=True), ("--", ":"), ("least", "most"), strict=True):
        axes.plot(list(lines[0]), bounds, dashes, color="#888888", lw=1, label=f"{label} possible")
