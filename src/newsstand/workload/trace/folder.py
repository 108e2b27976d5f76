"""A trace folder: publications, requests and subscriptions as three tables.

A trace is written clustered by proxy and sorted by time, whole or not at all.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from newsstand.errors import BadInput, BadOption, BadTrace
from newsstand.spark import run_cancellable
from newsstand.workload.trace.columns import MOST_SUBSCRIPTIONS
from newsstand.workload.trace.files import (
    PUBLICATIONS,
    REQUESTS,
    SUBSCRIPTIONS,
    TABLES,
    holds_table,
    require_folder,
)
from newsstand.workload.trace.tables import ROW, check_table, read_table, row_in


@dataclass(frozen=True)
class Trace:
    """The three tables, each with its fixed columns and `row`; `notes` lists what the reader skipped."""

    source: str
    publications: DataFrame
    requests: DataFrame
    subscriptions: DataFrame
    notes: tuple[str, ...] = field(default=())
    folder: Path | None = None
    """The folder of the tables, if they are read from one unchanged."""
    meanings: Mapping[str, DataFrame] = field(default_factory=dict)
    """Further tables with the names of pages and proxies by number, if the source has names."""


def read_trace(spark: SparkSession, folder: str | Path) -> Trace:
    """Return a trace folder: each table a Parquet or CSV file, or a folder of them."""
    root = Path(folder)
    require_folder(root)
    publications, requests, subscriptions = (read_table(spark, root, layout) for layout in TABLES.values())
    return Trace(str(folder), publications, requests, subscriptions, folder=root)


def behind_one_proxy(trace: Trace) -> Trace:
    """Return the trace with one proxy for all readers, to which all subscriptions belong."""
    proxy = F.lit(0).alias("proxy")
    count = F.least(F.sum("count"), F.lit(MOST_SUBSCRIPTIONS)).cast("int").alias("count")
    merged = trace.subscriptions.groupBy("page").agg(count, F.min(ROW).alias(ROW))
    return replace(
        trace,
        requests=trace.requests.select("time", proxy, "page", ROW),
        subscriptions=merged.select(proxy, "page", "count", ROW),
        folder=None,
    )


def check(trace: Trace, tables: Iterable[str] = tuple(TABLES)) -> None:
    """Raise BadTrace with the file and the row if a table breaks a rule that replays rely on."""
    for name in tables:
        table, rules = getattr(trace, name), size_rules() if name == "publications" else {}
        if name == "subscriptions":
            rules["count is negative"] = F.col("count") < 0
        if name != "publications":
            published = trace.publications.select("page").withColumn("published", F.lit(True))
            table = table.join(published, "page", "left")
            rules["the page has no publication"] = F.col("published").isNull()
        rows = check_table(table, TABLES[name], rules, may_be_empty=True)
        if rows == 0 and name != "subscriptions":
            raise BadTrace(f"{trace.source}: table '{name}' is empty")


def size_rules() -> dict[str, Column]:
    """Return the rules of a column `size`."""
    return {"size is not positive": F.col("size") < 1, "size is over 2^53 bytes": F.col("size") > 2**53}


def publication_columns(file: str) -> list[Column]:
    """Return the columns of publications, from (page, first request, largest size); a page has at least one byte.

    Pages published at one time are in the order of their numbers, as the source has no order.
    """
    size = F.greatest(F.col("largest"), F.lit(1)).cast("long").alias("size")
    return [F.col("page"), F.col("first").alias("time"), size, row_in(file, F.col("page")).alias(ROW)]


def no_subscriptions(spark: SparkSession) -> DataFrame:
    """Return an empty table of subscriptions."""
    columns = [F.lit(None).cast(kind).alias(name) for name, kind in SUBSCRIPTIONS.columns.items()]
    return spark.range(0).select(*columns, row_in("", F.col("id")).alias(ROW))


ROWS_A_SHARD = 2_500_000
"""The approximate number of requests that a replay holds in memory at a time."""

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
SubscriptionsOf = Callable[[Int32s, Int64s], tuple[Int32s, Int64s, Int32s]]


def reject_existing(out: Path, *, force: bool, holds: Iterable[str] = tuple(TABLES)) -> None:
    """Raise BadOption if `out` exists, unless it is empty or a trace (by its files) and `force` is set."""
    if out.exists() and not out.is_dir():
        raise BadOption("is a file, not a folder; choose another", out=out)
    if out.exists() and not force:
        raise BadOption("exists already; choose another folder, or set `force` to replace it", out=out)
    if out.exists() and any(out.iterdir()) and not all(holds_table(out, name) for name in holds):
        raise BadOption("is not a trace, and `force` replaces nothing else; choose another folder", out=out)


@contextmanager
def new_folder(out: Path, *, force: bool, holds: Iterable[str] = tuple(TABLES)) -> Iterator[Path]:
    """Yield a folder to fill; it becomes `out` if the block succeeds, and is removed otherwise."""
    reject_existing(out, force=force, holds=holds)
    out = out.resolve()  # replace the target of a link, not the link
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
    """Return the number of files of a table; it does not depend on the number of cores, so bytes are equal."""
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
    """Sort the encodings in a footer for each column, so that equal rows give equal bytes.

    Java orders them by the addresses of objects, which differ from process to process.
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
    """Write requests clustered by the shard of an expression, by default by balanced ranges of proxies."""
    if shard is not None:
        clustered = requests.repartitionById(shards, F.expr(shard).cast("int"))
    else:
        clustered = requests.repartitionByRange(shards, "proxy")
    order = ["proxy", "time", ROW if ROW in requests.columns else "page"]
    write_table(clustered.sortWithinPartitions(*order).select(*REQUESTS.columns), path)


def write_subscriptions(spark: SparkSession, requests: Path, path: Path, derive: SubscriptionsOf) -> None:
    """Derive the subscriptions of every proxy from the file of its requests, without a shuffle."""
    files = sorted(str(file) for file in requests.glob("*.parquet"))

    def derive_file(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.column(0).to_pylist():
                table = pq.read_table(file, columns=["proxy", "page"])
                columns = derive(table.column("proxy").to_numpy(), table.column("page").to_numpy())
                yield pa.record_batch([pa.array(column) for column in columns], list(SUBSCRIPTIONS.columns))

    listed = spark.sparkContext.parallelize([(file,) for file in files], len(files)).toDF("file string")
    write_table(listed.mapInArrow(derive_file, "proxy int, page long, count int"), path)


def write_trace(trace: Trace, out: Path, *, force: bool) -> None:
    """Write a trace clustered by proxy, with its tables of names."""

    def fill(folder: Path) -> None:
        ordered = trace.publications.repartition(1).sortWithinPartitions("time", ROW)
        write_table(ordered.select(*PUBLICATIONS.columns), folder / "publications")
        rows = trace.requests.count()
        shards = shards_for(rows, max(1, rows))
        write_requests(trace.requests, folder / "requests", shards)
        subscriptions = trace.subscriptions.select(*SUBSCRIPTIONS.columns).repartitionByRange(shards, "proxy")
        write_table(subscriptions.sortWithinPartitions("proxy", "page"), folder / "subscriptions")
        for name, meanings in trace.meanings.items():
            write_table(meanings.coalesce(1), folder / name)

    with new_folder(out, force=force) as folder:
        run_cancellable(trace.requests.sparkSession, lambda: fill(folder))
