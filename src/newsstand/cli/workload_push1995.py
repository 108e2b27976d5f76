"""`newsstand workload push1995…`: push traces, generated or made of logs, and the demand in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from newsstand.cli.options import Conf, Force, Json, Master, OutFolder, Strict
from newsstand.cli.progress import progress, say
from newsstand.cli.workload_rows import counted_rows, print_rows
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.lab.push1995_demand_report import ServerDemand


def push1995(
    out: OutFolder,
    kind: Annotated[
        Literal["global", "local", "flat"],
        typer.Option(
            help="global: the whole world asks, mostly for few pages; local: mostly from nearby; "
            "flat: for all pages alike."
        ),
    ] = "global",
    servers: Annotated[int, typer.Option(help="How many servers.")] = 20,
    subnets: Annotated[int, typer.Option(help="How many subnets.")] = 1_000,
    requests: Annotated[int, typer.Option(help="How many requests.")] = 200_000,
    days: Annotated[int, typer.Option(help="The time they take.")] = 7,
    pages: Annotated[int, typer.Option(help="Pages of each server.")] = 500,
    core: Annotated[
        float | None,
        typer.Option(help="The share of requests to a server's ten most popular pages (global, local: 0.5)."),
    ] = None,
    regional: Annotated[
        float | None,
        typer.Option(help="The share of visits from near the server (global, flat: 0.1; local: 0.8)."),
    ] = None,
    visit: Annotated[float, typer.Option(help="Requests of one visit, on average; 1: no locality in time.")] = 8.0,
    drift: Annotated[
        float, typer.Option(help="The share of popularity ranks that go to other pages every day.")
    ] = 0.0,
    server_skew: Annotated[float, typer.Option(help="The exponent of Zipf's law over servers.")] = 0.8,
    rhythm: Annotated[float, typer.Option(help="How far visits go up and down with the time of day.")] = 0.6,
    size: Annotated[tuple[float, float], typer.Option(metavar="MU SIGMA", help="Bytes of a page, log-normal.")] = (
        6.908,
        1.177,
    ),
    lifetime: Annotated[float, typer.Option(help="Days between modifications, of a median page.")] = 50.0,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 1,
    force: Force = False,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Write a push trace: who asks which server for which page (after Gwertzman & Seltzer, 1995).

    Example: newsstand workload push1995 --kind global --seed 1 --out my-push-trace
    """
    from newsstand.planning.backbone_waxman import cities
    from newsstand.spark import open_session
    from newsstand.workload.push1995 import PushSettings
    from newsstand.workload.push1995_generate import generate
    from newsstand.workload.push1995_trace import HOLDS
    from newsstand.workload.push1995_world import populated
    from newsstand.workload.store import refuse_existing

    settings = PushSettings(
        kind=kind,
        servers=servers,
        subnets=subnets,
        requests=requests,
        days=days,
        pages=pages,
        core=core,
        regional=regional,
        visit=visit,
        drift=drift,
        server_skew=server_skew,
        rhythm=rhythm,
        size=size,
        lifetime=lifetime,
        seed=seed,
    )
    refuse_existing(out, force=force, holds=HOLDS)
    session = open_session(master, conf or (), "newsstand workload", brief=requests < 5_000_000)
    with session as spark, progress(spark, "generating"):
        rows = generate(spark, settings, populated(settings, cities()), out, force=force)
    if as_json:
        print(json.dumps({"out": str(out), "rows": rows, **settings.described()}))
    else:
        print_rows(out, rows)


