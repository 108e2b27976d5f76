"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the whole log on the terminal, too.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output folder if it exists.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse input with lines that cannot be parsed.")]


def _named_folder(text: str) -> Path:
    """An empty name would mean the folder that one happens to be in."""
    if not text:
        raise BadOption("--out: the name of a folder is missing; . is this one")
    return Path(text)


def _named_file(text: str) -> Path:
    if not text:
        raise BadOption("--figure: the name of a file is missing")
    return Path(text)


ReportFolder = Annotated[
    Path,
    typer.Option("--out", metavar="DIR", parser=_named_folder, help="Where tables, figures and report go."),
]
OutFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")]
RangeFigure = Annotated[
    Path | None,
    typer.Option(
        "--figure",
        metavar="FILE",
        parser=_named_file,
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


@contextmanager
def made_folder(folder: Path, option: str = "--out") -> Iterator[None]:
    """The folder of an option, made now; if nothing comes of what follows, it is not left behind empty."""
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    make_folder(folder, option)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # of one that has something in it
            for one in new:
                one.rmdir()
        raise


def require_writable(file: Path, option: str) -> None:
    """Refuse a file that could not be written, before anything is computed for it; what it has stays as it is."""
    if file.is_dir():
        raise BadOption(f"{option} {file}: is a folder, not a file")
    is_new = not file.exists()
    try:
        file.open("ab").close()
        if is_new:
            file.unlink()
    except OSError as error:
        raise BadOption(f"{option} {file}: cannot be written ({error.strerror})") from error
