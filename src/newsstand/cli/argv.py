"""`--policy gdstar sub sr` as well as `--policy gdstar --policy sub` and `--policy gdstar,sub`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from newsstand.errors import BadOption

MANY = ("--policy", "--capacity", "--beta", "--policy-file", "--cache-bytes")
"""The options that take one or more values."""
MANY_OF = {"survive": ("--method",)}
"""Those that do so for one command only."""

ONE = (
    *("--figure", "--format", "--master", "--conf"),
    *("--evict", "--expiry", "--end-ms", "--window-ms", "--windows", "--cap-ms", "--engine"),
)
"""The options beside them that take one value."""


def spread(arguments: Sequence[str]) -> list[str]:
    """Repeat an option before each of its values.

    The values end at the next option. Where the trace comes last they also end before a word that is a path on
    this machine, so that `simulate --policy gdstar sub DIR` means what it says. The first is a value in any case.
    """
    spreaded: list[str] = []
    option, before = "", ""
    many = (*MANY, *MANY_OF.get(arguments[0] if arguments else "", ()))
    words = 0
    for argument in arguments:
        if argument.startswith("--"):
            _require_value(before, many)
            name, equals, value = argument.partition("=")
            option = name if name in many else ""
            if option and equals:
                spreaded += _each(option, value)
            elif not option:
                spreaded.append(argument)
        elif option and _is_value(argument, option, first=before == option, trace_known=words > 1):
            spreaded += _each(option, argument)
        else:
            option = ""
            words += before not in ONE
            spreaded.append(argument)
        before = argument
    _require_value(before, many)
    return spreaded


def _is_value(word: str, option: str, *, first: bool, trace_known: bool) -> bool:
    return first or trace_known or option == "--policy-file" or not Path(word).exists()


def _require_value(argument: str, many: Sequence[str]) -> None:
    if argument in many:
        raise BadOption(f"{argument}: a value is missing")


def _each(option: str, values: str) -> list[str]:
    each = [values] if option == "--policy-file" else values.removesuffix(",").split(",")
    if not all(each):
        raise BadOption(f"{option}: a value is missing")
    return [part for value in each for part in (option, value)]
