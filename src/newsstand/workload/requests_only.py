"""The other two tables of a source that knows requests only."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from newsstand.workload.trace import COLUMNS, ROW


def publication_columns(file: str) -> list[Column]:
    """The columns of publications, out of (page, first request, largest size); a page has at least a byte.

    The source does not tell their order: pages published at one time go by their numbers.
    """
    size = F.greatest(F.col("largest"), F.lit(1)).cast("long")
    return [
        F.col("page"),
        F.col("first").alias("time"),
        size.alias("size"),
        row(file, F.col("page")).alias(ROW),
    ]


def no_subscriptions(spark: SparkSession) -> DataFrame:
    """An empty table of subscriptions."""
    columns = [F.lit(None).cast(kind).alias(name) for name, kind in COLUMNS["subscriptions"].items()]
    return spark.range(0).select(*columns, row("", F.col("id")).alias(ROW))


def row(file: str, place: Column) -> Column:
    """The place of a row in a file that is not read in blocks."""
    return F.struct(F.lit(file).alias("file"), F.lit(0).cast("long").alias("block"), place.alias("place"))
