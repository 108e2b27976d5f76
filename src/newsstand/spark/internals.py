"""All uses of private interfaces of Spark and PySpark, and the messages of its errors.

This is the one place to look at when Spark is upgraded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from threading import Thread
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JavaClass
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


def jvm(spark: SparkSession) -> Any:
    """Return the driver's JVM, whose Java classes are its attributes."""
    return spark.sparkContext._jvm


def _java_class(spark: SparkSession, name: str) -> Any:
    """Return a Java class without the requests by which the attributes of `jvm` look for each part of its name."""
    gateway: Any = spark.sparkContext._gateway
    return JavaClass(name, gateway._gateway_client)


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


def limit_partitions(frame: DataFrame, rows: int) -> DataFrame:
    """Return at most this number of rows, below 2**31, from each partition of a frame.

    A task ends when it has them. The public `limit` moves the rows into one partition, to count all of them.
    """
    return _executed(frame, frame._jdf.queryExecution().executedPlan(), rows)


def _executed(frame: DataFrame, plan: Any, most: int | None) -> DataFrame:
    """Return the rows of a frame by this physical plan, at most this number from each partition."""
    spark = frame.sparkSession
    _activate(spark)
    if most is not None:
        # On top of the finished plan: the code that Spark generates for a limit within it has a new name each
        # time, and would be compiled for each execution.
        plan = _java_class(spark, "org.apache.spark.sql.execution.LocalLimitExec")(most, plan)
    rows = plan.execute()
    return DataFrame(spark._jsparkSession.internalCreateDataFrame(rows, frame._jdf.schema(), False), spark)


