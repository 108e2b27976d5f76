"""A push trace: what push-caching (Gwertzman and Seltzer 1995) is simulated on, as four tables.

Servers have pages, and clients in subnets ask for them. Servers and subnets have places and are numbered from 0
without holes; a page belongs to one server. A page has a row for each of its versions, `modified` when it became
the current one. Before the first of them, that one is current.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from newsstand.errors import BadTrace
from newsstand.spark import stoppable
from newsstand.workload.push1995_tables import Rules, TableKind, check_table, read_table
from newsstand.workload.store import new_folder, shards_for, write_table
from newsstand.workload.trace import ROW

_PLACE = {"latitude": T.DoubleType(), "longitude": T.DoubleType()}
_NODE = {"node": T.IntegerType()}

SERVERS = TableKind("servers", {"server": T.IntegerType(), "name": T.StringType(), **_PLACE}, _NODE)
SUBNETS = TableKind(
    "subnets", {"subnet": T.IntegerType(), "name": T.StringType(), **_PLACE, "weight": T.DoubleType()}, _NODE
)
PAGES = TableKind(
    "pages",
    {"page": T.LongType(), "server": T.IntegerType(), "size": T.LongType(), "modified": T.DoubleType()},
)
REQUESTS = TableKind(
    "requests",
    {"time": T.DoubleType(), "server": T.IntegerType(), "subnet": T.IntegerType(), "page": T.LongType()},
)
TABLES = (SERVERS, SUBNETS, PAGES, REQUESTS)
HOLDS = tuple(kind.name for kind in TABLES)
"""What the folder of a push trace holds."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PushTrace:
    """The four tables, each with `row`; `notes` tells what reading it passed over."""

    source: str
    servers: DataFrame
    subnets: DataFrame
    pages: DataFrame
    requests: DataFrame
    notes: tuple[str, ...] = field(default=())
    meanings: Mapping[str, DataFrame] = field(default_factory=dict)
    """What the numbers of pages stand for, as further tables, where the source names them."""


def read_push_trace(spark: SparkSession, folder: str | Path) -> PushTrace:
    """A folder with the four tables, each a Parquet or CSV file, or a folder of them."""
    root = Path(folder)
    if not root.is_dir():
        raise BadTrace(f"{folder}: {'is a file, not a trace folder' if root.exists() else 'no such trace folder'}")
    servers, subnets, pages, requests = (read_table(spark, root, kind) for kind in TABLES)
    return PushTrace(str(folder), servers, subnets, pages, requests)


def check_push_trace(trace: PushTrace) -> None:
    """Raise BadTrace, naming the file and the row, if a table breaks a rule or contradicts another."""
    try:
        servers, subnets = trace.servers.count(), trace.subnets.count()
        check_table(trace.servers, SERVERS, _numbered("server", servers) | place_rules(), ("server",))
        weights = {"weight is negative": F.col("weight") < 0}
        check_table(trace.subnets, SUBNETS, _numbered("subnet", subnets) | place_rules() | weights, ("subnet",))
        _check_pages(trace.pages, servers)
        _check_requests(trace, servers, subnets)
    except BadTrace as error:
        raise BadTrace(f"{trace.source}: {error}") from error


def place_rules() -> dict[str, Column]:
    """Latitudes and longitudes are on the globe."""
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
        "size is not positive": F.col("size") < 1,
        "size is over 2^53 bytes": F.col("size") > 2**53,
        **_unknown("server", servers, "servers"),
        "the page is another server's, too": F.col("server") != F.col("owner"),
    }
    check_table(pages.join(_owners(pages), "page", "left"), PAGES, rules, ("page", "modified"))


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
    """The pages with `version`, which counts the versions of each from 0 in the order of time."""
    nth = F.row_number().over(Window.partitionBy("page").orderBy("modified"))
    return pages.withColumn("version", (nth - 1).cast("int"))


def write_push_trace(trace: PushTrace, out: Path, *, force: bool) -> None:
    """Write any push trace as a clustered one, and beside it what its numbers stand for, if it knows."""

    def fill(folder: Path) -> None:
        servers = trace.servers.count()
        per_server = np.zeros(servers, np.int64)
        for row in trace.requests.groupBy("server").count().collect():
            per_server[row["server"]] = row["count"]
        shards = shards_for(int(per_server.sum()), servers)
        write_push_requests(with_shards(trace.requests, per_server, shards), folder / "requests", shards)
        for kind, order in ((SERVERS, "server"), (SUBNETS, "subnet")):
            table: DataFrame = getattr(trace, kind.name)
            columns = (*kind.columns, *_told(table, kind))
            write_table(table.select(*columns).repartition(1).sortWithinPartitions(order), folder / kind.name)
        pages = versions(trace.pages).select(*PAGES.columns, "version")
        write_table(pages.repartition(1).sortWithinPartitions("server", "page", "version"), folder / "pages")
        for name, meanings in trace.meanings.items():
            ordered = meanings.repartition(1).sortWithinPartitions(*meanings.columns)
            write_table(ordered, folder / name)

    with new_folder(out, force=force, holds=HOLDS) as folder:
        stoppable(trace.requests.sparkSession, lambda: fill(folder))


def _told(table: DataFrame, kind: TableKind) -> list[str]:
    """The optional columns that have a value anywhere."""
    counts = table.agg(*(F.count(column).alias(column) for column in kind.optional)).first()
    return [column for column in kind.optional if counts is not None and counts[column]]


def shards_of(requests: Ints, shards: int) -> npt.NDArray[np.int32]:
    """The file of each server: in their order, of about as many requests each, one server's never apart."""
    before = np.cumsum(requests) - requests
    return (before * shards // max(1, int(requests.sum()))).clip(0, shards - 1).astype(np.int32)


def with_shards(requests: DataFrame, per_server: Ints, shards: int) -> DataFrame:
    """The requests with `shard`, the file in which their server's are."""
    spark = requests.sparkSession
    rows = [(server, int(shard)) for server, shard in enumerate(shards_of(per_server, shards))]
    return requests.join(F.broadcast(spark.createDataFrame(rows, "server int, shard int")), "server")


def write_push_requests(requests: DataFrame, path: Path, shards: int) -> None:
    """Write requests clustered by their shard and, within, in the order of server and time."""
    last = [ROW] if ROW in requests.columns else ["subnet", "page"]
    clustered = requests.repartitionById(shards, "shard")
    write_table(clustered.sortWithinPartitions("server", "time", *last).select(*REQUESTS.columns), path)
