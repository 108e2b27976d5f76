"""Is a trace what the replay assumes? One aggregate per table; an offender is looked for only if there is one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from newsstand.errors import BadTrace
from newsstand.workload.trace import COLUMNS, ROW, Trace

UNKNOWN = "the page has no publication"
KEYS = {"publications": ("page",), "subscriptions": ("proxy", "page")}
"""The columns whose values may occur only once together."""


def check(trace: Trace, tables: Iterable[str] = tuple(COLUMNS)) -> None:
    """Raise BadTrace, naming the file and the row, if a table breaks a rule."""
    for name in tables:
        table = getattr(trace, name)
        faults = _faults(name)
        if name != "publications":
            published = trace.publications.select("page").withColumn("published", F.lit(True))
            table = table.join(published, "page", "left")
            faults[UNKNOWN] = F.col("published").isNull()
        counts = [F.count_if(fault).alias(text) for text, fault in faults.items()]
        keys = KEYS.get(name)
        distinct = F.count_distinct(*keys) if keys else F.count(F.lit(1))
        found = _first(table.agg(F.count(F.lit(1)).alias("rows"), distinct.alias("distinct"), *counts))
        if found["rows"] == 0 and name != "subscriptions":
            raise BadTrace(f"{trace.source}: table '{name}' is empty")
        for text, fault in faults.items():
            if found[text]:
                _refuse(name, table.where(fault), text, found[text])
        if keys and found["distinct"] < found["rows"]:
            _refuse_repeated(table, keys)


def _first(summary: DataFrame) -> Row:
    """The row of an aggregate; a file that Spark cannot read on the way is the user's to mend."""
    try:
        row = summary.first()
    except Exception as error:
        unreadable = re.search(r"\[FAILED_READ_FILE.*? reading file (\S+)\.\s+(.*)", str(error))
        if unreadable is None:
            raise
        reason = unreadable[2].partition("SQLSTATE")[0].strip() or "the file is corrupt"
        raise BadTrace(f"{_path(unreadable[1])}: not readable ({reason})") from error
    assert row is not None
    return row


def _faults(name: str) -> dict[str, Column]:
    faults = {
        f"{column} is missing or not a {kind.simpleString()}": F.col(column).isNull()
        for column, kind in COLUMNS[name].items()
    }
    if "time" in COLUMNS[name]:
        faults["time is not a finite number"] = F.isnan("time") | (F.abs("time") == float("inf"))
    if "size" in COLUMNS[name]:
        faults["size is not positive"] = F.col("size") < 1
        faults["size is over 2^53 bytes"] = F.col("size") > 2**53
    if "count" in COLUMNS[name]:
        faults["count is negative"] = F.col("count") < 0
    return faults


def _refuse_repeated(table: DataFrame, keys: tuple[str, ...]) -> None:
    repeated = table.groupBy(*keys).agg(F.count(F.lit(1)).alias("times")).where("times > 1")
    first = repeated.orderBy(*keys).first()
    assert first is not None
    what = ", ".join(f"{key} {first[key]}" for key in keys)
    again = table.where(" and ".join(f"{key} = {first[key]}" for key in keys))
    places = [_place(row) for row in again.orderBy(ROW).limit(2).collect()]
    raise BadTrace(f"{places[1]}: {what} occurs twice (first at {places[0]})")


def _refuse(name: str, offenders: DataFrame, text: str, count: int) -> None:
    first = offenders.orderBy(ROW).first()
    assert first is not None
    values = ", ".join(f"{column} {first[column]}" for column in COLUMNS[name] if first[column] is not None)
    more = f" ({count} such rows)" if count > 1 else ""
    raise BadTrace(f"{_place(first)}: {text} ({values}){more}")


def _place(row: Row) -> str:
    """The file, and the row in it where that can be told: data rows count from 1."""
    file, block, place = row[ROW]
    if not file:
        return "trace"
    path = _path(file)
    # A part of a table is named with its folder.
    name = f"{path.parent.name}/{path.name}" if path.parent.name in COLUMNS else path.name
    if name.endswith(".parquet"):
        return f"{name}: row {place + 1}"
    # Spark numbers the rows of a CSV file from 0 on only where it reads the file alone and from its start.
    alone = path.parent.name not in COLUMNS
    return f"{name}: row {(place & (2**33 - 1)) + 1}" if alone and block == 0 else name


def _path(address: str) -> Path:
    return Path(unquote(urlparse(address).path))