def push1995_import(
    out: OutFolder,
    log: Annotated[
        list[str],
        typer.Option(metavar="SERVER=FILE", help="A server's access log, or a folder of them; may be repeated."),
    ],
    servers: Annotated[
        Path, typer.Option(metavar="FILE", help="CSV or Parquet: name, latitude, longitude of each server.")
    ],
    places: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="CSV or Parquet: subnet (a prefix such as 192.0.2.0/24, or a domain), latitude, longitude.",
        ),
    ],
    strict: Strict = False,
    force: Force = False,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Write a push trace out of the access logs of servers.

    Example: newsstand workload push1995-import --log www=www.log --servers www.csv --places places.csv --out mine
    """
    from newsstand.spark import open_session
    from newsstand.workload.push1995_logs import read_push_logs
    from newsstand.workload.push1995_trace import HOLDS, check_push_trace, write_push_trace
    from newsstand.workload.sources import is_small
    from newsstand.workload.store import refuse_existing

    logs = _logs(log)
    for option, path in (("--servers", servers), ("--places", places)):
        if not path.exists():
            raise BadOption(f"{option} {path}: no such file or folder")
    refuse_existing(out, force=force, holds=HOLDS)
    brief = all(map(is_small, logs.values()))
    session = open_session(master, conf or (), "newsstand import", brief=brief)
    with session as spark, progress(spark, "importing"):
        trace = read_push_logs(spark, logs, servers, places, strict=strict)
        check_push_trace(trace)
        write_push_trace(trace, out, force=force)
    for note in trace.notes:
        say(f"note: {note}")
    rows = counted_rows(out, HOLDS)
    if as_json:
        print(json.dumps({"out": str(out), "rows": rows, "notes": list(trace.notes)}))
    else:
        print_rows(out, rows)


def _logs(options: list[str]) -> dict[str, Path]:
    logs: dict[str, Path] = {}
    for option in options:
        name, equals, path = option.partition("=")
        if not (name and equals and path):
            raise BadOption(f"--log {option}: is not of the form SERVER=FILE")
        if name in logs:
            raise BadOption(f"--log {option}: {name} has a log already; put its files into one folder")
        if not Path(path).exists():
            raise BadOption(f"--log {option}: no such file or folder")
        logs[name] = Path(path)
    return logs


def push1995_report(
    trace: Annotated[Path, typer.Argument(help="A folder with the tables of a push trace.")],
    pages: Annotated[int, typer.Option(help="How many of a server's pages are its most popular.")] = 10,
    square: Annotated[
        float | None,
        typer.Option(metavar="DEGREES", help="Count requests by squares of so many degrees, not by subnet."),
    ] = None,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Who asks each server for what, and whether its popular pages are asked for from where all are.

    Example: newsstand workload push1995-report my-push-trace
    """
    from newsstand.lab.push1995_demand_report import demand, mean
    from newsstand.spark import open_session
    from newsstand.workload.push1995_trace import check_push_trace, read_push_trace
    from newsstand.workload.sources import is_small

    if pages < 1:
        raise BadOption(f"--pages {pages}: is less than 1")
    if square is not None and not 0 < square <= 180:
        raise BadOption(f"--square {square:g}: is outside (0, 180] degrees")
    session = open_session(master, conf or (), "newsstand report", brief=is_small(trace))
    with session as spark, progress(spark, "counting"):
        read = read_push_trace(spark, trace)
        check_push_trace(read)
        found = demand(read, pages, square)
    overall = mean([server.correlation for server in found])
    if as_json:
        print(json.dumps({"correlation": overall, "servers": [_described(server) for server in found]}))
    else:
        _print_table(found, pages, overall)


def _described(server: ServerDemand) -> dict[str, object]:
    from dataclasses import asdict

    told = asdict(server)
    popular = told.pop("popular")
    return {**told, "popular_share": server.popular_share, "correlation": server.correlation, "popular": popular}


def _print_table(found: list[ServerDemand], pages: int, overall: float | None) -> None:
    header = ("server", "requests", "pages", "subnets", "busiest half hour", f"top {pages}", "correlation")
    rows = [
        (
            server.name,
            f"{server.requests:,}",
            f"{server.pages:,}",
            f"{server.subnets:,}",
            f"{server.busiest_requests:,}",
            f"{server.popular_share:.3f}",
            _shown(server.correlation),
        )
        for server in found
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        first, *others = (
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *others]).rstrip())
    print(f"Where requests for the {pages} most popular pages come from, and where all of their server's do:")
    print(f"correlation {_shown(overall)} on average.")


def _shown(correlation: float | None) -> str:
    return "-" if correlation is None else f"{correlation:.3f}"
