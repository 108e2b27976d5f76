"""Parameters whose values a query can fail on: those that are cast, and those that are patterns or formats."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from newsstand.cluster.body import Body
from newsstand.cluster.functions import DISTANCE
from newsstand.cluster.matching import empty_frames, match
from newsstand.model import Dataset

_PATTERNS: dict[type[exp.Expr], str] = {
    exp.RegexpLike: "a regular expression",
    exp.RegexpILike: "a regular expression",
    exp.RegexpExtract: "a regular expression",
    exp.Split: "a regular expression",
    exp.RegexpSplit: "a regular expression",
    exp.Like: "a LIKE pattern",
    exp.ILike: "a LIKE pattern",
}
_REGULAR = (
    "regexp",
    "rlike",
    "regexp_like",
    "regexp_count",
    "regexp_extract",
    "regexp_extract_all",
    "regexp_instr",
)
_BY_NAME = {
    **dict.fromkeys((*_REGULAR, "regexp_replace", "regexp_substr", "split"), "a regular expression"),
    **dict.fromkeys(("like", "ilike"), "a LIKE pattern"),
}
_INSTEAD = {
    "a regular expression": "write contains(…, :{0}) or startswith(…, :{0}), or put the expression into the query",
    "a LIKE pattern": "write contains(…, :{0}) or startswith(…, :{0})",
}

_CAST = re.compile(r"(?<!try_)\bcast\((?:outer\()?__p_(\w+)#\d+L?\)? as (\w+)")

_SAFE_CASTS = {
    "string": {"string", "binary", "varchar", "char"},
    "integer": {"bigint", "double", "float", "string", "decimal", "boolean"},
    "double": {"double", "float", "string", "boolean"},
    "boolean": {"boolean", "string", "int", "bigint", "double"},
}
"""To which types a value of a parameter's type can always be cast."""

_TYPES = {"double": "double", "float": "double", "bigint": "integer", "int": "integer", "boolean": "boolean"}
"""What a parameter would be declared as, to need no cast to a type of Spark's."""

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.Between, exp.In)


def warnings_of(spark: SparkSession, body: Body, datasets: Mapping[str, Dataset]) -> list[str]:
    """The same warnings, for a query that nothing is published to or subscribed to yet."""
    return value_risks(body, match(body, *empty_frames(spark, body, datasets)))


def value_risks(body: Body, matched: DataFrame) -> list[str]:
    """A warning for each parameter that has values on which the query fails, with what to write instead.

    `matched` is what `match` makes of the body; Spark's casts are found in its analysed plan.
    """
    types = {one.name: one.type for one in body.channel.parameters}
    warnings = []
    for name, target in _casts(matched):
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
    """Whether an execution can fail on a value at all: no value is only compared, measured with or selected."""
    return bool(value_risks(body, matched)) or not all(map(_is_harmless, body.tree.find_all(exp.Placeholder)))


def _is_harmless(marker: exp.Placeholder) -> bool:
    parent = marker.parent
    while isinstance(parent, exp.Paren | exp.Alias):
        parent = parent.parent
    named = isinstance(parent, exp.Anonymous) and parent.name.lower() == DISTANCE
    return named or isinstance(parent, (*_COMPARISONS, exp.Select))


def _casts(matched: DataFrame) -> Iterator[tuple[str, str]]:
    plan = str(matched._jdf.queryExecution().analyzed().toString())
    for found in _CAST.finditer(plan):
        yield found[1], found[2]


def _patterns(body: Body) -> Iterator[tuple[str, str]]:
    for marker in body.tree.find_all(exp.Placeholder):
        node: exp.Expr = marker
        while (parent := node.parent) is not None and not isinstance(parent, exp.Query):
            kind = (
                _BY_NAME.get(parent.name.lower())
                if isinstance(parent, exp.Anonymous)
                else _PATTERNS.get(type(parent))
            )
            # The first argument is the text that is searched.
            if kind is not None and parent.this is not node and node not in parent.expressions[:1]:
                yield str(marker.this), kind
                break
            node = parent
