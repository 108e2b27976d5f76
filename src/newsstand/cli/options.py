"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from newsstand.errors import BadOption

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
Strict = Annotated[bool, typer.Option("--strict", help="Refuse input with lines that cannot be parsed.")]
OutFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")]
RangeFigure = Annotated[
    Path | None,
    typer.Option(
        "--figure",
        metavar="FILE",
        help="Draw the first range, with a line for each of the others (.svg …).",
    ),
]


def make_folder(folder: Path, option: str = "--out") -> None:
    """The folder of an option, made now, so that it is not the last step that finds it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise BadOption(f"{option} {folder}: is a file, not a folder") from None
    except OSError as error:
        raise BadOption(f"{option} {folder}: cannot be written ({error.strerror})") from error
