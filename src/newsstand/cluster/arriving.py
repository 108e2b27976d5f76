"""Rows of an execution from Spark to the driver, without holding all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

FEW = 200_000
"""Results that an execution may be expected to bring to be fetched in one piece."""

ROWS = 10_000
"""Rows of one piece of many."""


def in_one_piece(matched: DataFrame) -> pa.Table | None:
    """All rows, fetched by one job: as quick as Spark itself, and meant for what is expected to be small.

    What bounds it if the expectation was wrong is `spark.driver.maxResultSize` (1 GiB unless set): Spark then
    gives the job up, and None is returned.
    """
    try:
        return matched.toArrow()
    except Exception as error:
        if "spark.driver.maxResultSize" in str(error):
            return None
        raise


def chunks(matched: DataFrame) -> Iterator[pa.Table]:
    """All rows, some thousands at a time.

    The executors pack them into compressed pieces; the driver asks for one partition after the other, so that it
    holds two partitions' pieces at most. That costs a job for each partition and a Python worker: some 0.2 s.
    """
    for row in matched.mapInArrow(_packed, "piece binary").toLocalIterator(prefetchPartitions=True):
        yield pa.ipc.open_stream(row.piece).read_all()


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
                writer.write_batch(batch.slice(start, ROWS))
            yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["piece"])
