"""Commands that run a whole platform on this machine: `newsstand up`, and `newsstand demo` with a city on it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from newsstand.cli.data.connection import AppFolder
from newsstand.cli.options import DataFolder, Json, SparkOptions, Verbose, make_folder
from newsstand.cli.terminal import print_table, say

if TYPE_CHECKING:
    from newsstand.platform.processes import Platform
    from newsstand.scenarios.emergencies.driver import Cast
    from newsstand.scenarios.emergencies.state import State


def up(
    spark: SparkOptions,
    app: AppFolder,
    data: DataFolder = None,
    host: Annotated[str | None, "The address that all processes listen on; default: 127.0.0.1."] = None,
    base_port: Annotated[
        int | None,
        Option(
            min=0,
            max=65000,
            help="The coordinator's port (8770); the cluster's is 10 more, the brokers' 20 and on; 0: free ports.",
        ),
    ] = None,
    cluster_port: Annotated[int | None, Option(min=0, max=65535, help="The cluster's port.")] = None,
    coordinator_port: Annotated[int | None, Option(min=0, max=65535, help="The coordinator's port.")] = None,
    brokers: Annotated[
        int | None, Option(min=1, max=100, metavar="N", help="How many brokers, if not as declared.")
    ] = None,
    log: Annotated[
        Path | None, "FILE", "Where the log goes, if not to logs/platform.log in the data folder."
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run cluster, coordinator and brokers of an app until Ctrl-C or SIGTERM; start again what dies.

    They log to one file, one JSON object per line, with the name of the process; the terminal shows addresses and
    problems. A second Ctrl-C kills all.

    Example: newsstand up my-app --brokers 2
    """
    from newsstand.platform.processes import Ports, plan
    from newsstand.platform.tables import check_app

    known, declared = check_app(app, os.environ)
    platform = plan(
        known,
        declared,
        data=data,
        host=host,
        ports=Ports(base_port, cluster_port, coordinator_port),
        brokers=brokers,
        spark=spark.words,
    )
    raise typer.Exit(run_until_stopped(platform, log, as_json, verbose=verbose))


def run_until_stopped(platform: Platform, log: Path | None, as_json: bool, *, verbose: bool = False) -> int:
    """Run a platform, and print its addresses when it is ready; return the exit code."""
    import asyncio

    from newsstand.platform.lifecycle import StartupInterrupted, running

    async def run() -> int:
        try:
            async with running(platform, say, log, verbose=verbose) as supervisor:
                if as_json:
                    addresses = {**platform.addresses(), "log": str((log or platform.folder.log).absolute())}
                    print(json.dumps(addresses), flush=True)
                else:
                    titles = ("component", "address", "token or secret")
                    print_table(titles, platform.rows(), left=titles)
                    print(f"The log is {log or platform.folder.log}", flush=True)
                await supervisor.stopping.wait()
                say("newsstand: stopping …")
        except StartupInterrupted:
            return 130
        return 130 if supervisor.killed else 0

    return asyncio.run(run())


PAGE = "127.0.0.1"


