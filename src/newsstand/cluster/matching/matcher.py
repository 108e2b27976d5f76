"""All subscriptions of a channel against new publications, in one Spark plan.

An execution hands its matches to the result store (`SparkMatches`). A dry run or an explanation matches recorded
publications: nothing is stored, no broker is notified.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import count, takewhile

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from newsstand.cluster.ingest.schema import spark_schema
from newsstand.cluster.log.contract import Log
from newsstand.cluster.matching.tables import values_table
from newsstand.cluster.query.dialect import DISTANCE, SYNTAX
from newsstand.cluster.query.parser import Body, parse_body
from newsstand.cluster.query.rewrite import Broadcast, Views, evaluation_sql
from newsstand.cluster.results.model import BatchTask, require_at_most
from newsstand.errors import BadQuery
from newsstand.model import ChannelDefinition, Dataset, JsonObject, Values
from newsstand.spark.internals import drop_global_views, first_line, limit_partitions, physical_plan

_view_numbers = count(1)


def match(
    body: Body,
    new: DataFrame,
    stored: Mapping[str, DataFrame],
    values: DataFrame,
    broadcast: Broadcast | None = "new",
    as_json: bool = True,
) -> DataFrame:
    """Return the results of one execution, with the columns of `MATCH_SCHEMA`.

    Without `as_json` the payloads are structs. `values` has `stream` and a column `p_<name>` for each parameter.
    With "new" as `broadcast`, the publications are sent to the partitions of the values: an execution costs one
    scan of the values and the matches. With "others", the values and the stored records are sent to the
    publications.
    """
    # Global views, because frames may belong to different sessions; dropped as soon as the plan is analysed.
    spark = new.sparkSession
    prefix = f"newsstand_{next(_view_numbers)}_"
    views = Views(f"{prefix}new", {name: f"{prefix}stored_{name}" for name in body.stored}, f"{prefix}values")
    frames = {views.new: new, views.values: values} | {views.stored[name]: stored[name] for name in body.stored}
    try:
        for name, frame in frames.items():
            frame.createOrReplaceGlobalTempView(name)
        return spark.sql(evaluation_sql(body, views, broadcast, as_json))
    finally:
        drop_global_views(spark, frames)


def check_body(spark: SparkSession, body: Body, datasets: Mapping[str, Dataset]) -> StructType:
    """Analyse the whole plan without running it; return the type of the results, or raise BadQuery."""
    place = f"channels.{body.channel.name}.query"
    unknown = body.functions - _builtin_functions(spark) - {DISTANCE}
    if unknown:
        raise BadQuery(f"{place}: no function '{min(unknown)}' in Spark")
    frames = empty_frames(spark, body, datasets)
    try:
        match(body, *frames)
        payload = match(body, *frames, as_json=False).schema["payload"].dataType
    except PySparkException as error:
        raise BadQuery(f"{place}: {_first_sentence(error)}") from error
    assert isinstance(payload, StructType)
    return payload


def empty_frames(
    spark: SparkSession, body: Body, datasets: Mapping[str, Dataset]
) -> tuple[DataFrame, dict[str, DataFrame], DataFrame]:
    """Return frames without rows for `match`: new, stored, values."""
    new = spark.createDataFrame([], spark_schema(datasets[body.channel.new]))
    stored = {name: spark.createDataFrame([], spark_schema(datasets[name])) for name in body.stored}
    return new, stored, spark.createDataFrame(values_table(body.channel, ()))


@lru_cache(maxsize=1)
def _builtin_functions(spark: SparkSession) -> frozenset[str]:
    """Return the functions that Spark has, in lower case."""
    return SYNTAX.union(row[0].lower() for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect())


def _first_sentence(error: PySparkException) -> str:
    """Return the start of Spark's message, without its references to the plan."""
    text = str(error).strip()
    first = re.split(r"\n|; line \d+ pos \d+|SQLSTATE", text, maxsplit=1)[0]
    return " ".join(first.split()).rstrip(" .;")


PIECE_ROWS = 10_000
"""Rows of one compressed piece."""


