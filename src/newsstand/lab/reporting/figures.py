"""Figures: one style for all, written as SVG, PNG or PDF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from newsstand.errors import BadOption
from newsstand.lab.reporting.statistics import Interval

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
    """Return a figure with panels side by side."""
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
    """Draw bars side by side in each group, with error bars where a spread is given."""
    width = 0.8 / max(1, len(series))
    for i, (label, values) in enumerate(series.items()):
        places = [g - 0.4 + width * (i + 0.5) for g in range(len(groups))]
        errors = None if spread is None else list(spread[label])
        colour = COLOURS[i % len(COLOURS)]
        axes.bar(places, list(values), width, label=label, color=colour, yerr=errors, error_kw={"lw": 0.8})
    axes.set_xticks(range(len(groups)), list(groups))


def lines(axes: Axes, x: Sequence[float], series: Mapping[str, Sequence[float]], marker: str = "") -> None:
    """Draw one line for each series."""
    for i, (label, values) in enumerate(series.items()):
        colour, dashes = COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)]
        axes.plot(list(x), list(values), dashes, label=label, color=colour, marker=marker, ms=4, lw=1.3)


def means(
    axes: Axes, of: Mapping[int, Interval] | Mapping[float, Interval], label: str, look: Look, factor: float = 1
) -> None:
    """Draw a line through means, with the intervals of those that have one."""
    colour, marker, dashes = look
    heights, halves = [factor * one.mean for one in of.values()], [factor * one.half for one in of.values()]
    style: dict[str, Any] = {"ms": 4.5, "lw": 1.3, "elinewidth": 0.7, "capsize": 1.5}
    axes.errorbar([*of], heights, halves, color=colour, marker=marker, ls=dashes or "none", label=label, **style)


def legend(figure: Figure, axes: Sequence[Axes], columns: int = 8) -> None:
    """Draw one legend for all panels."""
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
        figure.set_layout_engine("none")  # the next format has the same layout, which takes long to compute
        written.append(target)
    return written


def save_all(figures: Mapping[str, Figure], folder: Path) -> dict[str, Path]:
    """Write figures as SVG and PNG into a folder; return the SVG of each."""
    folder.mkdir(parents=True, exist_ok=True)
    return {name: save(figure, folder / name)[0] for name, figure in figures.items()}


def require_drawable(path: Path) -> None:
    """Raise BadOption for a figure that cannot be written, before anything is computed for it."""
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise BadOption("the name must end in .svg, .png or .pdf", figure=path)
    if not path.parent.is_dir():
        raise BadOption(f"no folder {path.parent}", figure=path)


def draw_capacities(answers: Sequence[Mapping[str, object]], path: Path, title: str) -> None:
    """Draw hit ratio over capacity, a line for each policy (and beta, where there are several).

    The axis has fractions, or the bytes of all caches together if a capacity is a number of bytes.
    """
    betas = {answer["beta"] for answer in answers}
    in_bytes = any(answer["capacity"] is None for answer in answers)
    series: dict[str, dict[float, float]] = {}
    errors: dict[str, dict[float, float]] = {}
    for answer in answers:
        label = str(answer["policy"]) + (f" (beta {answer['beta']:g})" if len(betas) > 1 else "")
        place = float(str(answer["cache_bytes"])) / 1e6 if in_bytes else float(str(answer["capacity"]))
        series.setdefault(label, {})[place] = float(str(answer["hit_ratio"]))
        errors.setdefault(label, {})[place] = float(str(answer.get("hit_ratio_error", 0.0)))
    axis = "size of all caches (MB)" if in_bytes else "capacity (fraction of the bytes requested at a proxy)"
    draw_hit_ratios(series, path, title, axis, errors)


def draw_cache_sizes(answers: Sequence[Mapping[str, object]], path: Path, title: str) -> None:
    """Draw hit ratio over cache size, a line for each policy; nothing retrieved counts as no hit."""
    series: dict[str, dict[float, float]] = {}
    for answer in answers:
        megabytes = float(str(answer["cache_bytes"])) / 1e6
        series.setdefault(str(answer["policy"]), {})[megabytes] = float(str(answer["hit_ratio"] or 0.0))
    draw_hit_ratios(series, path, title, "cache size (MB)")


WIDE = 100
"""From this ratio of the last value to the first on, an axis is logarithmic."""


def draw_hit_ratios(
    series: Mapping[str, Mapping[float, float]],
    path: Path,
    title: str,
    axis: str,
    errors: Mapping[str, Mapping[float, float]] | None = None,
) -> None:
    """Draw a line for each label over the values of an axis, with errors; bars where there is one value only."""
    require_drawable(path)
    places = sorted({place for values in series.values() for place in values})
    # The legend is in the order in which the lines end, from top to bottom.
    series = dict(sorted(series.items(), key=lambda item: -item[1][places[-1]]))
    figure, (axes,) = panels(1, width=7.4, height=4.2)
    if len(places) == 1:
        bars(axes, [f"{places[0]:g}"], {label: [*values.values()] for label, values in series.items()})
    else:
        lines(axes, places, {label: [v[place] for place in places] for label, v in series.items()}, marker="o")
        for line, (label, values) in zip(axes.get_lines(), series.items(), strict=True):
            half = (errors or {}).get(label, {})
            low, high = ([values[place] + sign * half.get(place, 0.0) for place in places] for sign in (-1, 1))
            axes.fill_between(places, low, high, color=line.get_color(), alpha=0.2, lw=0)
        if places[0] > 0 and places[-1] >= WIDE * places[0]:
            axes.set_xscale("log")
    axes.set(xlabel=axis, ylabel="hit ratio", title=title)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    save(figure, path, (path.suffix,))
