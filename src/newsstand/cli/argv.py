"""`--policy gdstar sub sr` as well as `--policy gdstar --policy sub` and `--policy gdstar,sub`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

MANY = ("--policy", "--capacity", "--beta", "--policy-file")
"""The options that take one or more values."""


def spread(arguments: Sequence[str]) -> list[str]:
    """Repeat an option before each of its values.

    The values end at the next option. Where the trace comes last they also end before a word that is a path on
    this machine, so that `simulate --policy gdstar sub DIR` means what it says.
    """
    spreaded: list[str] = []
    option = ""
    words = 0
    for argument in arguments:
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
            option = name if name in MANY else ""
            if option and equals:
                spreaded += _each(option, value)
            elif not option:
                spreaded.append(argument)
        elif option and (words > 1 or option == "--policy-file" or not Path(argument).exists()):
            spreaded += _each(option, argument)
        else:
            option = ""
            words += 1
            spreaded.append(argument)
    if arguments and arguments[-1] in MANY:
        spreaded.append(arguments[-1])
    return spreaded


def _each(option: str, values: str) -> list[str]:
    if option == "--policy-file":
        return [option, values]
    return [part for value in values.split(",") if value for part in (option, value)]
