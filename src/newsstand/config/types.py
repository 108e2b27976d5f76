"""Types of settings: how a value is read, with units, and how a mistake in it is described."""

from __future__ import annotations

import difflib
import ipaddress
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from newsstand.errors import BadInput, BadOption

LONGEST_URL = 2048
SHORTEST_SECRET = 32
MOST_BYTES = 2**50
"""A pebibyte: more is a typing error."""
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_MEASURE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


@dataclass(frozen=True)
class Conversion:
    """The function that reads a setting in place of msgspec's conversion; it raises BadInput."""

    read: Callable[[Any], object]


@dataclass(frozen=True)
class SecretMark:
    """The mark of a setting that no `repr` shows."""


def read_value(place: str, value: object, kind: object) -> object:
    """Read one setting; text is converted to the type: "8790" to a number, "true" to a boolean.

    Raise BadOption, which begins with `place` and, for a value inside a table, its key.
    """
    plain, notes = _unwrap(kind)
    conversion = next((note for note in notes if isinstance(note, Conversion)), None)
    if conversion is None and isinstance(value, Mapping):
        if isinstance(plain, type) and issubclass(plain, msgspec.Struct):
            return _read_struct(place, value, plain)
        if get_origin(plain) is dict:
            return {key: read_value(f'{place}."{key}"', one, get_args(plain)[1]) for key, one in value.items()}
    try:
        if conversion is not None:
            return conversion.read(value)
        wanted = Annotated[(plain, *notes)] if notes else plain
        found = msgspec.convert(value, wanted, strict=not isinstance(value, str), dec_hook=_path)
        if isinstance(found, float) and not math.isfinite(found):
            raise ValueError("not finite")
    except BadInput as error:
        raise BadOption(f"{place}: {error}") from None
    except (msgspec.ValidationError, ValueError):
        if get_origin(plain) is Literal:
            raise BadOption(f"{place}: '{value}' is none of {', '.join(map(str, get_args(plain)))}") from None
        raise BadOption(f"{place}: must be {describe(kind)}") from None
    return found


def _read_struct(place: str, table: Mapping[str, object], shape: type[msgspec.Struct]) -> msgspec.Struct:
    known = {one.encode_name: one for one in msgspec.structs.fields(shape)}
    for key in table:
        if key not in known:
            raise BadOption(f"{place}.{key}: {unknown_name(key, known)}")
    missing = [key for key, one in known.items() if one.required and key not in table]
    if missing:
        raise BadOption(f"{place}: missing {', '.join(missing)}")
    given = {known[key].name: read_value(f"{place}.{key}", one, known[key].type) for key, one in table.items()}
    return shape(**given)


def describe(kind: object) -> str:
    """Describe the values of a type.

    >>> describe(Port), describe(list[str] | None)
    ('a whole number from 0 to 65535', 'a list of strings')
    """
    plain, notes = _unwrap(kind)
    names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false", Path: "a path"}
    if get_origin(plain) is Literal:
        return f"one of {', '.join(map(str, get_args(plain)))}"
    if plain not in names:
        return "a list of strings" if get_origin(plain) in (list, tuple) else "a table"
    meta = next((note for note in notes if isinstance(note, msgspec.Meta)), msgspec.Meta())
    bounds = " that is not empty" if meta.min_length else ""
    if meta.max_length:
        bounds = f" of {meta.min_length or 0} to {meta.max_length} characters"
    elif meta.ge is not None or meta.le is not None:
        bounds = _bounds(meta.ge, meta.le)
    return names[plain] + bounds


def unknown_name(name: str, known: Collection[str]) -> str:
    """Return the error for an unknown name, with the known one that it resembles, or with all of them."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"is not known; did you mean '{close[0]}'?" if close else f"is not known; known: {', '.join(known)}"


def is_hidden(kind: object) -> bool:
    """Return whether a setting of a type is a secret."""
    return any(isinstance(note, SecretMark) for note in _unwrap(kind)[1])


def _bounds(least: float | None, most: float | None) -> str:
    low, high = (str(one) if isinstance(one, int) else f"{one:g}" for one in (least or 0, most or 0))
    if least is None or most is None:
        return f" of at most {high}" if least is None else f" of at least {low}"
    return f" from {low} to {high}"


def _unwrap(kind: object) -> tuple[Any, tuple[object, ...]]:
    """Return a type without `| None` and `Annotated`, and its annotations."""
    notes: tuple[object, ...] = ()
    while True:
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            notes = (*notes, *more)
        elif get_origin(kind) in (Union, UnionType):
            (kind,) = (one for one in get_args(kind) if one is not type(None))
        else:
            return kind, notes


def _path(kind: type, value: object) -> object:
    if kind is Path:
        if isinstance(value, Path):
            return value
        if isinstance(value, str) and value:
            return Path(value).expanduser()
    raise ValueError(f"Expected a path, got `{value}`")


def one_of(known: Collection[str]) -> Conversion:
    """Return the conversion of a name in a list."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in known:
            raise BadOption(f"'{value}' is none of {', '.join(known)}")
        return value

    return Conversion(read)


