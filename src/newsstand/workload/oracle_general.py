"""The binary traces of libCacheSim, read on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from newsstand.errors import BadTrace
from newsstand.workload.oracle_file import RECORD, chunks, count_records, is_compressed, opened
from newsstand.workload.trace.folder import Trace, no_subscriptions, publication_columns
from newsstand.workload.trace.tables import ROW, row_in

RECORDS_PER_TASK = 2**20
_RECORDS_PER_BATCH = 2**16
_REQUEST = "time double, page long, size long, place long"


def read_oracle_general(
    spark: SparkSession, path: str | Path, *, strict: bool = False, records_per_task: int = RECORDS_PER_TASK
) -> Trace:
    """Return all requests at proxy 0; the size of an object is its largest; ids from 2⁶³ become negative."""
    file = Path(path).absolute()
    if not file.is_file():
        raise BadTrace(f"{path}: no such file")
    # A compressed one is read to the end for its length.
    length = sum(map(len, chunks(file))) if is_compressed(file) else file.stat().st_size
    records, notes = count_records(path, length, strict=strict)
    if is_compressed(file):
        records_per_task = records  # a stream has one reader
    requests = _requests(spark, file, records, records_per_task)
    pages = requests.groupBy("page").agg(F.min("time").alias("first"), F.max("size").alias("largest"))
    return Trace(
        str(path),
        publications=pages.select(*publication_columns(file.as_uri())),
        requests=requests.select(
            "time", F.lit(0).alias("proxy"), "page", row_in(file.as_uri(), F.col("place")).alias(ROW)
        ),
        subscriptions=no_subscriptions(spark),
        notes=notes,
    )


def _requests(spark: SparkSession, file: Path, records: int, records_per_task: int) -> DataFrame:
    """Return (time, page, size, place); each task reads its own range of records."""
    name, tasks = str(file), -(-records // records_per_task)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                first = task * records_per_task
                yield from _batches(name, first, min(records_per_task, records - first))

    return spark.range(0, tasks, 1, tasks).mapInArrow(read, _REQUEST)


def _batches(name: str, first: int, records: int) -> Iterator[pa.RecordBatch]:
    with opened(Path(name)) as stream:
        if first:
            stream.seek(first * RECORD.itemsize)
        for start in range(first, first + records, _RECORDS_PER_BATCH):
            count = min(_RECORDS_PER_BATCH, first + records - start)
            found = np.frombuffer(stream.read(count * RECORD.itemsize), RECORD)
            columns = {
                "time": found["time"].astype(np.float64),
                "page": found["object"].astype(np.uint64).view(np.int64),
                "size": found["size"].astype(np.int64),
                "place": np.arange(start, start + count, dtype=np.int64),
            }
            yield pa.RecordBatch.from_pydict({key: pa.array(values) for key, values in columns.items()})