def demo(
    spark: SparkOptions,
    duration: Annotated[
        float | None, Option(min=1, metavar="S", help="Seconds to play; default: until Ctrl-C.")
    ] = None,
    headless: Annotated[bool, "Without the page."] = False,
    subscribers: Annotated[int, Option(min=1, max=5000, help="People of the city.")] = 300,
    brokers: Annotated[int, Option(min=1, max=10, help="Brokers.")] = 2,
    budget: Annotated[int, Option(min=0, metavar="BYTES", help="For the result caches of each broker.")] = 8_000,
    speed: Annotated[float, Option(min=0.1, max=100, help="How fast time passes in the city.")] = 1.0,
    seed: Annotated[int, "The seed of the city."] = 2018,
    port: Annotated[int, Option(min=0, max=65535, help="The page's port; 0 for a free one.")] = 8760,
    base_port: Annotated[int, Option(min=0, max=65000, help="As in `newsstand up`; 0 takes free ports.")] = 0,
    data: Annotated[Path | None, "DIR", "Keep app, data and log here; else all is removed."] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Play emergencies in a city on a whole platform: reports, shelters, people who move, log in and read.

    At the end it prints a summary.

    Example: newsstand demo --duration 60
    """
    import asyncio

    from newsstand.cluster.app_folder import read_app
    from newsstand.platform.processes import Ports, free_port, plan, reject_used
    from newsstand.platform.tables import read_tables
    from newsstand.scenarios.emergencies.app import write_app
    from newsstand.scenarios.emergencies.driver import Cast

    if not headless:
        port = port or free_port(PAGE)
        reject_used("the page", PAGE, port, "--port")
    with _folder(data) as folder:
        app = folder / "emergencies"
        write_app(app, speed=speed, brokers=brokers, budget=budget)
        platform = plan(read_app(app), read_tables(app), ports=Ports(base_port), spark=spark.words)
        cast = Cast(subscribers, duration, speed, seed=seed)
        summary = asyncio.run(_play(platform, cast, None if headless else port, verbose=verbose))
    if summary is None:
        raise typer.Exit(130)
    print(json.dumps(summary) if as_json else _table(summary))


async def _play(platform: Platform, cast: Cast, port: int | None, *, verbose: bool) -> dict[str, Any] | None:
    """Play the demo; return the summary, None if it was stopped before it began."""
    from newsstand.platform.lifecycle import StartupInterrupted, running
    from newsstand.scenarios.emergencies import state
    from newsstand.scenarios.emergencies.driver import cast_for

    if port is not None:
        say(f"The page will be at http://{PAGE}:{port}/ as soon as Spark has started, in half a minute or so.")
    try:
        async with running(platform, say, verbose=verbose) as supervisor:
            assert platform.admin_token is not None
            where = state.PlatformAddresses(
                platform.cluster.url,
                platform.admin_token.read_text().strip(),
                platform.coordinator_url,
                [part.url for part in platform.brokers],
                [platform.folder.operator_token("demo", name) for name in platform.names],
            )
            async with cast_for(where, cast) as driver, _page(driver.state, port):
                say(f"Ready; {cast.subscribers} people get accounts and subscribe, and Spark warms up …")
                await driver.prepare(supervisor.stopping)
                until = "until Ctrl-C" if cast.duration_s is None else f"for {cast.duration_s:g} s"
                look = "" if port is None else f": look at http://{PAGE}:{port}/"
                say(f"The city lives {until}{look}")
                return await driver.play(supervisor.stopping)
    except StartupInterrupted:
        return None


@asynccontextmanager
async def _page(shown: State, port: int | None) -> AsyncIterator[None]:
    """Serve the page for the length of an `async with` block."""
    import asyncio

    if port is None:
        yield
        return
    import uvicorn

    from newsstand.web.dashboard import create_dashboard

    class _PageServer(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # Ctrl-C is the platform's

    config = uvicorn.Config(
        create_dashboard(shown),
        host=PAGE,
        port=port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
    )
    server = _PageServer(config)
    serving = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    if data is None:
        with TemporaryDirectory(prefix="newsstand-demo-") as folder:
            yield Path(folder)
        return
    make_folder(data, "--data")
    yield data.absolute()


def _table(summary: dict[str, Any]) -> str:
    result, notification = summary["latency_ms"]["result"], summary["latency_ms"]["notification"]
    ratio, requested = summary["hit_ratio"], summary["hits"] + summary["misses"]
    rows = [
        ("subscribers", f"{summary['subscribers']:,}", f"with {summary['subscriptions']:,} subscriptions"),
        ("publications", f"{summary['publications']:,}", f"in {summary['seconds']:.0f} s"),
        ("results", f"{summary['results']:,}", "made by the cluster, one per stream"),
        ("notifications", f"{summary['notifications']:,}", "to subscribers online"),
        ("received", f"{summary['received']:,}", f"results; {summary['acknowledged']:,} acknowledged"),
        (
            "hit ratio",
            "—" if ratio is None else f"{ratio:.4f}",
            f"under {summary['policy']}: {summary['hits']:,} of {requested:,} from the cache",
        ),
        (
            "fetched",
            _size(summary["fetched_bytes"]),
            f"from the cluster; {_size(summary['pulled_bytes'])} of it pulled before a request",
        ),
        ("notified", _ms(notification["p50"]), f"p99 {_ms(notification['p99'])}: from the webhook to the socket"),
        ("read", _ms(result["p50"]), f"p99 {_ms(result['p99'])}: from the result to a subscriber online"),
    ]
    lines = [f"{name:<14}{value:>12}  {words}" for name, value, words in rows]
    if summary["troubles"]:
        lines.append(f"{summary['troubles']} calls were retried: {summary['last_trouble']}")
    return "\n".join(lines)


def _size(count: int) -> str:
    return f"{count / 1000:,.0f} kB"


def _ms(milliseconds: float | None) -> str:
    return "—" if milliseconds is None else f"{milliseconds:,.0f} ms"
