"""`newsstand coordinator`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from newsstand.cli.progress import say


def coordinator(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with a table [coordinator].")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The data folder (coordinator-data).")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="The address to listen on (127.0.0.1).")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="The port (8770); 0 for a free one.")
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            "--secret-file", metavar="FILE", help="A file with the platform's secret, 32 characters or more."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="How brokers are chosen (nearest): nearest, hops, miles, random, least-loaded.",
        ),
    ] = None,
    lease: Annotated[
        float | None,
        typer.Option("--lease-s", metavar="S", help="Seconds that a broker may be silent before it is dead (3)."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="FILE", help="TLS: the certificate, PEM.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="FILE", help="TLS: its key, PEM.")] = None,
) -> None:
    """Run the coordinator of a platform's brokers until Ctrl-C or SIGTERM.

    Example: newsstand coordinator --secret-file platform.secret --data coordinator-data --policy nearest
    """
    from newsstand.coordinator.serve import serve
    from newsstand.coordinator.settings import read_settings
    from newsstand.serving.request_log import log_to

    options = {
        "data": data,
        "host": host,
        "port": port,
        "secret_file": secret_file,
        "policy": policy,
        "lease_s": lease,
        "certificate": certificate,
        "key": key,
    }
    settings = read_settings(config, os.environ, options)
    log_to(sys.stderr)
    serve(settings, say=say)
