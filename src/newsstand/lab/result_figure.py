"""Hit ratio over cache size, from replays of broker events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from newsstand.lab.figures import bars, lines, panels, require_drawable, save
from newsstand.lab.result_counts import Measured


def draw_cache_sizes(answers: Sequence[Mapping[str, Measured]], path: Path, title: str) -> None:
    """A line a policy; bars where there is one size only. Nothing retrieved counts as no hit."""
    require_drawable(path)
    series: dict[str, dict[float, float]] = {}
    for answer in answers:
        megabytes = float(str(answer["cache_bytes"])) / 1e6
        series.setdefault(str(answer["policy"]), {})[megabytes] = float(str(answer["hit_ratio"] or 0.0))
    sizes = sorted({size for values in series.values() for size in values})
    # The legend reads from top to bottom as the lines end.
    series = dict(sorted(series.items(), key=lambda item: -item[1][sizes[-1]]))
    figure, (axes,) = panels(1, width=7.4, height=4.2)
    if len(sizes) == 1:
        bars(axes, [f"{sizes[0]:g}"], {policy: [*values.values()] for policy, values in series.items()})
    else:
        lines(axes, sizes, {policy: [values[size] for size in sizes] for policy, values in series.items()}, "o")
    axes.set_xlabel("cache size (MB)")
    axes.set_ylabel("hit ratio")
    axes.set_title(title)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    save(figure, path, (path.suffix,))
