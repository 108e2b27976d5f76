"""All uses of private interfaces of Spark and PySpark, and the messages of its errors.

This is the one place to look at when Spark is upgraded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


def jvm(spark: SparkSession) -> Any:
    """Return the driver's JVM, whose Java classes are its attributes."""
    return spark.sparkContext._jvm


def long_array(spark: SparkSession, numbers: Collection[int]) -> Any:
    """Return a Java array of longs."""
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(jvm(spark).long, len(numbers))
    for index, number in enumerate(numbers):
        array[index] = number
    return array


def java_causes(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield class and message of the Java errors that a Python error stands for, the outermost first."""
    cause: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    for _ in range(20):
        if cause is None:
            return
        yield str(cause.getClass().getName()), str(cause.getMessage() or "")
        cause = cause.getCause()


# The context


def is_stopped(spark: SparkSession) -> bool:
    """Return whether the session's context has stopped, or its JVM has ended."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except Exception:  # the JVM does not answer
        return True


def active_stages(spark: SparkSession) -> set[int]:
    """Return the ids of the stages that are running."""
    return set(spark.sparkContext._jsc.sc().statusTracker().getActiveStageIds())


def cancel_group(context: SparkContext, group: str) -> None:
    """Cancel the jobs of a group, and those that it submits later."""
    context._jsc.sc().cancelJobGroupAndFutureJobs(group)


def executor_infos(context: SparkContext) -> list[Any]:
    """Return Spark's information on each executor: its host, port and running tasks."""
    return list(context._jsc.sc().statusTracker().getExecutorInfos())


def stop_session(spark: SparkSession) -> None:
    """Stop a session without waiting for the server of its accumulators, which notices it within a second."""
    context: Any = spark.sparkContext
    accumulators, context._accumulatorServer = context._accumulatorServer, None
    try:
        spark.stop()
    finally:
        if context._jsc is not None:  # it has not stopped
            context._accumulatorServer = accumulators
        elif accumulators is not None:
            Thread(target=accumulators.shutdown, daemon=True).start()


def end_jvm(*, kill: bool = False) -> None:
    """End the driver's JVM, which otherwise ends with this process, and wait for its end."""
    gateway: Any = SparkContext._gateway
    if gateway is not None:
        if kill:
            gateway.proc.kill()
        gateway.proc.stdin.close()
        gateway.proc.wait()


# Types, plans and views


def spark_type(schema: pa.Schema) -> StructType:
    """Return the type of rows in Spark for a schema of Arrow."""
    return from_arrow_schema(schema)


def analysed_plan(frame: DataFrame) -> str:
    """Return the text of a frame's logical plan after analysis."""
    return str(frame._jdf.queryExecution().analyzed().toString())


def physical_plan(frame: DataFrame) -> str:
    """Return the text of the plan by which Spark executes a frame."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def drop_global_views(spark: SparkSession, names: Iterable[str]) -> None:
    """Drop global temporary views, and keep the rows cached that they stand for.

    The public `spark.catalog.dropGlobalTempView` uncaches them.
    """
    catalog = spark._jsparkSession.sessionState().catalog()
    for name in names:
        catalog.dropGlobalTempView(name)


# Streaming


def batch_end_offset(checkpoint: Path, batch: int) -> str:
    """Return the end offset of a micro-batch with one source, which Spark writes down before the batch begins.

    The file has three lines: a version, metadata, and the offset.
    """
    return (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]


_DATA_MESSAGE = re.compile(r"\[(INVALID_FORMAT|[^\]]*\]((?!SQLSTATE: ).)*SQLSTATE: (22|21000|P0001))", re.DOTALL)
"""Messages with a SQLSTATE for data exceptions, too many rows for one value or `raise_error`.

INVALID_FORMAT is the condition of a LIKE pattern that ends with its escape character.
"""

_DATA_CLASSES = (
    "java.lang.ArithmeticException",
    "java.lang.IllegalArgumentException",
    "java.lang.NumberFormatException",
    "java.lang.StackOverflowError",  # in a regular expression: patterns with alternatives recurse
    "java.time.",
    "java.util.IllegalFormat",
    "java.util.MissingFormat",
    "java.util.UnknownFormat",
    "java.util.regex.",
)
"""Prefixes of Java classes of errors that functions raise for values that they do not accept."""


def root_cause(error: BaseException) -> str:
    """Return the class and the complete message of the innermost error."""
    causes = list(java_causes(error))
    if not causes:
        return f"{type(error).__name__}: {str(error).strip() or 'no message'}"
    name, message = causes[-1]
    text = message.partition("\n== ")[0].strip()  # a part of the plan follows
    return f"{name.rpartition('.')[2]}: {text or 'no message'}"


def first_line(error: BaseException) -> str:
    """Return the innermost error in one line, without a stack trace."""
    text = root_cause(error)
    damage = text.rfind("LogDamage: ")  # raised in a Python worker, after Spark's own message and stack
    return text[max(0, damage) :].splitlines()[0].strip()


def caused_by_data(error: BaseException) -> bool:
    """Return whether an expression of a query failed on a value, and not Spark, a database or a network."""
    return any(
        name.startswith(_DATA_CLASSES) or _DATA_MESSAGE.match(message) for name, message in java_causes(error)
    )
