"""Channels tried over recorded publications: nothing is stored, and nobody is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from newsstand.cluster.body import Body, parse_body
from newsstand.cluster.facade import Facts
from newsstand.cluster.log import Log
from newsstand.cluster.matching import Plan, check_body, describe, match
from newsstand.cluster.spark_errors import first_line
from newsstand.cluster.tables import values_table
from newsstand.errors import BadQuery
from newsstand.model import Channel, Dataset, Values

SAMPLE = 20
"""Results that a dry run shows; it always counts them all."""

RECENT = 10_000
"""Publications that an explanation looks back on."""


@dataclass(frozen=True)
class Recorded:
    """What is recorded: the log, and what is stored of each dataset."""

    spark: SparkSession
    log: Log
    stored: Callable[[Dataset], DataFrame]
    datasets: Mapping[str, Dataset]


def dry_run(
    recorded: Recorded, channel: Channel, values: Sequence[Values], after: int, until: int | None
) -> Facts:
    """What a channel would have made of the publications after < seq <= until, for these values."""
    body = parse_body(channel, recorded.datasets)
    output = check_body(recorded.spark, body, recorded.datasets)
    head = recorded.log.head(channel.new)
    end = head if until is None else min(until, head)
    wanted = recorded.spark.createDataFrame(values_table(channel, enumerate(values)))
    began = time.monotonic()
    matched = _matched(recorded, body, wanted, after, end).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        in_order = matched.orderBy(F.col("publication").asc_nulls_last(), "stream", "ordinal", "payload")
        sample = in_order.limit(SAMPLE).toArrow()
        counts = dict(matched.groupBy("stream").count().toArrow().to_pandas().itertuples(index=False))
    except PySparkException as error:
        raise BadQuery(f"channels.{channel.name}.query: fails on what is recorded: {first_line(error)}") from error
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


def explanation(recorded: Recorded, channel: Channel, wanted: DataFrame) -> Facts:
    """How Spark executes a channel, and what the last publications would bring with present subscriptions."""
    body = parse_body(channel, recorded.datasets)
    head = recorded.log.head(channel.new)
    after = max(0, head - RECENT)
    return {
        "plan": asdict(_plan(recorded, body, wanted, after, head)),
        "recent": {"publications": head - after, **_totals(_matched(recorded, body, wanted, after, head))},
    }


def _totals(matched: DataFrame) -> Facts:
    """How many results there are and what computing them takes; why they cannot be computed if they cannot."""
    began = time.monotonic()
    totals = matched.agg(
        F.count("*").alias("results"),
        F.countDistinct("stream").alias("streams"),
        # Spark would leave out what nobody asks for, and with it much of the cost.
        F.coalesce(F.sum(F.octet_length("payload")), F.lit(0)).alias("bytes"),
    )
    try:
        (row,) = totals.toArrow().to_pylist()
    except PySparkException as error:
        return {"error": first_line(error)}
    return {**row, "seconds": round(time.monotonic() - began, 3)}


def _plan(recorded: Recorded, body: Body, wanted: DataFrame, after: int, until: int) -> Plan:
    """How Spark would execute a channel, also where nothing is subscribed to or recorded yet."""
    new, stored = _frames(recorded, body, after, until)
    stored = {name: _not_empty(frame) for name, frame in stored.items()}
    return describe(body, match(body, _not_empty(new), stored, _not_empty(wanted)))


def _not_empty(frame: DataFrame) -> DataFrame:
    """A frame, or in place of one without rows, whose joins Spark leaves out, one of which it cannot know that."""
    if not frame.isEmpty():
        return frame
    spark = frame.sparkSession
    return spark.createDataFrame(spark.sparkContext.emptyRDD(), frame.schema)


def _matched(recorded: Recorded, body: Body, wanted: DataFrame, after: int, until: int) -> DataFrame:
    new, stored = _frames(recorded, body, after, until)
    return match(body, new, stored, wanted)


def _frames(recorded: Recorded, body: Body, after: int, until: int) -> tuple[DataFrame, dict[str, DataFrame]]:
    new = recorded.log.frame(recorded.spark, recorded.datasets[body.channel.new], after, until)
    return new, {name: recorded.stored(recorded.datasets[name]) for name in body.stored}
