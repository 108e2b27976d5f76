"""Commands whose parameters may be groups of options, and the options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_origin, get_type_hints

import typer
from typer import Option

from newsstand.cli.several_values import option_of
from newsstand.cli.terminal import progress
from newsstand.config.spark_settings import MASTER, environment_settings
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Function = TypeVar("Function", bound=Callable[..., None])


class Commands(typer.Typer):
    """A group of commands, whose parameters may be declared in two short ways.

    `Annotated[int, "N", "How many."]` is an option with that metavar and help; the metavar may be left out. A
    parameter whose type is a dataclass stands for an option for each of its fields.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(no_args_is_help=True, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Function], Function]:
        """Register a function as a command."""
        register = super().command(name, **settings)

        def add(function: Function) -> Function:
            register(_with_single_options(function))
            return function

        return add


def _with_single_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command with all options of a function's groups, required ones first and those of groups last."""
    hints = get_type_hints(function, include_extras=True)
    own = inspect.signature(function).parameters
    groups = {name: hints[name] for name in own if is_dataclass(hints[name])}
    parameters = [_option(one, hints) for name, one in own.items() if name not in groups]
    for kind in groups.values():
        hints = get_type_hints(kind, include_extras=True)
        parameters += [_option(one, hints) for one in inspect.signature(kind).parameters.values()]
    parameters.sort(key=lambda one: one.default is not Parameter.empty)

    @wraps(function)
    def command(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        function(**given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _option(parameter: Parameter, hints: dict[str, Any]) -> Parameter:
    kind = hints[parameter.name]
    if get_origin(kind) is Annotated and isinstance(kind.__metadata__[0], str):
        *metavar, text = kind.__metadata__
        flag = [option_of(parameter.name)] if kind.__origin__ is bool else []
        kind = Annotated[kind.__origin__, Option(*flag, metavar=next(iter(metavar), None), help=text)]
    return parameter.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """How a command uses Spark."""

    master: Annotated[
        str | None,
        "URL",
        "Spark master: local[*], local-cluster[2,1,1024], spark://host:7077 … (NEWSSTAND_MASTER).",
    ] = None
    conf: Annotated[list[str] | None, "KEY=VALUE", "A Spark setting; may be repeated."] = None

    @contextmanager
    def session(
        self, command: str, doing: str, *, brief: bool = True, kind: Mapping[str, str] | None = None
    ) -> Iterator[SparkSession]:
        """Open a session for a command, and show the progress of what it is doing."""
        from newsstand.spark import open_session

        session = open_session(self.master, self.conf or (), f"newsstand {command}", brief=brief, kind=kind)
        with session as spark, progress(spark, doing):
            yield spark

    def is_chosen(self, engine: Literal["auto", "local", "spark"], *, fits: bool = True) -> bool:
        """Return whether a command runs on Spark."""
        if engine == "local":
            for name, value in (("--master", self.master), ("--conf", self.conf)):
                if value:
                    raise BadOption(f"{name}: --engine local does not use Spark; choose spark or auto")
        return engine == "spark" or (
            engine == "auto" and (not fits or self.is_given or MASTER in environment_settings())
        )

    @property
    def is_given(self) -> bool:
        """Whether the user asks for Spark."""
        return bool(self.master or self.conf)

    @property
    def words(self) -> list[str]:
        """The same options for another command."""
        master = ["--master", self.master] if self.master else []
        return [*master, *(word for one in self.conf or () for word in ("--conf", one))]


Engine = Annotated[
    Literal["auto", "local", "spark"],
    "local: on this machine, on all cores. spark: on Spark. auto: spark if --master or --conf is given, if the "
    "environment or newsstand.toml names a master, or if the data does not fit into memory.",
]
Json = Annotated[bool, Option("--json", help="Print the result as JSON, alone on standard output.")]
Verbose = Annotated[bool, Option("--verbose", "-v", help="Show the whole log on the terminal, too.")]
Force = Annotated[bool, Option("--force", help="Replace the output folder if it exists.")]
Strict = Annotated[bool, Option("--strict", help="Reject input with lines that cannot be parsed.")]
DataFolder = Annotated[Path | None, Option("--data", metavar="DIR", help="The data folder, if not the app's.")]
OutFolder = Annotated[Path, Option("--out", metavar="DIR", help="The folder to write.")]


def _named_figure(text: str) -> Path:
    if not text:
        raise BadOption("--figure: empty; name a file")
    return Path(text)


RangeFigure = Annotated[
    Path | None,
    Option(
        "--figure",
        metavar="FILE",
        parser=_named_figure,
        help="Draw the first range, with a line for each of the others (.svg …).",
    ),
]


def message_of(error: Exception) -> str:
    """Return the message of an error, the fields that it names written as options."""
    return error.naming(option_of) if isinstance(error, BadOption) else str(error)


def make_folder(folder: Path, option: str = "--out") -> None:
    """Make the folder of an option, before anything is computed for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise BadOption(f"{option} {folder}: is a file, not a folder") from None
    except OSError as error:
        raise BadOption(f"{option} {folder}: cannot be written ({error.strerror})") from error


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make the folder of `--out`, and remove it again if the block fails and it is empty."""
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    make_folder(folder)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # it is not empty
            for one in new:
                one.rmdir()
        raise


def require_writable(file: Path, option: str) -> None:
    """Raise BadOption unless a file can be written; its content stays as it is."""
    if file.is_dir():
        raise BadOption(f"{option} {file}: is a folder, not a file")
    is_new = not file.exists()
    try:
        file.open("ab").close()
        if is_new:
            file.unlink()
    except OSError as error:
        raise BadOption(f"{option} {file}: cannot be written ({error.strerror})") from error
