"""The binary traces of libCacheSim: oracleGeneral (`libCacheSim/bin/traceConv`), plain or compressed by zstd.

Packed little-endian records; `next` is the number, from 1, of the next request for the same object, or -1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from newsstand.errors import BadTrace
from newsstand.workload.requests_only import no_subscriptions, publication_columns, row
from newsstand.workload.trace import ROW, Trace

RECORD = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
"""A request, 24 bytes."""

RECORDS_PER_TASK = 2**20
_RECORDS_PER_BATCH = 2**16
_REQUEST = "time double, page long, size long, place long"


def read_oracle_general(
    spark: SparkSession, path: str | Path, *, strict: bool = False, records_per_task: int = RECORDS_PER_TASK
) -> Trace:
    """All requests at proxy 0; an object is as large as its largest request; ids from 2⁶³ turn negative."""
    file = Path(path).absolute()
    if not file.is_file():
        raise BadTrace(f"{path}: no such file")
    records, trailing = divmod(_length(file), RECORD.itemsize)
    if trailing and strict:
        raise BadTrace(f"{path}: {trailing} bytes follow record {records}, no whole record")
    if not records:
        raise BadTrace(f"{path}: the file holds no record of {RECORD.itemsize} bytes")
    if _is_compressed(file):
        records_per_task = records  # a stream has one reader
    requests = _requests(spark, file, records, records_per_task)
    pages = requests.groupBy("page").agg(F.min("time").alias("first"), F.max("size").alias("largest"))
    return Trace(
        str(path),
        publications=pages.select(*publication_columns(file.as_uri())),
        requests=requests.select(
            "time", F.lit(0).alias("proxy"), "page", row(file.as_uri(), F.col("place")).alias(ROW)
        ),
        subscriptions=no_subscriptions(spark),
        notes=(f"the last {trailing} bytes are no whole record and were passed over",) if trailing else (),
    )


def write_oracle_general(
    path: str | Path,
    times: npt.NDArray[np.generic],
    pages: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.generic],
) -> None:
    """Write requests in the given order, compressed if the name ends in .zst."""
    if not len(times) == len(pages) == len(sizes):
        raise BadTrace(f"{path}: {len(times)} times, {len(pages)} pages and {len(sizes)} sizes")
    for name, values in (("time", times), ("size", sizes)):
        if len(values) and not (values.min() >= 0 and values.max() < 2**32):
            raise BadTrace(f"{path}: a {name} does not fit in 32 bits")
    records = np.empty(len(pages), RECORD)
    records["time"], records["size"] = times, sizes
    records["object"] = pages.astype(np.int64).view(np.uint64)
    records["next"] = _next_requests(pages)
    compression = "zstd" if _is_compressed(Path(path)) else None
    with pa.output_stream(str(path), compression=compression) as out:
        out.write(records.tobytes())


def _next_requests(pages: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    order = np.argsort(pages, kind="stable")
    again = pages[order[1:]] == pages[order[:-1]]
    following = np.full(len(pages), -1, np.int64)
    following[order[:-1][again]] = order[1:][again] + 1
    return following


def _requests(spark: SparkSession, file: Path, records: int, records_per_task: int) -> DataFrame:
    """(time, page, size, place), each task reading its own range of records."""
    name, tasks = str(file), -(-records // records_per_task)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                first = task * records_per_task
                yield from _batches(name, first, min(records_per_task, records - first))

    return spark.range(0, tasks, 1, tasks).mapInArrow(read, _REQUEST)


def _batches(name: str, first: int, records: int) -> Iterator[pa.RecordBatch]:
    with _opened(Path(name)) as stream:
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


def _length(file: Path) -> int:
    """The bytes of the trace: of a compressed one, only reading it to the end tells."""
    if not _is_compressed(file):
        return file.stat().st_size
    length = 0
    try:
        with _opened(file) as stream:
            while chunk := stream.read(2**20):
                length += len(chunk)
    except OSError as error:
        raise BadTrace(f"{file}: not readable as zstd ({error})") from error
    return length


def _is_compressed(file: Path) -> bool:
    return file.suffix == ".zst"


def _opened(file: Path) -> BinaryIO:
    if not _is_compressed(file):
        return file.open("rb")
    stream: BinaryIO = pa.CompressedInputStream(pa.OSFile(str(file)), "zstd")
    return stream
