"""`newsstand demo`: a whole platform with a city on it, and a page to watch them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newsstand.cli.options import Conf, Json, Master, Verbose
from newsstand.cli.progress import say

if TYPE_CHECKING:
    from newsstand.platform.parts import Platform
    from newsstand.scenarios.emergencies.driver import Cast
    from newsstand.scenarios.emergencies.state import State

PAGE = "127.0.0.1"


def demo(
    duration: Annotated[
        float | None,
        typer.Option("--duration", min=1, metavar="S", help="Seconds to play; until Ctrl-C if not told."),
    ] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Without the page.")] = False,
    subscribers: Annotated[int, typer.Option("--subscribers", min=1, max=5000, help="People of the city.")] = 300,
    brokers: Annotated[int, typer.Option("--brokers", min=1, max=10, help="Brokers.")] = 2,
    budget: Annotated[
        int, typer.Option("--budget", min=0, metavar="BYTES", help="For the result caches of each broker.")
    ] = 8_000,
    speed: Annotated[
        float, typer.Option("--speed", min=0.1, max=100, help="How fast time passes in the city.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Another seed, another city.")] = 2018,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The page's port; 0 for a free one.")
    ] = 8760,
    base_port: Annotated[
        int, typer.Option("--base-port", min=0, max=65000, help="As in `newsstand up`; 0 takes free ports.")
    ] = 0,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Keep app, data and log here; else all is removed."),
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Play a city in trouble on a whole platform: reports, shelters, people who move, log in and out, and read.

    At the end it prints what came of it.

    Example: newsstand demo --duration 60
    """
    from newsstand.cluster.app_folder import read_app
    from newsstand.platform.declared import read_declared
    from newsstand.platform.parts import Ports, free_port, plan, refuse_used
    from newsstand.scenarios.emergencies.app import write_app
    from newsstand.scenarios.emergencies.driver import Cast

    if not headless:
        port = port or free_port(PAGE)
        refuse_used("the page", PAGE, port, "--port")
    spark = [*(("--master", master) if master else ()), *(word for one in conf or () for word in ("--conf", one))]
    with _folder(data) as folder:
        app = folder / "emergencies"
        write_app(app, speed=speed, brokers=brokers, budget=budget)
        platform = plan(read_app(app), read_declared(app), ports=Ports(base_port), spark=spark)
        cast = Cast(subscribers, duration, speed, seed=seed)
        summary = asyncio.run(_play(platform, cast, None if headless else port, verbose=verbose))
    if summary is None:
        raise typer.Exit(130)
    print(json.dumps(summary) if as_json else _table(summary))


async def _play(platform: Platform, cast: Cast, port: int | None, *, verbose: bool) -> dict[str, Any] | None:
    """The summary; None if it was stopped before it began."""
    from newsstand.platform.running import Stopped, running
    from newsstand.scenarios.emergencies import state
    from newsstand.scenarios.emergencies.driver import cast_for

    if port is not None:
        say(f"The page will be at http://{PAGE}:{port}/ as soon as Spark has started, in half a minute or so.")
    try:
        async with running(platform, say, verbose=verbose) as supervisor:
            assert platform.admin_token is not None
            where = state.Platform(
                platform.cluster.url,
                platform.admin_token.read_text().strip(),
                platform.coordinator.url,
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
    except Stopped:
        return None


@asynccontextmanager
async def _page(shown: State, port: int | None) -> AsyncIterator[None]:
    """The page, for the length of an `async with` block."""
    if port is None:
        yield
        return
    import uvicorn

    from newsstand.web.dashboard import create_dashboard

    class Server(uvicorn.Server):
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
    server = Server(config)
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
    from newsstand.cli.options import make_folder

    make_folder(data)
    yield data.absolute()


def _table(summary: dict[str, Any]) -> str:
    result, told = summary["latency_ms"]["result"], summary["latency_ms"]["notification"]
    ratio, asked = summary["hit_ratio"], summary["hits"] + summary["misses"]
    rows = [
        ("subscribers", f"{summary['subscribers']:,}", f"with {summary['subscriptions']:,} subscriptions"),
        ("publications", f"{summary['publications']:,}", f"in {summary['seconds']:.0f} s"),
        ("results", f"{summary['results']:,}", "made by the cluster, one for all who want the same"),
        ("notifications", f"{summary['notifications']:,}", "to who was online"),
        ("received", f"{summary['received']:,}", f"results; {summary['acknowledged']:,} acknowledged"),
        (
            "hit ratio",
            "—" if ratio is None else f"{ratio:.4f}",
            f"under {summary['policy']}: {summary['hits']:,} of {asked:,} from the cache",
        ),
        (
            "fetched",
            _size(summary["fetched_bytes"]),
            f"from the cluster; {_size(summary['pulled_bytes'])} of it before anybody asked",
        ),
        ("told after", _ms(told["p50"]), f"p99 {_ms(told['p99'])}: from the cluster's word to the socket"),
        ("read after", _ms(result["p50"]), f"p99 {_ms(result['p99'])}: from the result to who was online"),
    ]
    lines = [f"{name:<14}{value:>12}  {words}" for name, value, words in rows]
    if summary["troubles"]:
        lines.append(f"{summary['troubles']} times somebody had to try again: {summary['last_trouble']}")
    return "\n".join(lines)


def _size(count: int) -> str:
    return f"{count / 1000:,.0f} kB"


def _ms(milliseconds: float | None) -> str:
    return "—" if milliseconds is None else f"{milliseconds:,.0f} ms"
