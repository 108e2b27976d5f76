"""All subscriptions of a channel against what is new, in one plan of Spark's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from newsstand.cluster.body import Body
from newsstand.cluster.evaluation import Views, evaluation_sql
from newsstand.cluster.functions import DISTANCE
from newsstand.cluster.records import spark_schema
from newsstand.cluster.tables import values_table
from newsstand.errors import BadQuery
from newsstand.model import Dataset

_numbers = count(1)


def match(
    body: Body, new: DataFrame, stored: Mapping[str, DataFrame], values: DataFrame, broadcast_new: bool = True
) -> DataFrame:
    """The results of one execution, with the columns of `results.MATCHED`.

    `values` has `stream` and a column `p_<name>` for each parameter. With `broadcast_new` the new publications are
    sent to where the values are, so that an execution costs one scan of the values and what matches.
    """
    return _evaluated(new.sparkSession, body, new, stored, values, broadcast_new)


def check_body(spark: SparkSession, body: Body, datasets: Mapping[str, Dataset]) -> StructType:
    """Analyse the whole plan without running anything; return what the body gives, or raise BadQuery."""
    place = f"channels.{body.channel.name}.query"
    unknown = body.functions - builtin_functions(spark) - {DISTANCE}
    if unknown:
        raise BadQuery(f"{place}: no function '{min(unknown)}' in Spark")
    new, stored, values = empty_frames(spark, body, datasets)
    try:
        _evaluated(spark, body, new, stored, values, True)
        payload = _evaluated(spark, body, new, stored, values, True, as_json=False).schema["payload"].dataType
    except PySparkException as error:
        raise BadQuery(f"{place}: {_said(error)}") from error
    assert isinstance(payload, StructType)
    return payload


def empty_frames(
    spark: SparkSession, body: Body, datasets: Mapping[str, Dataset]
) -> tuple[DataFrame, dict[str, DataFrame], DataFrame]:
    """Frames without rows of the shapes that `match` wants: new, stored, values."""
    new = spark.createDataFrame([], spark_schema(datasets[body.channel.new]))
    stored = {name: spark.createDataFrame([], spark_schema(datasets[name])) for name in body.stored}
    return new, stored, spark.createDataFrame(values_table(body.channel, ()))


def builtin_functions(spark: SparkSession) -> frozenset[str]:
    """The functions that Spark brings, in lower case; they are asked for once for each version."""
    if spark.version not in _builtin:
        names = frozenset(row[0].lower() for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect())
        _builtin[spark.version] = names | _SYNTAX
    return _builtin[spark.version]


_builtin: dict[str, frozenset[str]] = {}
_SYNTAX = frozenset(
    [
        "cast",
        "try_cast",
        "extract",
        "interval",
        "trim",
        "substring",
        "overlay",
        "exists",
        "dateadd",
        "datediff",
        "timestampadd",
        "timestampdiff",
        "any",
        "current_date",
        "current_timestamp",
        "current_time",
    ]
)


@dataclass(frozen=True)
class Join:
    """A join of the physical plan: Spark's name for it, its keys, and whether the values are below it."""

    kind: str
    keys: tuple[str, ...]
    built: str | None
    """The side that is hashed or looped over: "left" or "right"; None if both are sorted."""
    values: bool


@dataclass(frozen=True)
class Plan:
    """What an execution's plan says of its cost."""

    joins: tuple[Join, ...]
    warnings: tuple[str, ...]


def describe(body: Body, matched: DataFrame) -> Plan:
    """The joins of what `match` gave, and a warning where the cost grows with subscriptions × publications."""
    lines = str(matched._jdf.queryExecution().executedPlan().toString()).splitlines()
    joins = []
    for number, line in enumerate(lines):
        known = _JOIN.search(line)
        if known is None:
            continue
        below = _below(lines, number)
        over = any(re.search(r"\bstream#|\bp_\w+#", other) for other in below)
        hashed = known["kind"].endswith("HashJoin") or known["kind"] == "SortMergeJoin"
        keys = re.match(r" \[(.*?)\], \[", line[known.end() :]) if hashed else None
        built = re.search(r"Build(Left|Right)", line)
        names = re.findall(r"[A-Za-z_]\w*(?=#\d)", keys[1]) if keys else []
        joins.append(Join(known["kind"], tuple(dict.fromkeys(names)), built[1].lower() if built else None, over))
    warnings = []
    loops = [
        join for join in joins if join.values and join.kind in ("BroadcastNestedLoopJoin", "CartesianProduct")
    ]
    if loops and body.channel.parameters:
        warnings.append(
            "no equality or distance ties a parameter to a dataset: cost grows with subscriptions × publications"
        )
    return Plan(tuple(joins), tuple(warnings))


_JOIN = re.compile(r"(?P<kind>\w*(?:HashJoin|NestedLoopJoin|SortMergeJoin)|CartesianProduct)\b")


def _below(lines: Sequence[str], number: int) -> list[str]:
    depth = _depth(lines[number])
    return list(takewhile(lambda line: _depth(line) > depth, lines[number + 1 :]))


def _depth(line: str) -> int:
    """How deep in the tree a line of a plan is: its branches are drawn with other signs than names are."""
    return len(line) - len(line.lstrip(" :+-"))


def _evaluated(
    spark: SparkSession,
    body: Body,
    new: DataFrame,
    stored: Mapping[str, DataFrame],
    values: DataFrame,
    broadcast_new: bool,
    as_json: bool = True,
) -> DataFrame:
    """Global views, because frames may belong to different sessions; gone as soon as the plan is analysed."""
    prefix = f"newsstand_{next(_numbers)}_"
    views = Views(f"{prefix}new", {name: f"{prefix}stored_{name}" for name in body.stored}, f"{prefix}values")
    frames = {views.new: new, views.values: values} | {views.stored[name]: stored[name] for name in body.stored}
    try:
        for name, frame in frames.items():
            frame.createOrReplaceGlobalTempView(name)
        return spark.sql(evaluation_sql(body, views, broadcast_new, as_json))
    finally:
        # Not the public way to drop a view, which also throws the cached rows away that it stood for.
        catalog = spark._jsparkSession.sessionState().catalog()
        for name in frames:
            catalog.dropGlobalTempView(name)


def _said(error: PySparkException) -> str:
    """The first line of what Spark says, without what it says of its own plan."""
    text = str(error).strip()
    first = re.split(r"\n|; line \d+ pos \d+|SQLSTATE", text, maxsplit=1)[0]
    return " ".join(first.split()).rstrip(" .;")
