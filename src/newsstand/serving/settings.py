"""How a server is set up: a table of a TOML file, then the environment, then options; the later wins."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeVar, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from newsstand.errors import BadInput, BadOption

S = TypeVar("S", bound=msgspec.Struct)
SHORTEST_SECRET = 32
LONGEST_URL = 2048
KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


def read_settings(
    shape: type[S], table: str, file: Path | None, environment: Mapping[str, str], options: Mapping[str, object]
) -> S:
    """Settings of a shape; in the environment `port` of the table `broker` is NEWSSTAND_BROKER_PORT.

    Paths in the file are taken from the file's folder on. Options that are None are not given. The first
    mistake is told with its place.
    """
    types = {one.name: one.type for one in msgspec.structs.fields(shape)}
    given: dict[str, object] = {}
    places: dict[str, str] = {}
    for place, name, value in _given(table, list(types), file, environment, options):
        try:
            given[name] = read_value(value, types[name])
        except BadOption as error:
            raise BadOption(f"{place}: {error}") from None
        places[name] = place
        if isinstance(path := given[name], Path) and file is not None and place.startswith(f"{file}:"):
            given[name] = file.parent / path
    missing = [one.name for one in msgspec.structs.fields(shape) if one.required and one.name not in given]
    if missing:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise BadOption(f"{table}: missing {names}; give them as options, in --config or in the environment")
    try:
        return msgspec.convert(given, shape, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise BadOption(f"{table}: {error}") from None
    except BadInput as error:
        raise BadOption(_placed(str(error), given, places)) from None


def _placed(mistake: str, given: Mapping[str, object], places: Mapping[str, str]) -> str:
    """A mistake that the settings themselves have found, with the place of the key or value that it names."""
    key, _, rest = mistake.partition(": ")
    if key in places:
        return f"{places[key]}: {rest}"
    named = [place for name, place in places.items() if repr(given[name]) in mistake]
    return f"{named[0]}: {mistake}" if len(named) == 1 else mistake


def read_value(value: object, kind: object) -> object:
    """One setting. What comes as text is read as what is wanted: "8790" for a number, "true" for yes or no."""
    try:
        return msgspec.convert(value, kind, strict=not isinstance(value, str), dec_hook=_path)
    except msgspec.ValidationError as error:
        if get_origin(kind) is Literal:
            raise BadOption(f"'{value}' is none of {', '.join(map(str, get_args(kind)))}") from None
        raise BadOption(plainly(str(error))) from None


def plainly(message: str) -> str:
    """What msgspec says of a value, in the words of a file.

    >>> plainly("Expected `int`, got `str`"), plainly("Expected `int` <= 65535")
    ('must be a whole number, not a text', 'must be a whole number of at most 65535')
    """
    if found := re.fullmatch(r"Expected `([^`]+)`, got `([^`]+)`(.*)", message, re.S):
        wanted = [KINDS.get(one, one) for one in found[1].split(" | ") if one != "null"]
        return f"must be {' or '.join(wanted)}, not {KINDS.get(found[2], found[2])}{found[3]}"
    if found := re.fullmatch(r"Expected `([^`]+)` (of length )?([<>]=) ([\d.]+?)(?:\.0)?( - .*)?", message):
        most = "at most" if found[3] == "<=" else "at least"
        unit = " characters" if found[2] else ""
        return f"must be {KINDS.get(found[1], found[1])} of {most} {found[4]}{unit}{found[5] or ''}"
    return message


def is_http_url(text: str) -> bool:
    """Whether a text is the URL of a server: http or https, with a host and printable characters only."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return good and len(text) <= LONGEST_URL and re.fullmatch(r"[\x21-\x7e]+", text) is not None


def token_in(file: Path, place: str = "") -> str:
    """The token that a file holds, and nothing else; `place` stands before its name in a mistake."""
    try:
        words = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"{place}{file}: cannot be read ({getattr(error, 'strerror', 'not UTF-8')})") from error
    if len(words) != 1:
        raise BadOption(f"{place}{file}: must hold one token and nothing else")
    return words[0]


def read_toml(file: Path) -> dict[str, object]:
    """A TOML document; raise BadInput."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{file}: is not TOML: {error}") from error
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({error.strerror})") from error


def secret_of(secret: str | None, file: Path | None) -> str | None:
    """A platform's secret, given as it is or in a file; None if it is not given."""
    if secret is None and file is not None:
        try:
            secret = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadOption(f"{file}: cannot be read ({getattr(error, 'strerror', 'not UTF-8')})") from error
    if secret is not None and len(secret) < SHORTEST_SECRET:
        place = "secret" if file is None else str(file)
        raise BadOption(f"{place}: a secret has at least {SHORTEST_SECRET} characters")
    return secret


def _given(
    table: str, names: list[str], file: Path | None, environment: Mapping[str, str], options: Mapping[str, object]
) -> Iterator[tuple[str, str, object]]:
    """What was given, from the weakest to the strongest: place, name and value."""
    if file is not None:
        for name, value in _table(file, table).items():
            if name not in names:
                close = difflib.get_close_matches(name, names, 1)
                hint = f"; did you mean {close[0]}?" if close else f"; one of {', '.join(names)}"
                raise BadOption(f"{file}: {table}.{name}: is not known{hint}")
            yield f"{file}: {table}.{name}", name, value
    for name in names:
        variable = f"NEWSSTAND_{table}_{name}".upper()
        if variable in environment:
            yield variable, name, environment[variable]
    for name, value in options.items():
        if value is not None:
            yield f"--{name.replace('_', '-')}", name, value


def _table(file: Path, table: str) -> Mapping[str, object]:
    found = read_toml(file).get(table)
    if not isinstance(found, dict):
        raise BadInput(f"{file}: there is no table [{table}]")
    return found


def _path(kind: type, value: object) -> object:
    if kind is Path:
        if isinstance(value, Path):
            return value
        if isinstance(value, str) and value:
            return Path(value)
    raise ValueError(f"Expected a path, got `{value}`")
