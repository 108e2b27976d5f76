"""Values of parameters on which a query fails: the parameters at risk, and a search for the streams that fail.

A parameter is at risk if it is cast, or is a pattern or a format.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from newsstand.cluster.matching.matcher import empty_frames, match
from newsstand.cluster.query.dialect import DISTANCE
from newsstand.cluster.query.parser import Body
from newsstand.model import Dataset, Values
from newsstand.spark.internals import analysed_plan


@dataclass(frozen=True)
class SearchLimits:
    """Limits of a search for failing streams."""

    samples: int = 8
    """Single streams that are tried first."""
    further_samples: int = 56
    """Streams that are then tried at random until one succeeds: if all fail, the values are hardly the cause."""
    trials: int = 400
    """Trials of one search, about log2(streams) for each stream that it finds."""


def failing_streams(
    streams: Sequence[tuple[int, Values]],
    error_of: Callable[[int, int], str | None],
    limits: SearchLimits = SearchLimits(),  # noqa: B008  it is frozen
) -> Iterator[tuple[int, str]]:
    """Yield the streams whose values make an execution fail, each with its error, by bisection.

    `streams` are in the order of their ids. `error_of(first, last)` executes those with first <= id <= last, and
    returns the error, or None. No stream is found if the records or the query are the cause. A search that runs
    out of trials finds some of the streams.
    """
    count, trials = len(streams), 0

    def trial(first: int, end: int) -> str | None:
        nonlocal trials
        trials += 1
        return error_of(streams[first][0], streams[end - 1][0])

    samples = sorted({count * number // limits.samples for number in range(limits.samples)}) if count else []
    errors = {number: trial(number, number + 1) for number in samples}
    if None not in errors.values():
        others = [number for number in range(count) if number not in errors]
        # By chance, and others at the next search: many equal mistakes must not hide the values that succeed.
        for number in random.sample(others, min(len(others), limits.further_samples)):
            errors[number] = trial(number, number + 1)
            if errors[number] is None:
                break
    failed = {number: error for number, error in errors.items() if error is not None}
    all_fail = len(failed) == len(errors)
    if all_fail:
        # A record that causes an error causes it for all streams; an error that quotes a value is the value's.
        failed = {number: error for number, error in failed.items() if _quotes(error, streams[number][1])}
    if all_fail or count <= limits.samples:
        yield from ((streams[number][0], error) for number, error in failed.items())
        return
    failing = [(0, count)]
    while failing and trials < limits.trials:
        first, end = failing.pop()
        if end - first == 1:
            error = errors[first] if first in errors else trial(first, end)
            if error is not None:
                yield streams[first][0], error
            continue
        middle = (first + end) // 2
        left = trial(first, middle) is not None
        if not left or trial(middle, end) is not None:
            failing.append((middle, end))
        if left:
            failing.append((first, middle))


def _quotes(error: str, values: Values) -> bool:
    """Return whether an error quotes one of the values, or has a line that is one."""
    texts = [value for value in values if isinstance(value, str)]
    return any(f"'{text}'" in error or text in error.splitlines() for text in texts)


# Parameters at risk

_REGULAR, _LIKE = "a regular expression", "a LIKE pattern"
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.RegexpLike: _REGULAR,
    exp.RegexpILike: _REGULAR,
    exp.Like: _LIKE,
    exp.ILike: _LIKE,
}
_CALLS = dict.fromkeys(("regexp", "rlike", "split"), _REGULAR) | {"like": _LIKE, "ilike": _LIKE}
_INSTEAD = {
    _REGULAR: "write contains(…, :{0}) or startswith(…, :{0}), or put the expression into the query",
    _LIKE: "write contains(…, :{0}) or startswith(…, :{0})",
}

_CAST = re.compile(r"(?<!try_)\bcast\((?:outer\()?__p_(\w+)#\d+L?\)? as (\w+)")

_SAFE_CASTS = {
    "string": {"string", "binary", "varchar", "char"},
    "integer": {"bigint", "double", "float", "string", "decimal", "boolean"},
    "double": {"double", "float", "string", "boolean"},
    "boolean": {"boolean", "string", "int", "bigint", "double"},
}
"""The types to which every value of a parameter's type can be cast."""

_TYPES = {"double": "double", "float": "double", "bigint": "integer", "int": "integer", "boolean": "boolean"}
"""The type to declare for a parameter that is cast to a type of Spark's."""

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.Between, exp.In)


def warnings_of(spark: SparkSession, body: Body, datasets: Mapping[str, Dataset]) -> list[str]:
    """Return the warnings of `value_risks` without publications or subscriptions."""
    return value_risks(body, match(body, *empty_frames(spark, body, datasets)))


def value_risks(body: Body, matched: DataFrame) -> list[str]:
    """Return a warning for each parameter with values on which the query fails, with an alternative.

    `matched` is what `match` makes of the body; Spark's casts are found in its analysed plan.
    """
    types = {one.name: one.type for one in body.channel.parameters}
    warnings = []
    for name, target in _CAST.findall(analysed_plan(matched)):
        if target in _SAFE_CASTS.get(types.get(name, ""), ()):
            continue
        declared = _TYPES.get(target)
        also = f", or declare the parameter as {declared}" if declared not in (None, types.get(name)) else ""
        warnings.append(
            f"parameters.{name}: is cast from {types.get(name)} to {target}, which fails for some values; "
            f"write try_cast(:{name} AS {target}){also}"
        )
    for name, pattern in _patterns(body):
        warnings.append(
            f"parameters.{name}: is used as {pattern}, and one that is malformed fails; "
            + _INSTEAD[pattern].format(name)
        )
    return [f"channels.{body.channel.name}.{warning}" for warning in dict.fromkeys(warnings)]


def values_can_fail(body: Body, matched: DataFrame) -> bool:
    """Return whether an execution can fail on a value, which is not only compared, selected or a distance."""
    return bool(value_risks(body, matched)) or not all(map(_is_harmless, body.tree.find_all(exp.Placeholder)))


def _is_harmless(marker: exp.Placeholder) -> bool:
    parent = marker.parent
    while isinstance(parent, exp.Paren | exp.Alias):
        parent = parent.parent
    named = isinstance(parent, exp.Anonymous) and parent.name.lower() == DISTANCE
    return named or isinstance(parent, (*_COMPARISONS, exp.Select))


def _patterns(body: Body) -> Iterator[tuple[str, str]]:
    for marker in body.tree.find_all(exp.Placeholder):
        node: exp.Expr = marker
        while (parent := node.parent) is not None and not isinstance(parent, exp.Query):
            kind = _OPERATORS.get(type(parent))
            if isinstance(parent, exp.Anonymous):
                name = parent.name.lower()
                kind = _REGULAR if name.startswith("regexp_") else _CALLS.get(name)
            # The first argument is the text that is searched.
            if kind is not None and parent.this is not node and node not in parent.expressions[:1]:
                yield str(marker.this), kind
                break
            node = parent
