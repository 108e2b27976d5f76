"""Values as people write them: numbers with units such as "10s", "7d", "16 MiB", and plain ones."""

from __future__ import annotations

import math
import re

from newsstand.errors import BadApp

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_MEASURE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


def duration_s(value: object) -> float:
    """Seconds out of a number or a text such as "10s", "1.5h", "7d"."""
    seconds = _measure(value, _SECONDS, 'a positive number of seconds or a text like "10s", "5m", "2h", "7d"')
    if seconds > 100 * 366 * _SECONDS["d"]:
        raise BadApp("must be less than a hundred years")
    return seconds


def byte_count(value: object) -> int:
    """Bytes out of an integer or a text such as "16MiB"."""
    count = _measure(value, _BYTES, 'a positive number of bytes or a text like "512KiB", "16MiB"')
    if count != int(count) or count > 2**40:
        raise BadApp("must be a whole number of bytes, at most 1024 GiB")
    return int(count)


def whole_number(value: object, least: int, most: int) -> int:
    """An integer within bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadApp(f"must be a whole number from {least} to {most}")
    return value


def number(value: object, least: float, most: float) -> float:
    """A number within bounds."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise BadApp(f"must be a number from {least:g} to {most:g}")
    return float(value)


def boolean(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise BadApp("must be true or false")
    return value


def some_text(value: object) -> str:
    """A text."""
    if not isinstance(value, str) or not value:
        raise BadApp("must be a string that is not empty")
    return value


def _measure(value: object, units: dict[str, int] | dict[str, float], wanted: str) -> float:
    number: float = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and (parts := _MEASURE.fullmatch(value)) and parts[2] in units:
        number = float(parts[1]) * units[parts[2]]
    if not 0 < number < math.inf:
        raise BadApp(f"must be {wanted}")
    return number
