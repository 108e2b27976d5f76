"""`newsstand cluster` and `newsstand check`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from newsstand.cli.options import Conf, Json, Master
from newsstand.cli.progress import say
from newsstand.cli.publish import AppFolder
from newsstand.errors import BadInput, BadOption

if TYPE_CHECKING:
    from newsstand.cluster.app_folder import App


def cluster(
    app: AppFolder,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The data folder, if not the app's.")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="The address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="The port; 0 for a free one.")
    ] = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Run the data cluster of an app until Ctrl-C or SIGTERM.

    Settings come from the table [cluster] of newsstand.toml, then from NEWSSTAND_CLUSTER_… in the environment,
    then from options.

    Example: newsstand cluster my-app --port 8780
    """
    from newsstand.cluster.app_folder import read_app
    from newsstand.cluster.serve import serve
    from newsstand.serving.request_log import log_to

    known = read_app(app, os.environ)
    log_to(sys.stderr)
    serve(known, data=data, host=host, port=port, master=master, conf=conf or (), say=say)


def check(app: AppFolder, as_json: Json = False, master: Master = None, conf: Conf = None) -> None:
    """Check an app folder: everything that newsstand.toml says, and every query against Spark.

    Example: newsstand check my-app
    """
    from newsstand.cluster.app_folder import BadAppFile
    from newsstand.platform.checked import read_checked
    from newsstand.platform.parts import plan
    from newsstand.platform.push_notes import push_notes

    try:
        known, declared = read_checked(app, os.environ)
        plan(known, declared)
    except BadAppFile as error:
        _tell_mistakes(error.mistakes, as_json)
        raise typer.Exit(2) from None
    except BadOption as error:
        _tell_mistakes([str(error)], as_json)
        raise typer.Exit(2) from None
    schemas, mistakes, warnings = _check_queries(known, master, conf)
    if mistakes:
        _tell_mistakes(mistakes, as_json)
        raise typer.Exit(2)
    notes = [*warnings, *push_notes(known, declared)]
    if as_json:
        datasets = {
            name: {one.name: one.type for one in dataset.fields} for name, dataset in known.datasets.items()
        }
        print(
            json.dumps(
                {"app": str(app), "datasets": datasets, "channels": schemas, "mistakes": [], "notes": notes}
            )
        )
        return
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    for name, dataset in known.datasets.items():
        print(f"dataset {name}: {', '.join(f'{one.name} {one.type}' for one in dataset.fields)}")
    for name, schema in schemas.items():
        print(f"channel {name}: {', '.join(f'{column} {kind}' for column, kind in schema.items())}")
    print(f"{app}: {len(known.datasets)} datasets, {len(schemas)} channels, no mistakes")


def _check_queries(
    app: App, master: str | None, conf: list[str] | None
) -> tuple[dict[str, dict[str, str]], list[str], list[str]]:
    """The output of each channel, by column; the mistakes that only Spark finds, and what it warns of."""
    if not app.channels:
        return {}, [], []
    from newsstand.cluster.body import parse_body
    from newsstand.cluster.matching import check_body
    from newsstand.cluster.spark_settings import cluster_settings
    from newsstand.cluster.value_risks import warnings_of
    from newsstand.spark import open_session

    warnings: list[str] = []
    schemas: dict[str, dict[str, str]] = {}
    mistakes: list[str] = []
    kind = cluster_settings(app.spark)
    with open_session(master, conf or (), "newsstand check", brief=True, kind=kind) as spark:
        for name, channel in app.channels.items():
            try:
                body = parse_body(channel, app.datasets)
                schema = check_body(spark, body, app.datasets)
                warnings += warnings_of(spark, body, app.datasets)
            except BadInput as error:
                mistakes.append(f"{app.file}: {error}")
            else:
                schemas[name] = {one.name: one.dataType.simpleString() for one in schema.fields}
    return schemas, mistakes, warnings


def _tell_mistakes(mistakes: list[str], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"mistakes": mistakes}))
    for mistake in mistakes:
        say(f"newsstand: {' '.join(mistake.split())}")
