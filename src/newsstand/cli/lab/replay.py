"""`newsstand replay`: broker events through result caches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument

from newsstand.caching import RESULT_POLICIES
from newsstand.cli.options import Engine, Json, SparkOptions
from newsstand.cli.terminal import each, print_table

if TYPE_CHECKING:
    from newsstand.lab.results.replay import Measure


def replay(
    spark: SparkOptions,
    events: Annotated[
        Path, Argument(help="Broker events: CSV, Parquet, a folder of Parquet parts, or a broker's access/.")
    ],
    cache_bytes: Annotated[list[int], "N ...", "One or more budgets of all caches together."],
    policy: Annotated[
        list[str] | None, "P ...", f"One or more of {', '.join(RESULT_POLICIES)}; default all."
    ] = None,
    evict: Annotated[
        Literal["put", "after"], "Make room when a result was put, or after those online have it."
    ] = "put",
    expiry: Annotated[
        Literal["cache", "object"], "Expiry by a cache's present time to live, or by that of the insertion."
    ] = "cache",
    end_ms: Annotated[int | None, "T", "When to stop; default with the last event."] = None,
    window_ms: Annotated[int, "W", "How often times to live are computed."] = 300_000,
    windows: Annotated[int, "K", "Over how many windows growth is measured."] = 1,
    cap_ms: Annotated[int, "C", "The longest time to live."] = 3_600_000,
    figure: Annotated[Path | None, "FILE", "Draw hit ratio over cache size (.svg, .png or .pdf)."] = None,
    engine: Engine = "auto",
    implementation: Annotated[
        Literal["auto", "core", "compiled"],
        "The live broker's core, or the same compiled; auto chooses by the size. The results are equal.",
    ] = "auto",
    as_json: Json = False,
) -> None:
    """Replay broker events under many policies and cache sizes.

    Example: newsstand replay events.csv --policy lsc ttl --cache-bytes 50000000 100000000 --json
    """
    from newsstand.lab.results.events import read_events
    from newsstand.lab.results.replay import ReplaySetting, choose_implementation, replay_all

    if figure is not None:
        from newsstand.lab.reporting.figures import require_drawable

        require_drawable(figure)
    names = list(RESULT_POLICIES) if not policy or policy == ["all"] else list(dict.fromkeys(policy))
    settings = [
        ReplaySetting(name, size, evict, expiry, end_ms, window_ms, windows, cap_ms)
        for name in names
        for size in dict.fromkeys(cache_bytes)
    ]
    on_spark = spark.is_chosen(engine)
    table = read_events(events)
    used = choose_implementation(table, settings) if implementation == "auto" else implementation
    if on_spark:
        from newsstand.lab.results.sweep import sweep

        with spark.session("replay", "replaying") as session:
            answers = sweep(session, table, settings, implementation=used)
    else:
        answers = list(each(replay_all(table, settings, used), len(settings), "replaying"))
    if figure is not None:
        from newsstand.lab.reporting.figures import draw_cache_sizes

        draw_cache_sizes(answers, figure, title=str(events))
    if as_json:
        print(json.dumps(answers))
    else:
        show(answers)


def show(answers: Sequence[Mapping[str, Measure]]) -> None:
    """Print a table for people."""
    numbers = ("cache MB", "hit ratio", "late", "latency s", "fetched GB", "average MB", "largest MB", "held s")
    rows = [
        (
            str(answer["policy"]),
            _scaled(answer["cache_bytes"], 1e6),
            _rounded(answer["hit_ratio"], 4),
            _rounded(_late(answer), 4),
            _rounded(answer["mean_latency_s"], 3),
            _scaled(answer["fetch_bytes"], 1e9),
            _scaled(answer["avg_bytes"], 1e6),
            _scaled(answer["max_bytes"], 1e6),
            _rounded(answer["mean_hold_s"], 1),
        )
        for answer in answers
    ]
    print_table(("policy", *numbers), rows, left=["policy"])


def _late(answer: Mapping[str, Measure]) -> float | None:
    """Return the hit ratio of what was not pushed, but retrieved at a login."""
    hits, misses = (int(str(answer[name])) - int(str(answer[f"{name}_push"])) for name in ("hits", "misses"))
    return hits / (hits + misses) if hits + misses else None


def _scaled(value: Measure, unit: float) -> str:
    if value is None:
        return "-"
    units = float(str(value)) / unit
    return f"{units:,.0f}" if units >= 100 else f"{units:.3g}"


def _rounded(value: Measure, digits: int) -> str:
    return "-" if value is None else f"{float(str(value)):.{digits}f}"
