"""What errors of Spark's say: the root cause, and whether the data caused it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_DATA_STATES = ("22", "21000", "P0001")
"""SQLSTATEs, or what they begin with: data exceptions, too many rows for one value, `raise_error`."""

_DATA_CONDITIONS = ("INVALID_FORMAT",)
"""What the names of other conditions begin with: a LIKE pattern that ends with its escape character."""

_DATA_CLASSES = (
    "java.lang.ArithmeticException",
    "java.lang.IllegalArgumentException",
    "java.lang.NumberFormatException",
    "java.lang.StackOverflowError",  # of a regular expression: patterns with alternatives recurse
    "java.time.",
    "java.util.IllegalFormat",
    "java.util.MissingFormat",
    "java.util.UnknownFormat",
    "java.util.regex.",
)
"""Errors of Java's, or what their names begin with, that functions raise for values that they do not take."""


def root_cause(error: BaseException) -> str:
    """What the innermost error says, whole."""
    causes = list(_causes(error))
    if not causes:
        return f"{type(error).__name__}: {str(error).strip() or 'no message'}"
    name, message = _said(causes[-1])
    said = message.partition("\n== ")[0].strip()  # what follows is a part of the plan, which nobody wrote
    return f"{name.rpartition('.')[2]}: {said or 'no message'}"


def first_line(error: BaseException) -> str:
    """What the innermost error says, in one line and without the trace."""
    text = root_cause(error)
    damage = text.rfind("LogDamage: ")  # of a Python worker: behind its own words and its stack
    return text[max(0, damage) :].splitlines()[0].strip()


def caused_by_data(error: BaseException) -> bool:
    """Whether an expression of a query failed on a value, and not Spark, a database or a network."""
    return any(_is_of_data(cause) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[Any]:
    """The Java errors that an error of PySpark or Py4J stands for, the outermost first."""
    cause: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    for _ in range(20):
        if cause is None:
            return
        yield cause
        cause = cause.getCause()


def _said(cause: Any) -> tuple[str, str]:
    return str(cause.getClass().getName()), str(cause.getMessage() or "")


def _is_of_data(cause: Any) -> bool:
    name, message = _said(cause)
    if name.startswith(_DATA_CLASSES):
        return True
    condition, _, rest = message.partition("]")
    state = rest.partition("SQLSTATE: ")[2][:5]
    return message.startswith("[") and (
        state.startswith(_DATA_STATES) or condition[1:].startswith(_DATA_CONDITIONS)
    )
