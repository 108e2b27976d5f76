"""Tables that are declared as data: read from Parquet or CSV with their types, refused where they break a rule.

A rule is a text and a condition on a row. All rules of a table are counted in one pass; a row that breaks one is
looked for only if there is one, and told by its file and its place in it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from newsstand.errors import BadTrace
from newsstand.workload.offenders import Naming, counted
from newsstand.workload.trace import INTEGERS, NUMBERS, ROW, data_files, row_at, table_path

_SHOWN_COLUMNS = 12
_NO_NUMBER = -1


@dataclass(frozen=True)
class TableKind:
    """The columns of a table; optional ones are whole numbers from 0 on, and null where they are not given."""

    name: str
    columns: Mapping[str, T.DataType]
    optional: Mapping[str, T.DataType] = field(default_factory=dict)


def read_table(spark: SparkSession, root: Path, kind: TableKind) -> DataFrame:
    """The table of that name in a folder: its columns, and `row`."""
    return read_table_at(spark, table_path(root, kind.name), kind)


def read_table_at(spark: SparkSession, path: Path, kind: TableKind) -> DataFrame:
    """The table in a file, or in a folder of files."""
    if not path.exists():
        raise BadTrace(f"{path}: no such file or folder")
    files = data_files(path)
    endings = {file.suffix for file in files}
    if endings == {".parquet"}:
        return _from_parquet(spark, files, kind)
    if endings == {".csv"}:
        return _from_csv(spark, files, kind)
    raise BadTrace(f"{path}: expected .parquet or .csv files, found {', '.join(sorted(endings))}")


def _from_parquet(spark: SparkSession, files: Sequence[Path], kind: TableKind) -> DataFrame:
    for file in files:
        try:
            found = pq.read_schema(file).names
        except (OSError, pa.ArrowException) as error:
            raise BadTrace(f"{file}: not readable as Parquet ({str(error).strip().splitlines()[0]})") from error
        _require_columns(found, kind, file)
    table = spark.read.parquet(*(str(file.absolute()) for file in files))
    for column, wanted in (*kind.columns.items(), *kind.optional.items()):
        fits = {T.DoubleType: NUMBERS, T.StringType: (T.StringType,)}.get(type(wanted), INTEGERS)
        if column in table.columns and not isinstance(table.schema[column].dataType, fits):
            got = table.schema[column].dataType.simpleString()
            raise BadTrace(f"{files[0]}: column '{column}' is {got}, not {wanted.simpleString()}")
    cells = [F.col(column).try_cast(wanted).alias(column) for column, wanted in kind.columns.items()]
    optional = [_optional(table, column, wanted) for column, wanted in kind.optional.items()]
    return table.select(*cells, *optional, row_at(F.col("_metadata.row_index")))


def _from_csv(spark: SparkSession, files: Sequence[Path], kind: TableKind) -> DataFrame:
    header = _header(files[0])
    _require_columns(header, kind, files[0])
    for file in files[1:]:
        if _header(file) != header:
            raise BadTrace(f"{file}: its header differs from that of {files[0].name}")
    text = T.StructType([T.StructField(column, T.StringType()) for column in header])
    raw = spark.read.schema(text).csv(
        [str(file.absolute()) for file in files],
        header=True,
        escape='"',
        ignoreLeadingWhiteSpace=True,
        ignoreTrailingWhiteSpace=True,
    )
    # Within a block of a file this id grows with the rows.
    raw = raw.select("*", row_at(F.monotonically_increasing_id()))
    cells = [_cell(column, wanted).alias(column) for column, wanted in kind.columns.items()]
    optional = [_optional(raw, column, wanted) for column, wanted in kind.optional.items()]
    return raw.select(*cells, *optional, ROW)


def _cell(column: str, wanted: T.DataType) -> Column:
    if isinstance(wanted, T.StringType | T.DoubleType):
        return F.col(column).try_cast(wanted)
    # A cast alone would take '1.7' for the integer 1.
    return F.when(F.col(column).rlike(r"^[+-]?\d+$"), F.col(column).try_cast(wanted))


def _optional(table: DataFrame, column: str, wanted: T.DataType) -> Column:
    if column not in table.columns:
        return F.lit(None).cast(wanted).alias(column)
    # What is there but cannot be read must not pass for something that is not there.
    unreadable = F.when(F.col(column).isNotNull(), F.lit(_NO_NUMBER))
    return F.coalesce(_cell(column, wanted), unreadable).cast(wanted).alias(column)


def _header(file: Path) -> list[str]:
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        return [column.strip() for column in next(csv.reader(lines), [])]


def _require_columns(found: Sequence[str], kind: TableKind, path: Path) -> None:
    for column in kind.columns:
        if found.count(column) != 1:
            shown = ascii(", ".join(found[:_SHOWN_COLUMNS]))[1:-1] or "none"
            fault = "occurs twice" if column in found else "is missing"
            raise BadTrace(f"{path}: column '{column}' {fault} (found: {shown})")


Rules = Mapping[str, Column]


def check_table(
    table: DataFrame, kind: TableKind, rules: Rules, key: Sequence[str] = (), may_be_empty: bool = False
) -> int:
    """Raise BadTrace, naming the file and the row, if a row breaks a rule or a key occurs twice; all rows."""
    naming = Naming((kind.name,), kind.name)
    rules = {**_general_rules(kind), **rules}
    broken = [F.count_if(condition).alias(f"rule {place}") for place, condition in enumerate(rules.values())]
    distinct = F.count_distinct(*key) if key else F.count(F.lit(1))
    counts = counted(table.agg(F.count(F.lit(1)).alias("rows"), distinct.alias("distinct"), *broken))
    if not counts["rows"] and not may_be_empty:
        raise BadTrace(f"table '{kind.name}' is empty")
    for place, (text, condition) in enumerate(rules.items()):
        if counts[f"rule {place}"]:
            naming.refuse(table.where(condition), kind.columns, text, counts[f"rule {place}"])
    if counts["distinct"] < counts["rows"]:
        naming.refuse_repeated(table, key)
    return int(counts["rows"])


def _general_rules(kind: TableKind) -> Rules:
    rules = {
        f"{column} is missing or not a {wanted.simpleString()}": F.col(column).isNull()
        for column, wanted in kind.columns.items()
    }
    for column, wanted in kind.columns.items():
        if isinstance(wanted, T.DoubleType):
            rules[f"{column} is not a finite number"] = F.isnan(column) | (F.abs(column) == float("inf"))
    for column in kind.optional:
        rules[f"{column} is not a whole number from 0 on"] = F.col(column) < 0
    return rules
