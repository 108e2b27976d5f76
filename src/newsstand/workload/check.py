"""Is a trace what the replay assumes? One aggregate per table; an offender is looked for only if there is one."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

from newsstand.errors import BadTrace
from newsstand.workload.offenders import Naming, counted
from newsstand.workload.trace import COLUMNS, Trace

UNKNOWN = "the page has no publication"
KEYS = {"publications": ("page",), "subscriptions": ("proxy", "page")}
"""The columns whose values may occur only once together."""
NAMING = Naming(COLUMNS, "trace")


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
        found = counted(table.agg(F.count(F.lit(1)).alias("rows"), distinct.alias("distinct"), *counts))
        if found["rows"] == 0 and name != "subscriptions":
            raise BadTrace(f"{trace.source}: table '{name}' is empty")
        for text, fault in faults.items():
            if found[text]:
                NAMING.refuse(table.where(fault), COLUMNS[name], text, found[text])
        if keys and found["distinct"] < found["rows"]:
            NAMING.refuse_repeated(table, keys)


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
