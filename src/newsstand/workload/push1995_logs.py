"""Access logs of several servers as one push trace.

The clients' networks are the subnets, as `access_log` finds them; those without a place are left out, and counted.
A page is a target at a server. A log tells of no modification: a page has one version, since its first request.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from newsstand.errors import BadOption, BadTrace
from newsstand.workload.access_log import read_access_log
from newsstand.workload.push1995_places import PREFIX_V4, PREFIX_V6, placed, read_places
from newsstand.workload.push1995_tables import TableKind, check_table, read_table_at
from newsstand.workload.push1995_trace import PushTrace, place_rules
from newsstand.workload.trace import ROW, Trace

SITES = TableKind("servers", {"name": T.StringType(), "latitude": T.DoubleType(), "longitude": T.DoubleType()})
_SHOWN_SUBNETS = 3
_BROADCAST_ROWS = 1_000_000


def read_push_logs(
    spark: SparkSession, logs: Mapping[str, Path], servers: Path, places: Path, *, strict: bool = False
) -> PushTrace:
    """The logs of servers, by their names; all servers of the table are in the trace, in its order.

    Its meaning is `urls(page, server, url)`.
    """
    sites = _read_sites(spark, servers)
    numbers = {row["name"]: row["server"] for row in sites.select("name", "server").collect()}
    for name in logs:
        if name not in numbers:
            raise BadOption(f"log {name}: no such server in {servers}")
    known = read_places(spark, places)
    read = {
        name: read_access_log(spark, path, strict=strict, prefix_v4=PREFIX_V4, prefix_v6=PREFIX_V6)
        for name, path in logs.items()
    }
    asked = _together([_requests(numbers[name], log) for name, log in read.items()])
    counts = asked.groupBy("name").agg(F.count(F.lit(1)).alias("requests")).localCheckpoint()
    subnets = _numbered(counts.join(placed(counts, known), "name"))
    kept = subnets.count()
    notes = [f"{name}: {note}" for name, log in read.items() for note in log.notes]
    notes += _unplaced(counts, subnets, kept, places)
    numbering = subnets.select("name", "subnet")
    if kept <= _BROADCAST_ROWS:
        numbering = F.broadcast(numbering)
    return PushTrace(
        source=", ".join(map(str, logs.values())),
        servers=sites,
        subnets=subnets,
        pages=_together([_pages(numbers[name], log) for name, log in read.items()]),
        requests=asked.join(numbering, "name").select("time", "server", "subnet", "page", ROW),
        notes=tuple(notes),
        meanings={"urls": _together([_urls(numbers[name], log) for name, log in read.items()])},
    )


def _read_sites(spark: SparkSession, path: Path) -> DataFrame:
    """The servers, numbered in the order of their table."""
    table = read_table_at(spark, path, SITES)
    try:
        check_table(table, SITES, place_rules(), ("name",))
    except BadTrace as error:
        raise BadTrace(f"{path}: {error}") from error
    place = (F.row_number().over(Window.orderBy(ROW)) - 1).cast("int")
    node = F.lit(None).cast("int").alias("node")
    return table.select(place.alias("server"), *SITES.columns, node, ROW).localCheckpoint()


def _page(server: int) -> Column:
    """Two servers may have a target of the same name."""
    return F.xxhash64(F.lit(server), "page").alias("page")


def _requests(server: int, log: Trace) -> DataFrame:
    networks = log.meanings["networks"].select("proxy", F.col("network").alias("name"))
    number = F.lit(server).cast("int").alias("server")
    return log.requests.join(networks, "proxy").select("time", number, "name", _page(server), ROW)


def _pages(server: int, log: Trace) -> DataFrame:
    number = F.lit(server).cast("int").alias("server")
    return log.publications.select(_page(server), number, "size", F.col("time").alias("modified"), ROW)


def _urls(server: int, log: Trace) -> DataFrame:
    return log.meanings["urls"].select(_page(server), F.lit(server).cast("int").alias("server"), "url")


def _together(tables: list[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, tables)


def _numbered(subnets: DataFrame) -> DataFrame:
    """One task sorts and numbers all subnets: there are far fewer of them than requests."""
    place = (F.row_number().over(Window.orderBy("name")) - 1).cast("int")
    row = F.struct(
        F.lit("").alias("file"), F.lit(0).cast("long").alias("block"), place.cast("long").alias("place")
    )
    return subnets.select(
        place.alias("subnet"),
        "name",
        "latitude",
        "longitude",
        F.col("requests").cast("double").alias("weight"),
        F.lit(None).cast("int").alias("node"),
        row.alias(ROW),
    ).localCheckpoint()


def _unplaced(counts: DataFrame, subnets: DataFrame, kept: int, places: Path) -> list[str]:
    total = counts.agg(F.count(F.lit(1)).alias("subnets"), F.sum("requests").alias("requests")).first()
    lost = counts.join(subnets.select("name"), "name", "left_anti")
    missing = lost.agg(F.coalesce(F.sum("requests"), F.lit(0)).alias("requests")).first()
    assert total is not None
    assert missing is not None
    if not kept:
        raise BadTrace(f"{places}: none of the {total['subnets']} subnets in the logs has a place there")
    if kept == total["subnets"]:
        return []
    most = lost.orderBy(F.desc("requests"), "name").limit(_SHOWN_SUBNETS).collect()
    more = ", ..." if total["subnets"] - kept > len(most) else ""
    shown = ", ".join(f"{row['name']} ({row['requests']})" for row in most)
    return [
        f"{total['subnets'] - kept} of {total['subnets']} subnets, with {missing['requests']} of "
        f"{total['requests']} requests, have no place in {places}: {shown}{more}"
    ]
