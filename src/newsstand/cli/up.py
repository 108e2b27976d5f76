"""`newsstand up`: the whole platform of an app on this machine."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from newsstand.cli.options import Conf, Json, Master, Verbose
from newsstand.cli.progress import say
from newsstand.cli.publish import AppFolder

if TYPE_CHECKING:
    from newsstand.platform.parts import Platform


def up(
    app: AppFolder,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The data folder, if not the app's.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="The address that all parts listen on; 127.0.0.1 unless told.")
    ] = None,
    base_port: Annotated[
        int | None,
        typer.Option(
            "--base-port",
            min=0,
            max=65000,
            help="The coordinator's port (8770); the cluster's is 10 more, the brokers' 20 and on; 0: free ports.",
        ),
    ] = None,
    cluster_port: Annotated[
        int | None, typer.Option("--cluster-port", min=0, max=65535, help="The cluster's port.")
    ] = None,
    coordinator_port: Annotated[
        int | None, typer.Option("--coordinator-port", min=0, max=65535, help="The coordinator's port.")
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option("--brokers", min=1, max=100, metavar="N", help="How many brokers, if not as declared."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log", metavar="FILE", help="Where the log goes, if not to logs/platform.log in the data folder."
        ),
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Run cluster, coordinator and brokers of an app until Ctrl-C or SIGTERM; start again what dies.

    What they log goes to one file, one JSON object a line, with the part's name; the terminal shows addresses and
    problems. A second Ctrl-C kills all.

    Example: newsstand up my-app --brokers 2
    """
    from newsstand.platform.checked import read_checked
    from newsstand.platform.parts import Ports, plan

    known, declared = read_checked(app, os.environ)
    spark = [*(("--master", master) if master else ()), *(word for one in conf or () for word in ("--conf", one))]
    platform = plan(
        known,
        declared,
        data=data,
        host=host,
        ports=Ports(base_port, cluster_port, coordinator_port),
        brokers=brokers,
        spark=spark,
    )
    raise typer.Exit(run_until_stopped(platform, log, as_json, verbose=verbose))


def run_until_stopped(platform: Platform, log: Path | None, as_json: bool, *, verbose: bool = False) -> int:
    """Run a platform; tell where its parts are when it is ready. The exit code."""
    from newsstand.platform.running import Stopped, running

    async def run() -> int:
        try:
            async with running(platform, say, log, verbose=verbose) as supervisor:
                if as_json:
                    told = {**platform.addresses(), "log": str((log or platform.folder.log).absolute())}
                    print(json.dumps(told), flush=True)
                else:
                    print(table(platform, log), flush=True)
                await supervisor.stopping.wait()
                say("newsstand: stopping …")
        except Stopped:
            return 130
        return 130 if supervisor.killed else 0

    return asyncio.run(run())


def table(platform: Platform, log: Path | None = None) -> str:
    """Where everything is, for people."""
    rows = [("part", "address", "token or secret"), *platform.rows()]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [f"{part:<{widths[0]}}  {address:<{widths[1]}}  {file}" for part, address, file in rows]
    return "\n".join([*lines, f"The log is {log or platform.folder.log}"])
