"""`newsstand cluster`, `newsstand broker`, `newsstand coordinator`: one server each; and `newsstand check`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from newsstand.cli.data.connection import AppFolder
from newsstand.cli.options import DataFolder, Json, SparkOptions
from newsstand.cli.terminal import say
from newsstand.errors import BadInput, BadOption

if TYPE_CHECKING:
    from newsstand.cluster.app_folder import App


def cluster(
    spark: SparkOptions,
    app: AppFolder,
    data: DataFolder = None,
    host: Annotated[str | None, "The address to listen on."] = None,
    port: Annotated[int | None, Option(min=0, max=65535, help="The port; 0 for a free one.")] = None,
) -> None:
    """Run the data cluster of an app until Ctrl-C or SIGTERM.

    Settings come from the table [cluster] of newsstand.toml, then from NEWSSTAND_CLUSTER_… in the environment,
    then from options.

    Example: newsstand cluster my-app --port 8780
    """
    from newsstand.cluster.app_folder import read_app
    from newsstand.cluster.server import serve
    from newsstand.http.request_log import log_to

    known = read_app(app, os.environ)
    log_to(sys.stderr)
    serve(known, data=data, host=host, port=port, master=spark.master, conf=spark.conf or (), say=say)


def check(spark: SparkOptions, app: AppFolder, as_json: Json = False) -> None:
    """Check an app folder: everything that newsstand.toml says, and every query against Spark.

    Example: newsstand check my-app
    """
    from newsstand.cluster.app_folder import BadAppFile
    from newsstand.platform.processes import plan
    from newsstand.platform.tables import check_app, push_warnings

    try:
        known, declared = check_app(app, os.environ)
        plan(known, declared)
    except BadAppFile as error:
        mistakes = error.mistakes
    except BadOption as error:
        mistakes = [str(error)]
    else:
        schemas, mistakes, warnings = _check_queries(known, spark)
    if mistakes:
        if as_json:
            print(json.dumps({"mistakes": mistakes}))
        for mistake in mistakes:
            say(f"newsstand: {' '.join(mistake.split())}")
        raise typer.Exit(2)
    notes = [*warnings, *push_warnings(known, declared)]
    fields = {name: {one.name: one.type for one in dataset.fields} for name, dataset in known.datasets.items()}
    if as_json:
        described = {"app": str(app), "datasets": fields, "channels": schemas, "mistakes": [], "notes": notes}
        print(json.dumps(described))
        return
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    for label, columns_of in (("dataset", fields), ("channel", schemas)):
        for name, columns in columns_of.items():
            print(f"{label} {name}: {', '.join(f'{column} {kind}' for column, kind in columns.items())}")
    datasets = f"{len(fields)} dataset{'s' * (len(fields) != 1)}"
    print(f"{app}: {datasets}, {len(schemas)} channel{'s' * (len(schemas) != 1)}, no mistakes")


def _check_queries(app: App, spark: SparkOptions) -> tuple[dict[str, dict[str, str]], list[str], list[str]]:
    """Return the columns of each channel with their types, the mistakes that Spark finds, and its warnings."""
    if not app.channels:
        return {}, [], []
    from newsstand.cluster.matching.failing_values import warnings_of
    from newsstand.cluster.matching.matcher import check_body
    from newsstand.cluster.query.parser import parse_body
    from newsstand.spark.session import cluster_settings

    warnings: list[str] = []
    schemas: dict[str, dict[str, str]] = {}
    mistakes: list[str] = []
    with spark.session("check", "checking", kind=cluster_settings(app.spark)) as session:
        for name, channel in app.channels.items():
            try:
                body = parse_body(channel, app.datasets)
                schema = check_body(session, body, app.datasets)
                warnings += warnings_of(session, body, app.datasets)
            except BadInput as error:
                mistakes.append(f"{app.file}: {error}")
            else:
                schemas[name] = {one.name: one.dataType.simpleString() for one in schema.fields}
    return schemas, mistakes, warnings


@dataclass(frozen=True)
class ServerOptions:
    """Settings of a broker or a coordinator; those that are None are in the file or the environment."""

    config: Annotated[Path | None, "FILE", "A TOML file with a table of settings; options win over it."] = None
    data: Annotated[Path | None, "DIR", "The data folder."] = None
    host: Annotated[str | None, "The address to listen on; 127.0.0.1."] = None
    port: Annotated[
        int | None, Option(min=0, max=65535, help="The port; of a broker 8790, else 8770; 0 for a free one.")
    ] = None
    secret_file: Annotated[
        Path | None, "FILE", "The platform's secret, 32 characters or more; or that of a lone broker."
    ] = None
    certificate: Annotated[Path | None, "FILE", "TLS: the certificate, PEM."] = None
    key: Annotated[Path | None, "FILE", "TLS: its key, PEM."] = None

    @property
    def settings(self) -> dict[str, object]:
        """The settings by name."""
        return {name: value for name, value in asdict(self).items() if name != "config"}


@dataclass(frozen=True)
class BrokerOptions(ServerOptions):
    """Settings of a broker."""

    name: Annotated[str | None, "What the cluster calls it."] = None
    cluster: Annotated[str | None, "URL", "The data cluster."] = None
    token_file: Annotated[Path | None, "FILE", "Its credential: see `newsstand token broker`."] = None
    coordinator: Annotated[str | None, "URL", "The coordinator, if there is one."] = None
    results_policy: Annotated[
        str | None, "P", "nc lru lsc lscz lsd exp ttl, or one beyond the paper; lscz-any."
    ] = None
    results_budget: Annotated[int | None, Option(min=0, metavar="BYTES", help="For all result caches.")] = None
    pages_policy: Annotated[str | None, "P", "Any page policy; sg2."] = None
    pages_capacity: Annotated[int | None, Option(min=0, metavar="BYTES", help="For pages.")] = None


@dataclass(frozen=True)
class CoordinatorOptions(ServerOptions):
    """Settings of a coordinator."""

    policy: Annotated[
        str | None, "NAME", "How brokers are chosen: nearest (default), hops, miles, random, least-loaded."
    ] = None
    lease_s: Annotated[float | None, "S", "Seconds that a broker may be silent before it is dead (3)."] = None


def broker(options: BrokerOptions) -> None:
    """Run an edge broker until Ctrl-C or SIGTERM.

    Settings come from the table [broker] of --config, then from NEWSSTAND_BROKER_… in the environment, then from
    options.

    Example: newsstand broker --name edge --cluster http://127.0.0.1:8780 --token-file edge.token --data edge-data
    """
    from newsstand.broker.server import serve
    from newsstand.broker.settings import BrokerSettings
    from newsstand.config.settings import read_settings
    from newsstand.http.request_log import log_to

    settings = read_settings(BrokerSettings, "broker", options.config, os.environ, options.settings)
    log_to(sys.stderr)
    serve(settings, say=say)


def coordinator(options: CoordinatorOptions) -> None:
    """Run the coordinator of a platform's brokers until Ctrl-C or SIGTERM.

    Example: newsstand coordinator --secret-file platform.secret --data coordinator-data --policy nearest
    """
    from newsstand.coordinator.server import read_coordinator_settings, serve
    from newsstand.http.request_log import log_to

    settings = read_coordinator_settings(options.config, os.environ, options.settings)
    log_to(sys.stderr)
    serve(settings, say=say)
