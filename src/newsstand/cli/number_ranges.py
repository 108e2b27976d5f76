"""Options that take a number, several (`5,10,20`), or a range with both ends (`5:30:5`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from newsstand.errors import BadOption

Number = TypeVar("Number", int, float)

MOST_NUMBERS = 10_000
MOST_COMBINATIONS = 10_000
LARGEST = 1_000_000_000_000
"""Of whole numbers: more is a slip of the finger, whatever is counted."""
LONGEST_SHOWN = 60
"""Of what was typed, as told in a mistake."""


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Every number that an option asks for, once, in its order."""
    return _numbers(option, text, int, "whole number")


def numbers(option: str, text: str) -> tuple[float, ...]:
    """The same, of numbers that need not be whole."""
    return _numbers(option, text, _finite, "number")


def option_of(name: str) -> str:
    """The option of a parameter."""
    return f"--{name.replace('_', '-')}"


def require_few(values: Iterable[Sequence[object]], ranged: Sequence[str], what: str) -> None:
    """Refuse ranges that have too many combinations together, naming the first."""
    if math.prod(map(len, values)) > MOST_COMBINATIONS:
        raise BadOption(
            f"{option_of(ranged[0])}: all options together ask for more than {MOST_COMBINATIONS:,} {what}"
        )


def is_list(text: str) -> bool:
    """Whether an option is written as one that takes several numbers, though it may be one that it takes."""
    return ":" in text or "," in text


def _numbers(option: str, text: str, parse: Callable[[str], Number], kind: str) -> tuple[Number, ...]:
    shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
    try:
        parts = [parse(part) for part in text.replace(":", ",").split(",")]
    except ValueError:
        raise BadOption(f"{option} {shown}: not a {kind}, nor a list 5,10,20, nor a range 5:30:5") from None
    if any(isinstance(part, int) and abs(part) > LARGEST for part in parts):
        raise BadOption(f"{option} {shown}: must be at most {LARGEST:,}")
    if ":" not in text:
        return tuple(dict.fromkeys(parts))
    if "," in text or len(parts) != 3:
        raise BadOption(f"{option} {shown}: a range is written 5:30:5: the first, the last and the step")
    first, last, step = parts
    if step <= 0:
        raise BadOption(f"{option} {shown}: the step must be above 0")
    if last < first:
        raise BadOption(f"{option} {shown}: ends before it begins")
    steps = (last - first) / step
    if steps >= MOST_NUMBERS:
        raise BadOption(f"{option} {shown}: more than {MOST_NUMBERS:,} numbers")
    # Steps of 0.1 are to end at 0.3, not before 0.30000000000000004.
    return tuple(parse(f"{first + step * place:.12g}") for place in range(math.floor(steps + 1e-9) + 1))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
