"""`newsstand channel`: look at the channels of an app."""

from __future__ import annotations

import json

import typer

from newsstand.cli.options import Json
from newsstand.cli.publish import AppFolder

app = typer.Typer(help="Look at channels, and try them.", no_args_is_help=True)


@app.command("list")
def list_(folder: AppFolder, as_json: Json = False) -> None:
    """List the channels that an app declares.

    Example: newsstand channel list my-app
    """
    from newsstand.cluster.app_folder import read_app
    from newsstand.cluster.channels import channel_table

    channels = read_app(folder).channels
    if as_json:
        print(json.dumps([{"name": name, **channel_table(one)} for name, one in channels.items()]))
        return
    for name, one in channels.items():
        parameters = ", ".join(f"{parameter.name} {parameter.type}" for parameter in one.parameters)
        when = "continuous" if one.period_s is None else f"every {one.period_s:g} s"
        print(f"{name}({parameters}) on {one.new}, {when}, {'push' if one.push else 'pull'}")
