"""Options with several values: `--policy gdstar sub`, lists such as `5,10,20` and ranges such as `5:30:5`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from newsstand.errors import BadOption

MANY = ("--policy", "--capacity", "--beta", "--policy-file", "--cache-bytes")
"""The options that take one or more values."""
MANY_OF = {"survive": ("--method",)}
"""Those that do so for one command only."""

ONE = (
    *("--figure", "--format", "--master", "--conf"),
    *("--evict", "--expiry", "--end-ms", "--window-ms", "--windows", "--cap-ms", "--engine", "--implementation"),
    *("--curve", "--sample"),
)
"""The options beside them that take one value."""


def spread(arguments: Sequence[str]) -> list[str]:
    """Repeat an option before each of its values.

    The values end at the next option. Where the trace comes last they also end before a word that is a path on
    this machine, so that `simulate --policy gdstar sub DIR` means what it says. The first is a value in any case.
    """
    repeated: list[str] = []
    option, before = "", ""
    many = (*MANY, *MANY_OF.get(arguments[0] if arguments else "", ()))
    count = 0
    for argument in arguments:
        if argument.startswith("--"):
            _require_value(before, many)
            name, equals, value = argument.partition("=")
            option = name if name in many else ""
            if option and equals:
                repeated += _each(option, value)
            elif not option:
                repeated.append(argument)
        elif option and (
            before == option or count > 1 or option == "--policy-file" or not Path(argument).exists()
        ):
            repeated += _each(option, argument)
        else:
            option = ""
            count += before not in ONE
            repeated.append(argument)
        before = argument
    _require_value(before, many)
    return repeated


def _require_value(argument: str, many: Sequence[str]) -> None:
    if argument in many:
        raise BadOption(f"{argument}: missing value; give at least one")


def _each(option: str, values: str) -> list[str]:
    each = [values] if option == "--policy-file" else values.removesuffix(",").split(",")
    if not all(each):
        raise BadOption(f"{option}: missing value; give at least one")
    return [part for value in each for part in (option, value)]


Number = TypeVar("Number", int, float)
Reader = Callable[[str, str], tuple[Any, ...]]
"""Reads the values of an option from its name and its text."""

MOST_NUMBERS = 10_000
MOST_COMBINATIONS = 10_000
LARGEST = 1_000_000_000_000
"""The largest whole number: a larger one is a typing mistake, whatever it counts."""
LONGEST_SHOWN = 60
"""Characters of a text that an error repeats."""


@dataclass(frozen=True)
class Ranges:
    """The options of a command that may have several values, with all values of each."""

    values: Mapping[str, tuple[Any, ...]]
    varied: tuple[str, ...]
    """Options that were written as a list or a range, in the order given."""

    @classmethod
    def read(cls, readers: Mapping[str, Reader], texts: Mapping[str, str]) -> Ranges:
        """Read all options; raise BadOption if they have too many combinations."""
        values = {name: read(option_of(name), texts[name]) for name, read in readers.items()}
        varied = tuple(name for name, text in texts.items() if ":" in text or "," in text)
        if math.prod(map(len, values.values())) > MOST_COMBINATIONS:
            most = f"all options together ask for more than {MOST_COMBINATIONS:,} combinations; give fewer values"
            raise BadOption(f"{option_of(varied[0])}: {most}")
        return cls(values, varied)

    @property
    def combinations(self) -> Iterator[dict[str, Any]]:
        """All combinations of values."""
        for values in itertools.product(*self.values.values()):
            yield dict(zip(self.values, values, strict=True))

    @property
    def ranged(self) -> tuple[str, ...]:
        """The varied options whose values are numbers."""
        return tuple(name for name in self.varied if isinstance(self.values[name][0], int | float))


def option_of(name: str) -> str:
    """Return the option of a parameter."""
    return f"--{name.replace('_', '-')}"


def words(option: str, text: str) -> tuple[str, ...]:
    """Return every word that an option asks for, once, in its order."""
    return tuple(dict.fromkeys(text.split(",")))


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Return every whole number that an option asks for, once, in its order."""
    return _numbers(option, text, int, "whole number")


def numbers(option: str, text: str) -> tuple[float, ...]:
    """Return every number that an option asks for, once, in its order."""
    return _numbers(option, text, _finite, "number")


def _numbers(option: str, text: str, parse: Callable[[str], Number], kind: str) -> tuple[Number, ...]:
    shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
    try:
        parts = [parse(part) for part in text.replace(":", ",").split(",")]
    except ValueError:
        raise BadOption(f"{option} {shown}: must be a {kind}, a list 5,10,20 or a range 5:30:5") from None
    if any(isinstance(part, int) and abs(part) > LARGEST for part in parts):
        raise BadOption(f"{option} {shown}: must be at most {LARGEST:,}")
    if ":" not in text:
        return tuple(dict.fromkeys(parts))
    if "," in text or len(parts) != 3:
        raise BadOption(f"{option} {shown}: must be a range 5:30:5, with the first number, the last and the step")
    first, last, step = parts
    if step <= 0:
        raise BadOption(f"{option} {shown}: the step must be above 0")
    if last < first:
        raise BadOption(f"{option} {shown}: the last number must not be below the first")
    steps = (last - first) / step
    if steps >= MOST_NUMBERS:
        raise BadOption(f"{option} {shown}: more than {MOST_NUMBERS:,} numbers; choose a larger step")
    # Steps of 0.1 are to end at 0.3, not before 0.30000000000000004.
    return tuple(parse(f"{first + step * place:.12g}") for place in range(math.floor(steps + 1e-9) + 1))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