def arrow_frame(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Return a table that has the Arrow types of a schema as a frame.

    `spark.createDataFrame` does the same, with four times as many requests to the JVM.
    """
    context: Any = spark.sparkContext
    if context._encryption_enabled:
        return spark.createDataFrame(table, schema)
    with NamedTemporaryFile(dir=context._temp_dir) as file:
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        file.flush()
        python = _java_class(spark, "org.apache.spark.sql.api.python.PythonSQLUtils")
        batches = python.readArrowStreamFromFile(file.name)
        return DataFrame(python.toDataFrame(batches, schema.json(), spark._jsparkSession), spark)


def drop_global_views(spark: SparkSession, names: Iterable[str]) -> None:
    """Drop global temporary views, and keep the rows cached that they stand for.

    The public `spark.catalog.dropGlobalTempView` uncaches them.
    """
    catalog = spark._jsparkSession.sessionState().catalog()
    for name in names:
        catalog.dropGlobalTempView(name)


NodePath = tuple[int, ...]
"""A place in a plan: the indices of the children from the root to a node."""


@dataclass(frozen=True)
class PlanTemplate:
    """The analysed plan of a frame, in which the rows of local relations can be replaced by others.

    Spark parses, resolves and checks a plan once, and not again for each frame that is made from the template.
    """

    spark: SparkSession
    leaves: Mapping[NodePath, tuple[str, Any, Any, Any]]
    """The local relations: the name of each, its node, and the node's columns and stream."""
    inner: Mapping[NodePath, tuple[Any, Any, Sequence[int]]]
    """The nodes above them: each node, its children, and the indices of children in `leaves` or `inner`."""

    @classmethod
    def of(cls, frame: DataFrame, relations: Mapping[str, DataFrame]) -> PlanTemplate | None:
        """Return the template of a frame that was made from these relations.

        None if a relation is kept outside of the plan, because it has many rows, or if the plan has subqueries.
        """
        spark = frame.sparkSession
        names = jvm(spark).java.util.IdentityHashMap()
        plan = jvm(spark).org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases.apply(
            frame._jdf.queryExecution().analyzed()
        )
        rows = {name: _local_rows(relation) for name, relation in relations.items()}
        if any(one is None for one in rows.values()) or not plan.subqueriesAll().isEmpty():
            return None
        for name, one in rows.items():
            names.put(one, name)
        leaves: dict[NodePath, tuple[str, Any, Any, Any]] = {}
        inner: dict[NodePath, tuple[Any, Any, Sequence[int]]] = {}

        def visit(node: Any, path: NodePath) -> bool:
            children = node.children()
            if _is_local(node):
                name = names.get(node.data())
                if name is not None:
                    leaves[path] = name, node, node.output(), node.stream()
                return name is not None
            found = [index for index in range(children.size()) if visit(children.apply(index), (*path, index))]
            if found:
                inner[path] = node, children, found
            return bool(found)

        visit(plan, ())
        return cls(spark, leaves, inner) if {one[0] for one in leaves.values()} == set(relations) else None

    def frame(self, relations: Mapping[str, DataFrame]) -> DataFrame | None:
        """Return the frame with other relations; None if one of them is kept outside of the plan."""
        rows = {name: _local_rows(relation) for name, relation in relations.items()}
        if any(one is None for one in rows.values()):
            return None
        _activate(self.spark)
        plan = self._replaced((), rows)
        plan.setAnalyzed()
        dataset = _java_class(self.spark, "org.apache.spark.sql.classic.Dataset")
        return DataFrame(dataset.ofRows(self.spark._jsparkSession, plan), self.spark)

    def _replaced(self, path: NodePath, rows: Mapping[str, Any]) -> Any:
        if path in self.leaves:
            name, leaf, columns, stream = self.leaves[path]
            return leaf.copy(columns, rows[name], False, stream)
        node, children, indices = self.inner[path]
        for index in indices:
            children = children.updated(index, self._replaced((*path, index), rows))
        return node.withNewChildren(children)


def _is_local(plan: Any) -> bool:
    return bool(plan.nodeName() == "LocalRelation")


def _local_rows(frame: DataFrame) -> Any:
    """Return the rows of a frame that were given with its plan, in Spark's own form; None if they were not."""
    plan = frame._jdf.queryExecution().logical()
    return plan.data() if _is_local(plan) else None


class Broadcasts:
    """The relations that executions of similar plans have broadcast, so that the next execution uses them again.

    Spark compares the plans of two broadcasts with the data of their local relations (`sameResult`). One thread
    at a time uses an object of this class.
    """

    def __init__(self) -> None:
        self._known: list[Any] = []

    def reuse(self, frame: DataFrame, most: int | None = None) -> DataFrame:
        """Return a frame in which known broadcasts take the place of equal ones.

        It has the same rows, or at most this number from each partition.
        """
        spark = frame.sparkSession
        used: list[Any] = []
        plan = self._with_known(spark, frame._jdf.queryExecution().executedPlan(), used)
        gone = [one for one in self._known if all(one is not other for other in used)]
        self._known = used
        for one in gone:
            _destroy(one)
        return _executed(frame, plan, most)

    def clear(self) -> None:
        """Forget all broadcasts, after an execution that may have failed during one, or that was the last."""
        known, self._known = self._known, []
        for one in known:
            _destroy(one)

    def _with_known(self, spark: SparkSession, node: Any, used: list[Any]) -> Any:
        if node.nodeName() == "BroadcastExchange":
            for one in (*used, *self._known):
                if one.sameResult(node):
                    if all(one is not other for other in used):
                        used.append(one)
                    reused = _java_class(spark, "org.apache.spark.sql.execution.exchange.ReusedExchangeExec")
                    return reused(node.output(), one)
            used.append(node)
            return node
        children = changed = node.children()
        for index in range(children.size()):
            below = children.apply(index)
            replaced = self._with_known(spark, below, used)
            if replaced is not below:
                changed = changed.updated(index, replaced)
        return node if changed is children else node.withNewChildren(changed)


def _activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread in the JVM: new physical plans belong to it."""
    session = _java_class(spark, "org.apache.spark.sql.classic.SparkSession")
    session.setActiveSession(spark._jsparkSession)


def _destroy(exchange: Any) -> None:
    """Release the memory of a broadcast that has ended."""
    with suppress(Exception):  # it has failed, or Spark has stopped: there is nothing to release
        future = exchange.relationFuture()
        if future.isDone():
            future.get().destroy(False)


def is_adaptive(spark: SparkSession) -> bool:
    """Return whether Spark changes plans while it executes them: their broadcasts then cannot be used again."""
    return spark.conf.get("spark.sql.adaptive.enabled") == "true"


def is_local(frame: DataFrame) -> bool:
    """Return whether the rows of a frame are in its plan."""
    return _local_rows(frame) is not None


def can_reuse_broadcasts(frame: DataFrame) -> bool:
    """Return whether `Broadcasts` serve the plan of a frame.

    A join that compares all pairs of rows would do so in few tasks. Where Spark itself uses a broadcast twice in a
    plan, the second place cannot be replaced: Spark takes both for equal.
    """
    plan = physical_plan(frame)
    return not any(part in plan for part in ("NestedLoopJoin", "CartesianProduct", "ReusedExchange"))


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
