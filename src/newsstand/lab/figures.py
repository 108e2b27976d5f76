"""Drawing: one look for all figures, written as files that people open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from newsstand.errors import BadOption
from newsstand.lab.intervals import Interval

# The object-oriented API alone: no window, no global state, safe in any thread.
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "svg.hashsalt": "newsstand",
    "svg.fonttype": "none",
}
COLOURS = ("#4c6a92", "#c8823c", "#5b8f5a", "#a34a4a", "#7b6a9c", "#8a6d53", "#c27ba0", "#7f7f7f", "#b0a437")

DASHES = ("-", "--", ":")

Look = tuple[str, str, str]
"""Colour, marker and dashes of a line; no dashes, no line between its markers."""


def panels(count: int, width: float = 4.6, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width * count, height), layout="constrained")
        axes = [figure.add_subplot(1, count, i + 1) for i in range(count)]
    return figure, axes


def bars(
    axes: Axes,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    spread: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Bars side by side in each group, with error bars where a spread is given."""
    width = 0.8 / max(1, len(series))
    for i, (label, values) in enumerate(series.items()):
        places = [g - 0.4 + width * (i + 0.5) for g in range(len(groups))]
        errors = None if spread is None else list(spread[label])
        colour = COLOURS[i % len(COLOURS)]
        axes.bar(places, list(values), width, label=label, color=colour, yerr=errors, error_kw={"lw": 0.8})
    axes.set_xticks(range(len(groups)), list(groups))


def lines(axes: Axes, x: Sequence[float], series: Mapping[str, Sequence[float]], marker: str = "") -> None:
    """One line a series."""
    for i, (label, values) in enumerate(series.items()):
        colour, dashes = COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)]
        axes.plot(list(x), list(values), dashes, label=label, color=colour, marker=marker, ms=4, lw=1.3)


def means(
    axes: Axes, of: Mapping[int, Interval] | Mapping[float, Interval], label: str, look: Look, factor: float = 1
) -> None:
    """A line through means, with the intervals of those that have one."""
    colour, marker, dashes = look
    axes.errorbar(
        list(of),
        [factor * one.mean for one in of.values()],
        [factor * one.half for one in of.values()],
        color=colour,
        marker=marker,
        ls=dashes or "none",
        ms=4.5,
        lw=1.3,
        elinewidth=0.7,
        capsize=1.5,
        label=label,
    )


def legend(figure: Figure, axes: Sequence[Axes], columns: int = 8) -> None:
    """One for all panels."""
    found = {
        label: handle for panel in axes for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        found.values(), found.keys(), loc="outside lower center", ncols=min(columns, len(found)), frameon=False
    )


def save(figure: Figure, path: Path, endings: Sequence[str] = (".svg", ".png")) -> list[Path]:
    """Write a figure in each format; the same data give the same bytes."""
    written = []
    for ending in endings:
        target = path.with_suffix(ending)
        metadata = {"Date": None} if ending == ".svg" else {"Software": None} if ending == ".png" else None
        with mpl.rc_context(STYLE):
            figure.savefig(target, dpi=130, metadata=metadata)
        written.append(target)
    return written


def require_drawable(path: Path) -> None:
    """Refuse a figure that could not be written, before anything is computed for it."""
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise BadOption(f"--figure {path}: the name must end in .svg, .png or .pdf")
    if not path.parent.is_dir():
        raise BadOption(f"--figure {path}: no folder {path.parent}")


def draw_capacities(answers: Sequence[Mapping[str, object]], path: Path, title: str) -> None:
    """Hit ratio over capacity, a line a policy (and beta, where there are several)."""
    require_drawable(path)
    betas = {answer["beta"] for answer in answers}
    series: dict[str, dict[float, float]] = {}
    for answer in answers:
        label = str(answer["policy"]) + (f" (beta {answer['beta']:g})" if len(betas) > 1 else "")
        series.setdefault(label, {})[float(str(answer["capacity"]))] = float(str(answer["hit_ratio"]))
    capacities = sorted({capacity for values in series.values() for capacity in values})
    # The legend reads from top to bottom as the lines end.
    series = dict(sorted(series.items(), key=lambda item: -item[1][capacities[-1]]))
    figure, (axes,) = panels(1, width=7.4, height=4.2)
    if len(capacities) == 1:
        bars(axes, [f"{capacities[0]:g}"], {label: [*values.values()] for label, values in series.items()})
    else:
        lines(axes, capacities, {label: [v[c] for c in capacities] for label, v in series.items()}, marker="o")
    axes.set_xlabel("capacity (fraction of the bytes requested at a proxy)")
    axes.set_ylabel("hit ratio")
    axes.set_title(title)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    save(figure, path, (path.suffix,))
