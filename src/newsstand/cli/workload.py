"""`newsstand workload`: traces, generated or imported."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from newsstand.cli import workload_push1995
from newsstand.cli.options import Conf, Force, Json, Master, OutFolder, Strict
from newsstand.cli.progress import progress, say
from newsstand.cli.workload_rows import counted_rows, print_rows

app = typer.Typer(
    help="Write traces: each a folder of publications, requests and subscriptions.", no_args_is_help=True
)


@app.command("chen2003")
def chen2003(
    out: OutFolder,
    trace: Annotated[
        Literal["news", "alternative"],
        typer.Option(help="news (Zipf 1.5) or alternative (Zipf 1.0)."),
    ] = "news",
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 1,
    requests: Annotated[int, typer.Option(help="How many requests.")] = 195_000,
    proxies: Annotated[int, typer.Option(help="How many proxies.")] = 100,
    pages: Annotated[int, typer.Option(help="How many pages are published, versions included.")] = 30_147,
    sq: Annotated[float, typer.Option(help="Subscription quality, in (0, 1].")] = 1.0,
    popularity: Annotated[
        Literal["dynamic", "literal"],
        typer.Option(help="dynamic: rates follow rank and age at every moment; literal: totals are Zipf."),
    ] = "dynamic",
    force: Force = False,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Write the news workload of Chen, LaPaugh & Singh (2003).

    Example: newsstand workload chen2003 --trace news --seed 1 --out my-trace
    """
    from newsstand.spark import open_session
    from newsstand.workload.chen2003 import News
    from newsstand.workload.generate import generate
    from newsstand.workload.store import refuse_existing

    news = News(trace, seed, requests, proxies, pages, sq, popularity)
    refuse_existing(out, force=force)
    session = open_session(master, conf or (), "newsstand workload", brief=requests < 5_000_000)
    with session as spark, progress(spark, "generating"):
        generate(spark, news, out, force=force)
    asked = {key: asdict(news)[key] for key in ("trace", "seed", "pages", "sq", "popularity")}
    _tell(out, asked, as_json)


@app.command("bad2018")
def bad2018(
    out: OutFolder,
    subscribers: Annotated[int, typer.Option(help="How many subscribers.")] = 10_000,
    subscriptions: Annotated[int, typer.Option(help="How many unique subscriptions.")] = 1_000,
    per_subscriber: Annotated[int, typer.Option(help="Live subscriptions of each subscriber.")] = 10,
    hours: Annotated[float, typer.Option(help="The simulated time.")] = 6.0,
    interval: Annotated[
        tuple[float, float],
        typer.Option(
            metavar="FROM TO", help="Seconds between results: a subscription's mean is uniform over these."
        ),
    ] = (10.0, 60.0),
    size: Annotated[
        tuple[int, int], typer.Option(metavar="FROM TO", help="Bytes of a result, uniform over these.")
    ] = (1_000, 500_000),
    on: Annotated[tuple[float, float], typer.Option(metavar="MU SIGMA", help="Minutes online, log-normal.")] = (
        1.753,
        1.425,
    ),
    off: Annotated[tuple[float, float], typer.Option(metavar="MU SIGMA", help="Minutes offline, log-normal.")] = (
        2.415,
        1.11,
    ),
    duration: Annotated[
        tuple[float, float],
        typer.Option(metavar="MU SIGMA", help="Minutes that a subscription lasts, log-normal."),
    ] = (1.0, 2.0),
    popularity: Annotated[
        Literal["uniform", "zipf"], typer.Option(help="How subscriptions are chosen: all alike, or by Zipf's law.")
    ] = "uniform",
    exponent: Annotated[float, typer.Option(help="Of Zipf's law.")] = 1.0,
    join_minutes: Annotated[float, typer.Option(help="Subscribers join over this first period.")] = 0.0,
    start: Annotated[
        Literal["online", "stationary"],
        typer.Option(help="Who joins is online, or in either state as if there for long."),
    ] = "online",
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 1,
    force: Force = False,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Write the broker's workload of Uddin & Venkatasubramanian (2018), Table II, as a table of events.

    Example: newsstand workload bad2018 --seed 1 --out my-events
    """
    from newsstand.spark import open_session
    from newsstand.workload.bad2018 import SimulationSettings
    from newsstand.workload.bad2018_generate import HOLDS, generate
    from newsstand.workload.store import refuse_existing

    settings = SimulationSettings(
        subscribers,
        subscriptions,
        per_subscriber,
        hours,
        interval,
        size,
        on,
        off,
        duration,
        popularity,
        exponent,
        join_minutes,
        start,
        seed,
    )
    refuse_existing(out, force=force, holds=HOLDS)
    session = open_session(master, conf or (), "newsstand workload", brief=subscribers < 50_000)
    with session as spark, progress(spark, "generating"):
        events = generate(spark, settings, out, force=force)
    if as_json:
        print(json.dumps({"out": str(out), "events": events, **settings.described()}))
    else:
        print(f"{out}: {events:,} events")


app.command("push1995")(workload_push1995.push1995)
app.command("push1995-import")(workload_push1995.push1995_import)
app.command("push1995-report")(workload_push1995.push1995_report)


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help="A trace folder, an access log, or an oracleGeneral file.")],
    out: OutFolder,
    source_format: Annotated[
        str, typer.Option("--format", help="auto, trace, access-log or oracle-general.")
    ] = "auto",
    strict: Strict = False,
    force: Force = False,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Read what you have and write it as a trace that replays fast.

    Example: newsstand workload import access.log --out my-trace
    """
    from newsstand.spark import open_session
    from newsstand.workload.check import check
    from newsstand.workload.sources import format_of, is_small, read_source
    from newsstand.workload.store import refuse_existing, write_trace

    refuse_existing(out, force=force)
    source_format = format_of(source, source_format)
    session = open_session(master, conf or (), "newsstand import", brief=is_small(source))
    with session as spark, progress(spark, "importing"):
        trace = read_source(spark, source, source_format, strict=strict)
        check(trace)
        write_trace(trace, out, force=force)
    for note in trace.notes:
        say(f"note: {note}")
    _tell(out, {"source": str(source), "notes": list(trace.notes)}, as_json)


def _tell(out: Path, asked: dict[str, object], as_json: bool) -> None:
    from newsstand.workload.trace import COLUMNS

    rows = counted_rows(out, COLUMNS)
    if as_json:
        print(json.dumps({"out": str(out), **rows, **asked}))
    else:
        print_rows(out, rows)
