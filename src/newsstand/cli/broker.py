"""`newsstand broker`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from newsstand.cli.progress import say

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A TOML file with a table of settings; options win over it."),
]


def broker(
    config: Config = None,
    name: Annotated[str | None, typer.Option("--name", help="What the cluster calls it.")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", metavar="URL", help="The data cluster.")] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Its credential: see `newsstand token broker`."),
    ] = None,
    data: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Its data folder.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="The address to listen on; 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="The port, 8790; 0 for a free one.")
    ] = None,
    coordinator: Annotated[
        str | None, typer.Option("--coordinator", metavar="URL", help="The coordinator, if there is one.")
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option("--secret-file", metavar="FILE", help="Its own secret, if it has no coordinator."),
    ] = None,
    results_policy: Annotated[
        str | None,
        typer.Option(
            "--results-policy", metavar="P", help="nc lru lsc lscz lsd exp ttl, or one beyond the paper; lscz-any."
        ),
    ] = None,
    results_budget: Annotated[
        int | None, typer.Option("--results-budget", min=0, metavar="BYTES", help="For all result caches.")
    ] = None,
    pages_policy: Annotated[
        str | None, typer.Option("--pages-policy", metavar="P", help="Any page policy; sg2.")
    ] = None,
    pages_capacity: Annotated[
        int | None, typer.Option("--pages-capacity", min=0, metavar="BYTES", help="For pages.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="FILE", help="For TLS, in PEM.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="FILE", help="The certificate's key.")] = None,
) -> None:
    """Run an edge broker until Ctrl-C or SIGTERM.

    Settings come from the table [broker] of --config, then from NEWSSTAND_BROKER_… in the environment, then from
    options.

    Example: newsstand broker --name edge --cluster http://127.0.0.1:8780 --token-file edge.token --data edge-data
    """
    options = {name: value for name, value in locals().items() if name != "config"}
    from newsstand.broker.serve import serve
    from newsstand.broker.settings import BrokerSettings
    from newsstand.serving.request_log import log_to
    from newsstand.serving.settings import read_settings

    settings = read_settings(BrokerSettings, "broker", config, os.environ, options)
    log_to(sys.stderr)
    serve(settings, say=say)
