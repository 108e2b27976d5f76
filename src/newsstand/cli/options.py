"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, alone on standard output.")]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark master: local[*], local-cluster[2,1,1024], spark://host:7077 … (NEWSSTAND_MASTER).",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; may be repeated."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the output folder if it exists.")]
