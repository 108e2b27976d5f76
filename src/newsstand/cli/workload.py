"""`newsstand workload`: traces, generated or imported, and the demand in push traces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from newsstand.cli.options import Commands, Force, Json, OutFolder, SparkOptions, Strict
from newsstand.cli.terminal import print_table, say
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.lab.papers.push1995.demand import ServerDemand


app = Commands(help="Write traces: each a folder of publications, requests and subscriptions.")


def counted_rows(out: Path, tables: Iterable[str]) -> dict[str, int]:
    """Return the rows of each table of a folder, by the footers of its Parquet files."""
    import pyarrow.parquet as pq

    from newsstand.workload.trace.files import data_files, table_path

    return {
        name: sum(pq.read_metadata(file).num_rows for file in data_files(table_path(out, name))) for name in tables
    }


def print_rows(out: Path, rows: Mapping[str, int]) -> None:
    """Print the row counts in one line."""
    print(f"{out}: " + ", ".join(f"{count:,} {name}" for name, count in rows.items()))


def _fields_of(settings: type[Any], context: typer.Context) -> dict[str, Any]:
    """Return the options of a command that are fields of its settings."""
    return {field.name: context.params[field.name] for field in fields(settings) if field.name in context.params}


@app.command("push1995")
def push1995(
    spark: SparkOptions,
    context: typer.Context,
    out: OutFolder,
    kind: Annotated[
        Literal["global", "local", "flat"],
        "global: the whole world asks, mostly for few pages; local: mostly from nearby; "
        "flat: for all pages alike.",
    ] = "global",
    servers: Annotated[int, "How many servers."] = 20,
    subnets: Annotated[int, "How many subnets."] = 1_000,
    requests: Annotated[int, "How many requests."] = 200_000,
    days: Annotated[int, "The time they take."] = 7,
    pages: Annotated[int, "Pages of each server."] = 500,
    core: Annotated[
        float | None, "The share of requests to a server's ten most popular pages (global, local: 0.5)."
    ] = None,
    regional: Annotated[
        float | None, "The share of visits from near the server (global, flat: 0.1; local: 0.8)."
    ] = None,
    visit: Annotated[float, "Requests of one visit, on average; 1: no locality in time."] = 8.0,
    drift: Annotated[float, "The share of popularity ranks that go to other pages every day."] = 0.0,
    server_skew: Annotated[float, "The exponent of Zipf's law over servers."] = 0.8,
    rhythm: Annotated[float, "How far visits go up and down with the time of day."] = 0.6,
    size: Annotated[tuple[float, float], "MU SIGMA", "Bytes of a page, log-normal."] = (6.908, 1.177),
    lifetime: Annotated[float, "Days between modifications, of a median page."] = 50.0,
    seed: Annotated[int, "Same seed, same bytes."] = 1,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a push trace: who asks which server for which page (after Gwertzman & Seltzer, 1995).

    Example: newsstand workload push1995 --kind global --seed 1 --out my-push-trace
    """
    from newsstand.geo.backbone_sources import cities
    from newsstand.workload.push1995.generator import generate
    from newsstand.workload.push1995.settings import PushSettings
    from newsstand.workload.push1995.trace import HOLDS
    from newsstand.workload.push1995.world import populated
    from newsstand.workload.trace.folder import reject_existing

    settings = PushSettings(**_fields_of(PushSettings, context))
    reject_existing(out, force=force, holds=HOLDS)
    with spark.session("workload", "generating", brief=requests < 5_000_000) as session:
        rows = generate(session, settings, populated(settings, cities()), out, force=force)
    if as_json:
        print(json.dumps({"out": str(out), "rows": rows, **settings.described()}))
    else:
        print_rows(out, rows)


