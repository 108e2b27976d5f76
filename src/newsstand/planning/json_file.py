"""JSON files that people write: every mistake is one line that names the file and the field."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from newsstand.errors import BadNetwork

Json = object
"""What a JSON value is until it has been looked at."""


def read_object(path: Path) -> dict[str, Json]:
    """The object in a file; no name in it twice, no number that is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadNetwork(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadNetwork(f"{path}: cannot be read ({reason})") from error
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise BadNetwork(f"{path}: line {error.lineno}: not JSON ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise BadNetwork(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise BadNetwork(f"{path}: holds {kind(found)}, not an object")
    return found


def _once(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"'{name}' occurs twice")
        found[name] = value
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def kind(value: Json) -> str:
    """What a value is, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return f"'{value}'"
    return "a list" if isinstance(value, list) else "an object"


@dataclass(frozen=True)
class Field:
    """A value, and where it was found."""

    place: str
    value: Json

    def refuse(self, what: str) -> NoReturn:
        raise BadNetwork(f"{self.place} {what}")

    def whole(self, least: int, most: int | None = None) -> int:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(f"is {kind(value)}, not a whole number")
        if value < least:
            self.refuse(f"is {value}, which is below {least}")
        if most is not None and value > most:
            self.refuse(f"is {value}, which is above {most}")
        return value

    def amount(self) -> int | float:
        """A number that is not negative."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(f"is {kind(value)}, not a number")
        if not math.isfinite(value):
            self.refuse("is too large")
        if value < 0:
            self.refuse(f"is {value}, which is negative")
        return value

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            self.refuse(f"is {kind(self.value)}, not a name")
        return self.value

    def items(self, length: int | None = None) -> list[Field]:
        if not isinstance(self.value, list):
            self.refuse(f"is {kind(self.value)}, not a list")
        if length is not None and len(self.value) != length:
            self.refuse(f"has {len(self.value)} values, not {length}")
        return [Field(f"{self.place}[{number}]", value) for number, value in enumerate(self.value)]

    def members(self) -> dict[str, Field]:
        if not isinstance(self.value, dict):
            self.refuse(f"is {kind(self.value)}, not an object")
        return {name: Field(f"{self.place}.{name}", value) for name, value in self.value.items()}