def is_http_url(text: str) -> bool:
    """Return whether a text is the URL of a server: http or https, a host, printable characters only."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return good and len(text) <= LONGEST_URL and re.fullmatch(r"[\x21-\x7e]+", text) is not None


def require_url(value: object) -> str:
    """Return the URL of a server; raise BadOption."""
    if not isinstance(value, str) or not is_http_url(value):
        raise BadOption(f"{value!r} is not a URL; write one such as https://edge.example.org:8790")
    return value


def require_together(values: object, one: str, other: str) -> None:
    """Raise BadOption if only one of two fields is set, such as `lat` and `lon`."""
    if (getattr(values, one) is None) != (getattr(values, other) is None):
        raise BadOption(f"{one} and {other}: give both or neither")


def require_proxies(value: object) -> tuple[str, ...]:
    """Return addresses and networks of proxies, given as a list or as text with commas; raise BadOption."""
    listed = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
    if not isinstance(listed, Sequence) or not all(isinstance(one, str) for one in listed):
        raise BadOption('must be a list of addresses and networks, such as ["10.0.0.1", "10.1.0.0/16"]')
    for one in listed:
        try:
            ipaddress.ip_network(one)
        except ValueError:
            raise BadOption(f"{one!r} is neither an address nor a network such as 10.0.0.0/8") from None
    return tuple(listed)


def _links(value: object) -> tuple[tuple[str, str], ...]:
    links = []
    for link in value if isinstance(value, list) else [None]:
        if not isinstance(link, list) or len(link) != 2 or not all(isinstance(end, str) and end for end in link):
            raise BadOption('must be a list of pairs of nodes, such as [["core", "north"], ["core", "south"]]')
        links.append((link[0], link[1]))
    return tuple(links)


def read_token(file: Path, place: str = "") -> str:
    """Read the token that a file holds, and nothing else; `place` precedes the file's name in an error."""
    words = _read(file, place).split()
    if len(words) != 1:
        raise BadOption(f"{place}{file}: must hold one token and nothing else")
    return words[0]


def read_secret(secret: str | None, file: Path | None) -> str | None:
    """Return a platform's secret, given as text or in a file; None if neither is given."""
    if not secret and file is not None:
        secret = _read(file).strip()
    return None if not secret else require_secret(secret, "secret" if file is None else str(file))


def require_secret(secret: object, place: str = "") -> str:
    """Return a secret that is long enough; raise BadOption."""
    if not isinstance(secret, str) or len(secret) < SHORTEST_SECRET:
        prefix = f"{place}: " if place else ""
        raise BadOption(f"{prefix}a secret must have at least {SHORTEST_SECRET} characters")
    return secret


def _read(file: Path, place: str = "") -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"{place}{file}: cannot be read ({getattr(error, 'strerror', 'not UTF-8')})") from error


def duration_s(value: object, *, zero: bool = False) -> float:
    """Return the seconds of a number or of a text such as "10s", "1.5h", "7d"; raise BadOption.

    With `zero`, 0 is a duration, too.

    >>> duration_s("1.5h")
    5400.0
    """
    seconds = _measure(value, _SECONDS)
    if zero and seconds == 0:
        return 0.0
    if not 0 < seconds < math.inf:
        raise BadOption('must be a positive number of seconds or a text like "10s", "5m", "2h", "7d"')
    if seconds > 100 * 366 * _SECONDS["d"]:
        raise BadOption("must be less than a hundred years")
    return seconds


def byte_count(value: object, least: int = 1, most: int = 2**40) -> int:
    """Return the bytes of a number or of a text such as "16MiB"; raise BadOption.

    >>> byte_count("16 MiB")
    16777216
    """
    count = _measure(value, _BYTES)
    if not least <= count < math.inf:
        positive = "a positive number of bytes" if least else "a number of bytes"
        raise BadOption(f'must be {positive} or a text like "512KiB", "16MiB"')
    if count != int(count) or count > most:
        raise BadOption(f"must be a whole number of bytes, at most {most // 2**30} GiB")
    return int(count)


def whole_number(value: object, least: int, most: int) -> int:
    """Return an integer within bounds; raise BadOption."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadOption(f"must be a whole number from {least} to {most}")
    return value


def _measure(value: object, units: dict[str, int] | dict[str, float]) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and (parts := _MEASURE.fullmatch(value)) and parts[2] in units:
        return float(parts[1]) * units[parts[2]]
    return math.nan


Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Latitude = Annotated[float, msgspec.Meta(ge=-90, le=90)]
Longitude = Annotated[float, msgspec.Meta(ge=-180, le=180)]
Duration = Annotated[float, Conversion(duration_s)]
"""Seconds, or text with a unit: "10s", "7d"."""
DurationOrZero = Annotated[float, Conversion(partial(duration_s, zero=True))]
"""A duration, or 0 to switch something off."""
Size = Annotated[int, Conversion(partial(byte_count, most=MOST_BYTES))]
"""Bytes, or text with a unit: "16 MiB"."""
SizeOrNone = Annotated[int, Conversion(partial(byte_count, least=0, most=MOST_BYTES))]
"""A size, or 0 to switch something off."""
Secret = Annotated[str, Conversion(require_secret), SecretMark()]
Url = Annotated[str, Conversion(require_url)]
Proxies = Annotated[tuple[str, ...], Conversion(require_proxies)]
Links = Annotated[tuple[tuple[str, str], ...], Conversion(_links)]
"""A network: pairs of nodes."""
