"""Tables with declared schemas, read from Parquet or CSV, and their validation.

A rule is a text and a condition on a row. All rules of a table are counted in one pass. Only if a row breaks a
rule, it is searched for and reported by its file and its place there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from newsstand.errors import BadTrace, first_line_of
from newsstand.workload.trace.files import TableLayout, header_of, table_files, table_path

ROW = "row"
"""An extra column that orders the rows of a table as they were written: (file, block, place in the block)."""
INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
NUMBERS = (*INTEGERS, T.FloatType, T.DoubleType, T.DecimalType)
"""The Parquet types of a column of whole numbers, and of one of any numbers."""
_NO_NUMBER = -1


def read_table(spark: SparkSession, root: Path, layout: TableLayout) -> DataFrame:
    """Return the table of that name in a folder: its columns, and `row`."""
    return read_table_at(spark, table_path(root, layout.name), layout)


def read_table_at(spark: SparkSession, path: Path, layout: TableLayout) -> DataFrame:
    """Return the table in a file, or in a folder of files."""
    files, ending = table_files(path)
    return (_from_parquet if ending == ".parquet" else _from_csv)(spark, files, layout, path)


def _from_parquet(spark: SparkSession, files: Sequence[Path], layout: TableLayout, path: Path) -> DataFrame:
    # Checked here for an error of one line; that of Spark has many.
    for file in files:
        try:
            found = pq.read_schema(file).names
        except (OSError, pa.ArrowException) as error:
            raise BadTrace(f"{file}: not readable as Parquet ({first_line_of(error)})") from error
        layout.columns_in(found, file)
    try:
        table = spark.read.parquet(*(str(file.absolute()) for file in files))
    except Exception as error:
        raise BadTrace(f"{path}: not readable as Parquet ({first_line_of(error)})") from error
    for column, wanted in (*layout.columns.items(), *layout.optional.items()):
        fits = {"double": NUMBERS, "string": (T.StringType,)}.get(wanted, INTEGERS)
        if column in table.columns and not isinstance(table.schema[column].dataType, fits):
            got = table.schema[column].dataType.simpleString()
            raise BadTrace(f"{path}: column '{column}' is {got}, not {wanted}")
    # A number too large for its column becomes null here, and `check_table` reports it.
    cells = [F.col(column).try_cast(wanted).alias(column) for column, wanted in layout.columns.items()]
    optional = [_optional(table, column, wanted) for column, wanted in layout.optional.items()]
    return table.select(*cells, *optional, row_at(F.col("_metadata.row_index")))


def _from_csv(spark: SparkSession, files: Sequence[Path], layout: TableLayout, path: Path) -> DataFrame:
    header = header_of(files[0])
    layout.columns_in(header, path)
    for file in files[1:]:
        if header_of(file) != header:
            raise BadTrace(f"{file}: its header differs from that of {files[0].name}")
    known = {*layout.columns, *layout.optional}
    # Other columns may have any names, also one twice.
    names = [column if column in known else f"other {place}" for place, column in enumerate(header)]
    text = T.StructType([T.StructField(name, T.StringType()) for name in names])
    # With pruning, an empty cell in quotes ("") in a column that is not read hides the cells after it.
    raw = (
        spark.read.schema(text)
        .option("columnPruning", False)
        .csv(
            [str(file.absolute()) for file in files],
            header=True,
            escape='"',
            ignoreLeadingWhiteSpace=True,
            ignoreTrailingWhiteSpace=True,
        )
    )
    # Within a block of a file, and so within one file, this id grows with the rows.
    raw = raw.select("*", row_at(F.monotonically_increasing_id()))
    cells = [_cell(column, wanted).alias(column) for column, wanted in layout.columns.items()]
    optional = [_optional(raw, column, wanted) for column, wanted in layout.optional.items()]
    return raw.select(*cells, *optional, ROW)


def _cell(column: str, wanted: str) -> Column:
    if wanted == "string":
        return F.col(column)
    value = F.trim(F.col(column)).try_cast(wanted)
    if wanted == "double":
        return value
    # A cast alone would convert '1.7' to the integer 1.
    return F.when(F.trim(F.col(column)).rlike(r"^[+-]?\d+$"), value)


def _optional(table: DataFrame, column: str, wanted: str) -> Column:
    if column not in table.columns:
        return F.lit(None).cast(wanted).alias(column)
    # An unreadable value must not count as a missing one.
    unreadable = F.when(F.col(column).isNotNull(), F.lit(_NO_NUMBER))
    return F.coalesce(_cell(column, wanted), unreadable).cast(wanted).alias(column)


def row_at(place: Column) -> Column:
    """Return the column `row` of a table read from files."""
    return F.struct(
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        place.alias("place"),
    ).alias(ROW)


def row_in(file: str, place: Column) -> Column:
    """Return the value of `row` for a place in a file not read in blocks."""
    return F.struct(F.lit(file).alias("file"), F.lit(0).cast("long").alias("block"), place.alias("place"))


def first_row(summary: DataFrame) -> Row:
    """Return the row of an aggregate; raise BadTrace if Spark cannot read a file."""
    try:
        row = summary.first()
    except Exception as error:
        unreadable = re.search(r"\[FAILED_READ_FILE.*? reading file (\S+)\.\s+(.*)", str(error))
        if unreadable is None:
            raise
        reason = unreadable[2].partition("SQLSTATE")[0].strip() or "the file is corrupt"
        raise BadTrace(f"{file_path(unreadable[1])}: not readable ({reason})") from error
    assert row is not None
    return row


def _place(row: Row, table: DataFrame, name: str) -> str:
    """Return the file of a row, and the row in it: data rows count from 1."""
    file, block, place = row[ROW]
    if not file:
        return name
    path = file_path(file)
    shown = f"{path.parent.name}/{path.name}" if path.parent.name == name else path.name
    if path.suffix == ".parquet":
        return f"{shown}: row {place + 1}"
    if path.suffix != ".csv":
        return shown
    # Spark numbers the rows of a CSV file by its blocks, and the files that it reads together as one.
    here = F.col(f"{ROW}.block") == block
    before = (F.col(f"{ROW}.block") < block) | (here & (F.col(f"{ROW}.place") < place))
    return f"{shown}: row {table.where((F.col(f'{ROW}.file') == file) & before).count() + 1}"


def _reject(table: DataFrame, broken: Column, layout: TableLayout, text: str, count: int) -> None:
    """Raise BadTrace for the first broken row."""
    first = table.where(broken).orderBy(ROW).first()
    assert first is not None
    values = ", ".join(f"{column} {first[column]}" for column in layout.columns if first[column] is not None)
    more = f" ({count} such rows)" if count > 1 else ""
    raise BadTrace(f"{_place(first, table, layout.name)}: {text} ({values}){more}")


def _reject_repeated(table: DataFrame, name: str, key: Sequence[str]) -> None:
    """Raise BadTrace for the second row of the lowest key that occurs twice."""
    repeated = table.groupBy(*key).agg(F.count(F.lit(1)).alias("times")).where("times > 1")
    first = repeated.orderBy(*key).first()
    assert first is not None
    again = table
    for column in key:
        again = again.where(F.col(column) == F.lit(first[column]))
    places = [_place(row, table, name) for row in again.orderBy(ROW).limit(2).collect()]
    what = ", ".join(f"{column} {first[column]}" for column in key)
    raise BadTrace(f"{places[1]}: {what} occurs twice (first at {places[0]})")


def file_path(address: str) -> Path:
    """Return the path in a `file:` address of Spark."""
    return Path(unquote(urlparse(address).path))


Rules = Mapping[str, Column]


def check_table(table: DataFrame, layout: TableLayout, rules: Rules, *, may_be_empty: bool = False) -> int:
    """Return the number of rows; raise BadTrace with file and row if one breaks a rule or a key occurs twice."""
    rules = {**_general_rules(layout), **rules}
    broken = [F.count_if(condition).alias(f"rule {place}") for place, condition in enumerate(rules.values())]
    distinct = F.count_distinct(*layout.key) if layout.key else F.count(F.lit(1))
    counts = first_row(table.agg(F.count(F.lit(1)).alias("rows"), distinct.alias("distinct"), *broken))
    if not counts["rows"] and not may_be_empty:
        raise BadTrace(f"table '{layout.name}' is empty")
    for place, (text, condition) in enumerate(rules.items()):
        if counts[f"rule {place}"]:
            _reject(table, condition, layout, text, counts[f"rule {place}"])
    if counts["distinct"] < counts["rows"]:
        _reject_repeated(table, layout.name, layout.key)
    return int(counts["rows"])


def _general_rules(layout: TableLayout) -> Rules:
    rules = {
        f"{column} is missing or not a {wanted}": F.col(column).isNull()
        for column, wanted in layout.columns.items()
    }
    for column, wanted in layout.columns.items():
        if wanted == "double":
            rules[f"{column} is not a finite number"] = F.isnan(column) | (F.abs(column) == float("inf"))
    for column in layout.optional:
        rules[f"{column} is not a whole number from 0 on"] = F.col(column) < 0
    return rules
