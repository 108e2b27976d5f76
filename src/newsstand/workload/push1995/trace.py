"""A push trace: the input of simulations of push-caching (Gwertzman and Seltzer 1995), as four tables.

Servers have pages, and clients in subnets request them. Servers and subnets have locations and are numbered from 0
without gaps; a page belongs to one server. A page has a row for each version, `modified` when it became the
current one. Before the first modification, the first version is current.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from newsstand.errors import BadTrace
from newsstand.spark import run_cancellable
from newsstand.workload.push1995.columns import LAYOUTS
from newsstand.workload.trace.files import TableLayout, require_folder
from newsstand.workload.trace.folder import new_folder, shards_for, size_rules, write_table
from newsstand.workload.trace.tables import ROW, Rules, check_table, read_table

SERVERS, SUBNETS, PAGES, REQUESTS = LAYOUTS.values()
HOLDS = tuple(LAYOUTS)
"""What the folder of a push trace holds."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PushTrace:
    """The four tables, each with `row`; `notes` lists what the reader skipped."""

    source: str
    servers: DataFrame
    subnets: DataFrame
    pages: DataFrame
    requests: DataFrame
    notes: tuple[str, ...] = field(default=())
    meanings: Mapping[str, DataFrame] = field(default_factory=dict)
    """Further tables with the names of pages by number, if the source has names."""


def read_push_trace(spark: SparkSession, folder: str | Path) -> PushTrace:
    """Return a folder with the four tables, each a Parquet or CSV file, or a folder of them."""
    root = Path(folder)
    require_folder(root)
    servers, subnets, pages, requests = (read_table(spark, root, layout) for layout in LAYOUTS.values())
    return PushTrace(str(folder), servers, subnets, pages, requests)


def check_push_trace(trace: PushTrace) -> None:
    """Raise BadTrace with the file and the row if a table breaks a rule or contradicts another."""
    try:
        servers, subnets = trace.servers.count(), trace.subnets.count()
        check_table(trace.servers, SERVERS, _numbered("server", servers) | place_rules())
        weights = {"weight is negative": F.col("weight") < 0}
        check_table(trace.subnets, SUBNETS, _numbered("subnet", subnets) | place_rules() | weights)
        _check_pages(trace.pages, servers)
        _check_requests(trace, servers, subnets)
    except BadTrace as error:
        raise BadTrace(f"{trace.source}: {error}") from error


def place_rules() -> dict[str, Column]:
    """Return the rules of latitudes and longitudes."""
    return {
        f"{column} is not between -{most} and {most} degrees": F.abs(column) > most
        for column, most in (("latitude", 90), ("longitude", 180))
    }


def _numbered(column: str, rows: int) -> dict[str, Column]:
    wrong = (F.col(column) < 0) | (F.col(column) >= rows)
    return {f"{column} is not in 0 … {rows - 1}, as numbers without holes are": wrong}


def _unknown(column: str, rows: int, table: str) -> dict[str, Column]:
    return {f"{column} is not in '{table}'": (F.col(column) < 0) | (F.col(column) >= rows)}


def _check_pages(pages: DataFrame, servers: int) -> None:
    rules: Rules = {
        **size_rules(),
        **_unknown("server", servers, "servers"),
        "the page is another server's, too": F.col("server") != F.col("owner"),
    }
    check_table(pages.join(_owners(pages), "page", "left"), PAGES, rules)


def _check_requests(trace: PushTrace, servers: int, subnets: int) -> None:
    rules: Rules = {
        **_unknown("server", servers, "servers"),
        **_unknown("subnet", subnets, "subnets"),
        "page is not in 'pages'": F.col("owner").isNull(),
        "the page is not this server's": F.col("server") != F.col("owner"),
    }
    check_table(trace.requests.join(_owners(trace.pages), "page", "left"), REQUESTS, rules)


def _owners(pages: DataFrame) -> DataFrame:
    return pages.groupBy("page").agg(F.min("server").alias("owner"))


def versions(pages: DataFrame) -> DataFrame:
    """Return the pages with `version`, the number of each version from 0 in the order of time."""
    nth = F.row_number().over(Window.partitionBy("page").orderBy("modified"))
    return pages.withColumn("version", (nth - 1).cast("int"))


def write_push_trace(trace: PushTrace, out: Path, *, force: bool) -> None:
    """Write a push trace clustered by server, with its tables of names."""

    def fill(folder: Path) -> None:
        servers = trace.servers.count()
        per_server = np.zeros(servers, np.int64)
        for row in trace.requests.groupBy("server").count().collect():
            per_server[row["server"]] = row["count"]
        shards = shards_for(int(per_server.sum()), servers)
        write_push_requests(with_shards(trace.requests, per_server, shards), folder / "requests", shards)
        for kind, order in ((SERVERS, "server"), (SUBNETS, "subnet")):
            table: DataFrame = getattr(trace, kind.name)
            columns = (*kind.columns, *_given_columns(table, kind))
            write_table(table.select(*columns).repartition(1).sortWithinPartitions(order), folder / kind.name)
        pages = versions(trace.pages).select(*PAGES.columns, "version")
        write_table(pages.repartition(1).sortWithinPartitions("server", "page", "version"), folder / "pages")
        for name, meanings in trace.meanings.items():
            ordered = meanings.repartition(1).sortWithinPartitions(*meanings.columns)
            write_table(ordered, folder / name)

    with new_folder(out, force=force, holds=HOLDS) as folder:
        run_cancellable(trace.requests.sparkSession, lambda: fill(folder))


def _given_columns(table: DataFrame, kind: TableLayout) -> list[str]:
    """Return the optional columns that have a value anywhere."""
    counts = table.agg(*(F.count(column).alias(column) for column in kind.optional)).first()
    return [column for column in kind.optional if counts is not None and counts[column]]


def shards_of(requests: Ints, shards: int) -> npt.NDArray[np.int32]:
    """Return the file of each server, in their order; files have similar numbers of requests."""
    before = np.cumsum(requests) - requests
    return (before * shards // max(1, int(requests.sum()))).clip(0, shards - 1).astype(np.int32)


def with_shards(requests: DataFrame, per_server: Ints, shards: int) -> DataFrame:
    """Return the requests with `shard`, the file of their server."""
    spark = requests.sparkSession
    rows = [(server, int(shard)) for server, shard in enumerate(shards_of(per_server, shards))]
    return requests.join(F.broadcast(spark.createDataFrame(rows, "server int, shard int")), "server")


def write_push_requests(requests: DataFrame, path: Path, shards: int) -> None:
    """Write requests clustered by their shard and, within, in the order of server and time."""
    last = [ROW] if ROW in requests.columns else ["subnet", "page"]
    clustered = requests.repartitionById(shards, "shard")
    write_table(clustered.sortWithinPartitions("server", "time", *last).select(*REQUESTS.columns), path)