@app.command("push1995-import")
def push1995_import(
    spark: SparkOptions,
    out: OutFolder,
    log: Annotated[list[str], "SERVER=FILE", "A server's access log, or a folder of them; may be repeated."],
    servers: Annotated[Path, "FILE", "CSV or Parquet: name, latitude, longitude of each server."],
    places: Annotated[
        Path, "FILE", "CSV or Parquet: subnet (a prefix such as 192.0.2.0/24, or a domain), latitude, longitude."
    ],
    strict: Strict = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a push trace out of the access logs of servers.

    Example: newsstand workload push1995-import --log www=www.log --servers www.csv --places places.csv --out mine
    """
    from newsstand.workload.push1995.logs import read_push_logs
    from newsstand.workload.push1995.trace import HOLDS, check_push_trace, write_push_trace
    from newsstand.workload.trace.folder import reject_existing
    from newsstand.workload.trace.sources import is_small

    logs = _logs(log)
    for option, path in (("--servers", servers), ("--places", places)):
        if not path.exists():
            raise BadOption(f"{option} {path}: no such file or folder")
    reject_existing(out, force=force, holds=HOLDS)
    brief = all(map(is_small, logs.values()))
    with spark.session("import", "importing", brief=brief) as session:
        trace = read_push_logs(session, logs, servers, places, strict=strict)
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
            raise BadOption(f"--log {option}: must have the form SERVER=FILE")
        if name in logs:
            raise BadOption(f"--log {option}: {name} has a log already; put its files into one folder")
        if not Path(path).exists():
            raise BadOption(f"--log {option}: no such file or folder")
        logs[name] = Path(path)
    return logs


@app.command("push1995-report")
def push1995_report(
    spark: SparkOptions,
    trace: Annotated[Path, Argument(help="A folder with the tables of a push trace.")],
    pages: Annotated[int, "How many of a server's pages are its most popular."] = 10,
    square: Annotated[
        float | None, "DEGREES", "Count requests by squares of this many degrees, not by subnet."
    ] = None,
    as_json: Json = False,
) -> None:
    """Count the requests of each server, and compare where popular pages and all pages are requested.

    Example: newsstand workload push1995-report my-push-trace
    """
    from newsstand.lab.papers.push1995.demand import mean, server_demand
    from newsstand.workload.push1995.trace import check_push_trace, read_push_trace
    from newsstand.workload.trace.sources import is_small

    if pages < 1:
        raise BadOption(f"--pages {pages}: must be at least 1")
    if square is not None and not 0 < square <= 180:
        raise BadOption(f"--square {square:g}: must be above 0 and at most 180 degrees")
    with spark.session("report", "counting", brief=is_small(trace)) as session:
        read = read_push_trace(session, trace)
        check_push_trace(read)
        found = server_demand(read, pages, square)
    overall = mean([server.correlation for server in found])
    if as_json:
        print(json.dumps({"correlation": overall, "servers": [_described(server) for server in found]}))
    else:
        _print_table(found, pages, overall)


def _described(server: ServerDemand) -> dict[str, object]:
    described = asdict(server)
    popular = described.pop("popular")
    return {
        **described,
        "popular_share": server.popular_share,
        "correlation": server.correlation,
        "popular": popular,
    }


def _print_table(found: list[ServerDemand], pages: int, overall: float | None) -> None:
    titles = ("server", "requests", "pages", "subnets", "busiest half hour", f"top {pages}", "correlation")
    rows = [
        (
            server.name,
            *(f"{count:,}" for count in (server.requests, server.pages, server.subnets, server.busiest_requests)),
            f"{server.popular_share:.3f}",
            _shown(server.correlation),
        )
        for server in found
    ]
    print_table(titles, rows, left=["server"])
    print(f"Where requests for the {pages} most popular pages come from, and where all of their server's do:")
    print(f"correlation {_shown(overall)} on average.")


def _shown(correlation: float | None) -> str:
    return "-" if correlation is None else f"{correlation:.3f}"


@app.command("chen2003")
def chen2003(
    spark: SparkOptions,
    out: OutFolder,
    trace: Annotated[Literal["news", "alternative"], "news (Zipf 1.5) or alternative (Zipf 1.0)."] = "news",
    seed: Annotated[int, "Same seed, same bytes."] = 1,
    requests: Annotated[int, "How many requests."] = 195_000,
    proxies: Annotated[int, "How many proxies."] = 100,
    pages: Annotated[int, "How many pages are published, versions included."] = 30_147,
    sq: Annotated[float, "Subscription quality, in (0, 1]."] = 1.0,
    popularity: Annotated[
        Literal["dynamic", "literal"],
        "dynamic: rates follow rank and age at every moment; literal: totals are Zipf.",
    ] = "dynamic",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the news workload of Chen, LaPaugh & Singh (2003).

    Example: newsstand workload chen2003 --trace news --seed 1 --out my-trace
    """
    from newsstand.workload.chen2003.generator import generate
    from newsstand.workload.chen2003.publishing import News
    from newsstand.workload.trace.folder import reject_existing

    news = News(trace, seed, requests, proxies, pages, sq, popularity)
    reject_existing(out, force=force)
    with spark.session("workload", "generating", brief=requests < 5_000_000) as session:
        generate(session, news, out, force=force)
    parameters = {key: asdict(news)[key] for key in ("trace", "seed", "pages", "sq", "popularity")}
    _print_result(out, parameters, as_json)


@app.command("bad2018")
def bad2018(
    spark: SparkOptions,
    context: typer.Context,
    out: OutFolder,
    subscribers: Annotated[int, "How many subscribers."] = 10_000,
    subscriptions: Annotated[int, "How many unique subscriptions."] = 1_000,
    per_subscriber: Annotated[int, "Live subscriptions of each subscriber."] = 10,
    hours: Annotated[float, "The simulated time."] = 6.0,
    interval: Annotated[
        tuple[float, float], "FROM TO", "Seconds between results: a subscription's mean is uniform over these."
    ] = (10.0, 60.0),
    size: Annotated[tuple[int, int], "FROM TO", "Bytes of a result, uniform over these."] = (1_000, 500_000),
    on: Annotated[tuple[float, float], "MU SIGMA", "Minutes online, log-normal."] = (1.753, 1.425),
    off: Annotated[tuple[float, float], "MU SIGMA", "Minutes offline, log-normal."] = (2.415, 1.11),
    duration: Annotated[tuple[float, float], "MU SIGMA", "Minutes that a subscription lasts, log-normal."] = (
        1.0,
        2.0,
    ),
    popularity: Annotated[
        Literal["uniform", "zipf"], "How subscriptions are chosen: all alike, or by Zipf's law."
    ] = "uniform",
    exponent: Annotated[float, "Of Zipf's law."] = 1.0,
    join_minutes: Annotated[float, "Subscribers join over this first period."] = 0.0,
    start: Annotated[
        Literal["online", "stationary"], "A subscriber joins online, or in either state, as after a long time."
    ] = "online",
    seed: Annotated[int, "Same seed, same bytes."] = 1,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the broker's workload of Uddin & Venkatasubramanian (2018), Table II, as a table of events.

    Example: newsstand workload bad2018 --seed 1 --out my-events
    """
    from newsstand.workload.bad2018.events import SimulationSettings
    from newsstand.workload.bad2018.generator import HOLDS, generate
    from newsstand.workload.trace.folder import reject_existing

    settings = SimulationSettings(**_fields_of(SimulationSettings, context))
    reject_existing(out, force=force, holds=HOLDS)
    with spark.session("workload", "generating", brief=subscribers < 50_000) as session:
        events = generate(session, settings, out, force=force)
    if as_json:
        print(json.dumps({"out": str(out), "events": events, **settings.described()}))
    else:
        print(f"{out}: {events:,} events")


@app.command("import")
def import_(
    spark: SparkOptions,
    source: Annotated[Path, Argument(help="A trace folder, an access log, or an oracleGeneral file.")],
    out: OutFolder,
    source_format: Annotated[str, Option("--format", help="auto, trace, access-log or oracle-general.")] = "auto",
    strict: Strict = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Read what you have and write it as a trace that replays fast.

    Example: newsstand workload import access.log --out my-trace
    """
    from newsstand.workload.trace.folder import check, reject_existing, write_trace
    from newsstand.workload.trace.sources import format_of, is_small, read_source

    reject_existing(out, force=force)
    source_format = format_of(source, source_format)
    with spark.session("import", "importing", brief=is_small(source)) as session:
        trace = read_source(session, source, source_format, strict=strict)
        check(trace)
        write_trace(trace, out, force=force)
    for note in trace.notes:
        say(f"note: {note}")
    _print_result(out, {"source": str(source), "notes": list(trace.notes)}, as_json)


def _print_result(out: Path, parameters: dict[str, object], as_json: bool) -> None:
    from newsstand.workload.trace.files import TABLES

    rows = counted_rows(out, TABLES)
    if as_json:
        print(json.dumps({"out": str(out), **rows, **parameters}))
    else:
        print_rows(out, rows)