@dataclass(frozen=True)
class SparkMatches:
    """The rows of a DataFrame, as the result store reads them (`DistributedMatches`)."""

    frame: DataFrame
    on_executed: Callable[[], object] = lambda: None
    """Called when Spark has computed all rows."""
    most: int | None = None
    """The largest number of rows: of more, a task ends after one row more than that, and reading them raises
    TooManyResults. After `map_partitions` it is the store that counts what the tasks have staged."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Return all rows, some thousands at a time.

        The executors pack them into compressed pieces; the driver asks for one partition after the other, so that
        it holds the pieces of two partitions at most. That costs a job and a Python worker for each partition,
        about 0.2 s.
        """
        rows = 0
        for row in self._limited.mapInArrow(_pack, "piece binary").toLocalIterator(prefetchPartitions=True):
            for batch in pa.ipc.open_stream(row.piece):
                rows += batch.num_rows
                require_at_most(self.most, rows)
                yield batch
        self.on_executed()

    def collect(self) -> pa.Table | None:
        """Return all rows, fetched by one job; None if they exceed `spark.driver.maxResultSize` (1 GiB)."""
        try:
            found = self._limited.toArrow()
        except Exception as error:
            if "spark.driver.maxResultSize" in str(error):
                return None
            raise
        require_at_most(self.most, found.num_rows)
        self.on_executed()
        return found

    def map_partitions(self, task: BatchTask, schema: str) -> list[dict[str, object]]:
        """Run a task on every partition in its executor; return the rows of the attempts that Spark accepted."""
        rows = self._limited.mapInArrow(task, schema).collect()
        self.on_executed()
        return [row.asDict() for row in rows]

    @property
    def _limited(self) -> DataFrame:
        return self.frame if self.most is None else limit_partitions(self.frame, self.most + 1)


def _pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for batch in batches:
        for start in range(0, batch.num_rows, PIECE_ROWS):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
                writer.write_batch(batch.slice(start, PIECE_ROWS))
            yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["piece"])


SAMPLE_RESULTS = 20
"""Results that a dry run shows; it always counts all of them."""

RECENT_PUBLICATIONS = 10_000
"""Publications that an explanation takes into account."""


@dataclass(frozen=True)
class RecordedData:
    """Publications in a log, and the stored records of each dataset."""

    spark: SparkSession
    log: Log
    stored: Callable[[Dataset], DataFrame]
    datasets: Mapping[str, Dataset]

    def frames(self, body: Body, after: int, until: int) -> tuple[DataFrame, dict[str, DataFrame]]:
        """Return the publications after < seq <= until, and the stored records that a body reads."""
        new = self.log.frame(self.spark, self.datasets[body.channel.new], after, until)
        return new, {name: self.stored(self.datasets[name]) for name in body.stored}


def dry_run(
    data: RecordedData, channel: ChannelDefinition, values: Sequence[Values], after: int, until: int | None
) -> JsonObject:
    """Return what a channel would produce from the publications after < seq <= until, for these values."""
    body = parse_body(channel, data.datasets)
    output = check_body(data.spark, body, data.datasets)
    head = data.log.head(channel.new)
    end = head if until is None else min(until, head)
    streams = data.spark.createDataFrame(values_table(channel, enumerate(values)))
    began = time.monotonic()
    matched = match(body, *data.frames(body, after, end), streams).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        in_order = matched.orderBy(F.col("publication").asc_nulls_last(), "stream", "ordinal", "payload")
        sample = in_order.limit(SAMPLE_RESULTS).toArrow()
        counts = dict(matched.groupBy("stream").count().toArrow().to_pandas().itertuples(index=False))
    except PySparkException as error:
        raise BadQuery(
            f"channels.{channel.name}.query: fails on recorded publications: {first_line(error)}"
        ) from error
    finally:
        matched.unpersist()
    return {
        "channel": channel.name,
        "publications": max(0, end - after),
        "results": sum(counts.values()),
        "by_values": [
            {"values": list(given), "results": int(counts.get(number, 0))} for number, given in enumerate(values)
        ],
        "seconds": round(time.monotonic() - began, 3),
        "output": {field.name: field.dataType.simpleString() for field in output.fields},
        "sample": [
            {
                "values": list(values[row["stream"]]),
                "publication": row["publication"],
                "payload": msgspec.json.decode(row["payload"]),
            }
            for row in sample.to_pylist()
        ],
    }


