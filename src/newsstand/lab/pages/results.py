"""The results of a replay's tasks on Spark: as Arrow batches, and summed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from newsstand.lab.pages.replay import COUNTS, ResultRows, sorted_rows

_NUMBERS = (*COUNTS, "cache_bytes")
_SCHEMA = pa.schema(
    [("kind", pa.string()), ("run", pa.int32()), ("key", pa.int64()), ("text", pa.string())]
    + [(name, pa.int64()) for name in _NUMBERS]
)
RESULT_DDL = "kind string, run int, key long, text string, " + ", ".join(f"{name} long" for name in _NUMBERS)


def batches(results: Iterable[ResultRows]) -> Iterator[pa.RecordBatch]:
    """Return the results of a task as Spark takes them."""
    for result in results:
        rows = len(result.keys)
        numbers = [*(np.ascontiguousarray(column) for column in result.counts.T), result.cache_bytes]
        columns = [[result.kind] * rows, [result.run] * rows, result.keys, [result.text] * rows, *numbers]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        yield pa.record_batch(arrays, schema=_SCHEMA)


def collect(results: DataFrame) -> list[Mapping[str, object]]:
    """Sum the tasks' results: one row per run, and per proxy or hour if the job says so."""
    sums = [F.sum(name).alias(name) for name in _NUMBERS]
    rows = results.groupBy("kind", "run", "key").agg(F.min("text").alias("text"), *sums).collect()
    return sorted_rows(row.asDict() for row in rows)
