"""Writing traces: clustered by proxy and sorted by time, whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from newsstand.errors import BadInput
from newsstand.spark import stoppable
from newsstand.workload.trace import COLUMNS, ROW, Trace

ROWS_A_SHARD = 2_500_000
"""Requests that a replay holds in memory at a time, about."""

SubscriptionsOf = Callable[
    ["np.ndarray[tuple[int], np.dtype[np.int32]]", "np.ndarray[tuple[int], np.dtype[np.int64]]"],
    tuple[
        "np.ndarray[tuple[int], np.dtype[np.int32]]",
        "np.ndarray[tuple[int], np.dtype[np.int64]]",
        "np.ndarray[tuple[int], np.dtype[np.int32]]",
    ],
]


def refuse_existing(out: Path, *, force: bool, holds: Iterable[str] = tuple(COLUMNS)) -> None:
    """Nothing is overwritten unasked, and never anything but a trace, which is known by what it holds."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: is a file, not a folder")
    if out.exists() and not force:
        raise BadInput(f"{out}: exists already; choose another folder or pass --force to replace it")
    if out.exists() and any(out.iterdir()) and not all(_holds(out, name) for name in holds):
        raise BadInput(f"{out}: is not a trace, and --force replaces nothing else")


def _holds(folder: Path, table: str) -> bool:
    return any((folder / (table + ending)).exists() for ending in ("", ".parquet", ".csv"))


@contextmanager
def new_folder(out: Path, *, force: bool, holds: Iterable[str] = tuple(COLUMNS)) -> Iterator[Path]:
    """A folder to fill, which becomes `out` when the block ends well and vanishes when it does not."""
    refuse_existing(out, force=force, holds=holds)
    out = out.resolve()  # what a link points to is what is replaced
    partial, before = (out.parent / f".{out.name}.{word}-{os.getpid()}" for word in ("partial", "before"))
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise BadInput(f"{out}: cannot be written ({error.strerror})") from error
    try:
        yield partial
        if out.exists():
            out.replace(before)
        try:
            partial.replace(out)
        except OSError:
            if before.exists():
                before.replace(out)
            raise
        shutil.rmtree(before, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def shards_for(requests: int, proxies: int) -> int:
    """How many files a table is cut into: never by the number of cores, so that the bytes are the same."""
    return max(1, min(proxies, max(4, -(-requests // ROWS_A_SHARD))))


def write_table(table: DataFrame, path: Path) -> None:
    """Write a table as Parquet, one file a partition, named by the partition alone."""
    table.write.option("compression", "zstd").parquet(str(path))
    for extra in [*path.glob("_SUCCESS"), *path.glob(".*.crc")]:
        extra.unlink()
    for number, file in enumerate(sorted(path.glob("part-*.parquet"))):
        _order_encodings(file, table.columns)
        file.replace(path / f"part-{number:05d}.parquet")


def _order_encodings(file: Path, columns: list[str]) -> None:
    """Put the encodings that a footer lists for each column in order, so that the same rows are the same bytes.

    Java lists them by the addresses of objects, which differ from process to process.
    """
    with file.open("r+b") as parquet:
        parquet.seek(-8, os.SEEK_END)
        length = int.from_bytes(parquet.read(4), "little")
        start = parquet.seek(-8 - length, os.SEEK_END)
        footer = parquet.read(length)
        for column in columns:
            # In Thrift's compact protocol: a list of 32-bit integers, then a list of texts, the column's path.
            path = re.escape(bytes([len(column)]) + column.encode())
            encodings = rb"\x19[\x15\x25\x35\x45\x55\x65]([\x00-\x12]{1,6})\x19\x18" + path
            for listed in re.finditer(encodings, footer):
                parquet.seek(start + listed.start(1))
                parquet.write(bytes(sorted(listed[1])))


def write_requests(requests: DataFrame, path: Path, shards: int, shard: str | None = None) -> None:
    """Write requests clustered: by the shard that an expression tells, else by balanced ranges of proxies."""
    if shard is not None:
        clustered = requests.repartitionById(shards, F.expr(shard).cast("int"))
    else:
        clustered = requests.repartitionByRange(shards, "proxy")
    order = ["proxy", "time", ROW if ROW in requests.columns else "page"]
    write_table(clustered.sortWithinPartitions(*order).select(*COLUMNS["requests"]), path)


def write_subscriptions(spark: SparkSession, requests: Path, path: Path, derive: SubscriptionsOf) -> None:
    """Derive the subscriptions of every proxy from the file that holds its requests: nothing is shuffled."""
    files = sorted(str(file) for file in requests.glob("*.parquet"))

    def derive_file(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.column(0).to_pylist():
                table = pq.read_table(file, columns=["proxy", "page"])
                columns = derive(table.column("proxy").to_numpy(), table.column("page").to_numpy())
                yield pa.record_batch([pa.array(column) for column in columns], list(COLUMNS["subscriptions"]))

    listed = spark.sparkContext.parallelize([(file,) for file in files], len(files)).toDF("file string")
    write_table(listed.mapInArrow(derive_file, "proxy int, page long, count int"), path)


def write_trace(trace: Trace, out: Path, *, force: bool) -> None:
    """Write any trace as a clustered one, and beside it what its numbers stand for, if it knows."""

    def fill(folder: Path) -> None:
        ordered = trace.publications.repartition(1).sortWithinPartitions("time", ROW)
        write_table(ordered.select(*COLUMNS["publications"]), folder / "publications")
        rows = trace.requests.count()
        shards = shards_for(rows, max(1, rows))
        write_requests(trace.requests, folder / "requests", shards)
        subscriptions = trace.subscriptions.select(*COLUMNS["subscriptions"]).repartitionByRange(shards, "proxy")
        write_table(subscriptions.sortWithinPartitions("proxy", "page"), folder / "subscriptions")
        for name, meanings in trace.meanings.items():
            write_table(meanings.coalesce(1), folder / name)

    with new_folder(out, force=force) as folder:
        stoppable(trace.requests.sparkSession, lambda: fill(folder))
