"""A trace: publications, requests and subscriptions, as three tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from newsstand.errors import BadTrace

COLUMNS: dict[str, dict[str, T.DataType]] = {
    "publications": {"page": T.LongType(), "time": T.DoubleType(), "size": T.LongType()},
    "requests": {"time": T.DoubleType(), "proxy": T.IntegerType(), "page": T.LongType()},
    "subscriptions": {"proxy": T.IntegerType(), "page": T.LongType(), "count": T.IntegerType()},
}
"""The fixed columns of each table."""

ROW = "row"
"""An extra column that orders the rows of a table as they were written: (file, block, place in the block)."""

INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
NUMBERS = (*INTEGERS, T.FloatType, T.DoubleType, T.DecimalType)
"""What a column of whole numbers and one of any may be in Parquet."""


@dataclass(frozen=True)
class Trace:
    """The three tables, each with its fixed columns and `row`; `notes` tells what reading it passed over."""

    source: str
    publications: DataFrame
    requests: DataFrame
    subscriptions: DataFrame
    notes: tuple[str, ...] = field(default=())
    folder: Path | None = None
    """Where the tables lie as they are, if they do."""
    meanings: Mapping[str, DataFrame] = field(default_factory=dict)
    """What the numbers of pages and proxies stand for, as further tables, where the source names them."""

    def tables(self) -> Iterator[tuple[str, DataFrame]]:
        for name in COLUMNS:
            yield name, getattr(self, name)


def read_trace(spark: SparkSession, folder: str | Path) -> Trace:
    """A trace folder: each table a Parquet or CSV file, or a folder of them."""
    root = Path(folder)
    if not root.is_dir():
        raise BadTrace(f"{folder}: {'is a file, not a trace folder' if root.exists() else 'no such trace folder'}")
    publications, requests, subscriptions = (_read_table(spark, root, name) for name in COLUMNS)
    return Trace(str(folder), publications, requests, subscriptions, folder=root)


def table_path(root: Path, name: str) -> Path:
    """Where a table of a trace folder lies."""
    for candidate in (root / f"{name}.parquet", root / f"{name}.csv", root / name):
        if candidate.exists():
            return candidate
    raise BadTrace(f"{root}: table '{name}' is missing (looked for {name}.parquet, {name}.csv and {name}/)")


def data_files(path: Path) -> list[Path]:
    """The data files of a table, in the order of their names."""
    if path.is_file():
        return [path]
    files = [
        file
        for file in path.rglob("*")
        if file.is_file() and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    ]
    files.sort(key=Path.as_posix)  # as Spark orders the rows of several files
    if not files:
        raise BadTrace(f"{path}: the folder holds no data file")
    return files


def _read_table(spark: SparkSession, root: Path, name: str) -> DataFrame:
    path = table_path(root, name)
    files = data_files(path)
    endings = {file.suffix for file in files}
    if endings == {".parquet"}:
        _check_footers(files, name)
        return _typed(_parquet(spark, files, path), name, path)
    if endings == {".csv"}:
        return _from_csv(spark, files, name, path)
    raise BadTrace(f"{path}: expected .parquet or .csv files, found {', '.join(sorted(endings))}")


def _check_footers(files: list[Path], name: str) -> None:
    """Every file is Parquet and has the columns: told here in one line, by Spark in many."""
    for file in files:
        try:
            schema = pq.read_schema(file)
        except (OSError, pa.ArrowException) as error:
            raise BadTrace(f"{file}: not readable as Parquet ({_first_line(error)})") from error
        _require_columns(schema.names, name, file)


def _parquet(spark: SparkSession, files: list[Path], path: Path) -> DataFrame:
    try:
        return spark.read.parquet(*(str(file.absolute()) for file in files))
    except Exception as error:
        raise BadTrace(f"{path}: not readable as Parquet ({_first_line(error)})") from error


def _typed(table: DataFrame, name: str, path: Path) -> DataFrame:
    """The table's fixed columns, widened to their types."""
    _require_columns(table.columns, name, path)
    for column, wanted in COLUMNS[name].items():
        found = table.schema[column].dataType
        fits = NUMBERS if isinstance(wanted, T.DoubleType) else INTEGERS
        if not isinstance(found, fits):
            raise BadTrace(f"{path}: column '{column}' is {found.simpleString()}, not {wanted.simpleString()}")
    # A number too large for its column turns null here and is reported as one by `check`.
    typed = [F.col(column).try_cast(kind).alias(column) for column, kind in COLUMNS[name].items()]
    return table.select(*typed, row_at(F.col("_metadata.row_index")))


def _from_csv(spark: SparkSession, files: list[Path], name: str, path: Path) -> DataFrame:
    header = _header(files[0])
    _require_columns(header, name, path)
    for file in files[1:]:
        if _header(file) != header:
            raise BadTrace(f"{file}: its header differs from that of {files[0].name}")
    text = T.StructType([T.StructField(column, T.StringType()) for column in header])
    raw = spark.read.schema(text).csv([str(file.absolute()) for file in files], header=True)
    # Within a block of a file, and so within one file, this id grows with the rows.
    rows = raw.select(*COLUMNS[name], row_at(F.monotonically_increasing_id()))
    cells = [_cell(column, kind) for column, kind in COLUMNS[name].items()]
    return rows.select(*cells, ROW)


def _cell(column: str, kind: T.DataType) -> Column:
    value = F.trim(F.col(column)).try_cast(kind)
    if isinstance(kind, T.DoubleType):
        return value.alias(column)
    # A cast alone would take '1.7' for the integer 1.
    whole = F.trim(F.col(column)).rlike(r"^[+-]?\d+$")
    return F.when(whole, value).alias(column)


def row_at(place: Column) -> Column:
    """The column `row` of a table that is read from files."""
    return F.struct(
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        place.alias("place"),
    ).alias(ROW)


def _header(file: Path) -> list[str]:
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        return [column.strip().strip('"') for column in lines.readline().rstrip("\r\n").split(",")]


def _require_columns(found: list[str], name: str, path: Path) -> None:
    for column in COLUMNS[name]:
        if column not in found:
            shown = ", ".join(map(_readable, found[:12])) or "none"
            raise BadTrace(f"{path}: column '{column}' is missing (found: {shown})")


def _readable(name: str) -> str:
    """A column's name for people, even where the file is none of a kind that has columns."""
    short = name if len(name) <= 40 else f"{name[:40]}…"
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in short)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