def explanation(data: RecordedData, channel: ChannelDefinition, values: DataFrame) -> JsonObject:
    """Return how Spark executes a channel, and its results on recent publications with present subscriptions."""
    body = parse_body(channel, data.datasets)
    head = data.log.head(channel.new)
    after = max(0, head - RECENT_PUBLICATIONS)
    new, stored = data.frames(body, after, head)
    recent = {"publications": head - after, **_totals(match(body, new, stored, values))}
    # The plan is shown also where nothing is subscribed to or recorded yet.
    stored = {name: _maybe_empty(frame) for name, frame in stored.items()}
    plan = describe(body, match(body, _maybe_empty(new), stored, _maybe_empty(values)))
    return {"plan": asdict(plan), "recent": recent}


def _totals(matched: DataFrame) -> JsonObject:
    """Return the number of results and the time to compute them, or the error that prevents it."""
    began = time.monotonic()
    totals = matched.agg(
        F.count("*").alias("results"),
        F.countDistinct("stream").alias("streams"),
        # Spark would leave out columns that are not used, and with them much of the cost.
        F.coalesce(F.sum(F.octet_length("payload")), F.lit(0)).alias("bytes"),
    )
    try:
        (row,) = totals.toArrow().to_pylist()
    except PySparkException as error:
        return {"error": first_line(error)}
    return {**row, "seconds": round(time.monotonic() - began, 3)}


def _maybe_empty(frame: DataFrame) -> DataFrame:
    """Return a frame that Spark cannot know to be empty: it leaves joins with empty frames out of its plan."""
    spark = frame.sparkSession
    return spark.createDataFrame(spark.sparkContext.emptyRDD(), frame.schema) if frame.isEmpty() else frame


# Plans


@dataclass(frozen=True)
class Join:
    """A join of the physical plan: Spark's name for it, its keys, and whether the values are below it."""

    kind: str
    keys: tuple[str, ...]
    built: str | None
    """The side that is hashed or looped over: "left" or "right"; None if both are sorted."""
    values: bool


@dataclass(frozen=True)
class PlanSummary:
    """The parts of an execution's plan that determine its cost."""

    joins: tuple[Join, ...]
    warnings: tuple[str, ...]


_COSTLY = "no equality or distance ties a parameter to a dataset: cost grows with subscriptions × publications"
_JOIN = re.compile(r"(?P<kind>\w*(?:HashJoin|NestedLoopJoin|SortMergeJoin)|CartesianProduct)\b")


def describe(body: Body, matched: DataFrame) -> PlanSummary:
    """Return the joins of a matched frame, and a warning where cost grows with subscriptions × publications."""
    lines = physical_plan(matched).splitlines()
    joins = []
    for number, line in enumerate(lines, 1):
        found = _JOIN.search(line)
        if found is None:
            continue
        over_values = any(re.search(r"\bstream#|\bp_\w+#", other) for other in _below(line, lines[number:]))
        hashed = found["kind"].endswith("HashJoin") or found["kind"] == "SortMergeJoin"
        keys = re.match(r" \[(.*?)\], \[", line[found.end() :]) if hashed else None
        names = re.findall(r"[A-Za-z_]\w*(?=#\d)", keys[1]) if keys else []
        built = re.search(r"Build(Left|Right)", line)
        side = built[1].lower() if built else None
        joins.append(Join(found["kind"], tuple(dict.fromkeys(names)), side, over_values))
    loops = ("BroadcastNestedLoopJoin", "CartesianProduct")
    costly = body.channel.parameters and any(join.values and join.kind in loops for join in joins)
    return PlanSummary(tuple(joins), (_COSTLY,) if costly else ())


def _below(line: str, following: Sequence[str]) -> Iterable[str]:
    return takewhile(lambda other: _depth(other) > _depth(line), following)


def _depth(line: str) -> int:
    """Return how deep in the tree a line of a plan is: branches are drawn with other characters than names."""
    return len(line) - len(line.lstrip(" :+-"))
