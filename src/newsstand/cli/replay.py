"""`newsstand replay`: broker events through result caches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from newsstand.caching import RESULT_POLICIES
from newsstand.cli.options import Conf, Json, Master
from newsstand.cli.progress import each, progress

if TYPE_CHECKING:
    from newsstand.lab.broker_events import BrokerEvents
    from newsstand.lab.result_counts import Measured
    from newsstand.lab.result_replay import ReplaySetting


def replay(
    events: Annotated[
        Path, typer.Argument(help="Broker events: CSV, Parquet, a folder of Parquet parts, or a broker's access/.")
    ],
    cache_bytes: Annotated[
        list[int],
        typer.Option("--cache-bytes", metavar="N ...", help="One or more budgets of all caches together."),
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", metavar="P ...", help=f"One or more of {', '.join(RESULT_POLICIES)}; default all."
        ),
    ] = None,
    evict: Annotated[
        Literal["put", "after"],
        typer.Option(help="Make room when a result was put, or after those online have it."),
    ] = "put",
    expiry: Annotated[
        Literal["cache", "object"],
        typer.Option(help="Expiry by a cache's present time to live, or by that of the insertion."),
    ] = "cache",
    end_ms: Annotated[
        int | None, typer.Option("--end-ms", metavar="T", help="When to stop; default with the last event.")
    ] = None,
    window_ms: Annotated[
        int, typer.Option("--window-ms", metavar="W", help="How often times to live are computed.")
    ] = 300_000,
    windows: Annotated[
        int, typer.Option("--windows", metavar="K", help="Over how many windows growth is measured.")
    ] = 1,
    cap_ms: Annotated[int, typer.Option("--cap-ms", metavar="C", help="The longest time to live.")] = 3_600_000,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw hit ratio over cache size (.svg, .png or .pdf).")
    ] = None,
    engine: Annotated[
        Literal["auto", "core", "compiled"],
        typer.Option(
            help="The live broker's core, or the same compiled, for large tables; the answers are equal."
        ),
    ] = "auto",
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Replay broker events under many policies and cache sizes.

    Example: newsstand replay events.csv --policy lsc ttl --cache-bytes 50000000 100000000 --json
    """
    from newsstand.lab.broker_events import read_events
    from newsstand.lab.result_replay import ReplaySetting
    from newsstand.lab.result_runs import chosen, is_for_spark, replay_all

    if figure is not None:
        from newsstand.lab.figures import require_drawable

        require_drawable(figure)
    names = list(RESULT_POLICIES) if not policy or policy == ["all"] else list(dict.fromkeys(policy))
    settings = [
        ReplaySetting(name, size, evict, expiry, end_ms, window_ms, windows, cap_ms)
        for name in names
        for size in dict.fromkeys(cache_bytes)
    ]
    table = read_events(events)
    picked = chosen(engine, table, settings)
    if master or conf or is_for_spark(table, settings):
        answers = _on_spark(table, settings, picked, master, conf or ())
    else:
        answers = list(each(replay_all(table, settings, picked), len(settings), "replaying"))
    if figure is not None:
        from newsstand.lab.result_figure import draw_cache_sizes

        draw_cache_sizes(answers, figure, title=str(events))
    if as_json:
        print(json.dumps(answers))
    else:
        show(answers)


def _on_spark(
    table: BrokerEvents, settings: Sequence[ReplaySetting], engine: str, master: str | None, conf: Sequence[str]
) -> list[dict[str, Measured]]:
    from newsstand.lab.result_sweep import sweep
    from newsstand.spark import open_session

    with open_session(master, conf, "newsstand replay", brief=True) as spark, progress(spark, "replaying"):
        return sweep(spark, table, settings, engine="objects" if engine == "core" else "compiled")


def show(answers: Sequence[Mapping[str, Measured]]) -> None:
    """Print a table for people."""
    table = Table(box=None, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for name in ("cache MB", "hit ratio", "late", "latency s", "fetched GB", "average MB", "largest MB", "held s"):
        table.add_column(name, justify="right")
    for answer in answers:
        table.add_row(
            str(answer["policy"]),
            _scaled(answer["cache_bytes"], 1e6),
            _rounded(answer["hit_ratio"], 4),
            _rounded(_late(answer), 4),
            _rounded(answer["mean_latency_s"], 3),
            _scaled(answer["fetch_bytes"], 1e9),
            *(_scaled(answer[name], 1e6) for name in ("avg_bytes", "max_bytes")),
            _rounded(answer["mean_hold_s"], 1),
        )
    Console().print(table)


def _late(answer: Mapping[str, Measured]) -> float | None:
    """The hit ratio of what was not pushed, but retrieved at a login."""
    hits, misses = (int(str(answer[name])) - int(str(answer[f"{name}_push"])) for name in ("hits", "misses"))
    return hits / (hits + misses) if hits + misses else None


def _scaled(value: Measured, unit: float) -> str:
    if value is None:
        return "-"
    units = float(str(value)) / unit
    return f"{units:,.0f}" if units >= 100 else f"{units:.3g}"


def _rounded(value: Measured, digits: int) -> str:
    return "-" if value is None else f"{float(str(value)):.{digits}f}"
