"""Access logs of several servers as one push trace.

Subnets are the networks of clients in `access_log`; those without a location are dropped and counted. A page is a
target at a server. A log records no modifications: a page has one version, from its first request on.

Locations are looked up in a table of prefixes (`192.0.2.0/24`, `2001:db8::/32`) and domains (`example.org`,
`edu`); the longest match counts. A prefix longer than a subnet counts for the whole subnet, unless the table has a
row for the subnet itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from newsstand.errors import BadOption, BadTrace
from newsstand.workload.access_log import network, read_access_log
from newsstand.workload.push1995.trace import PushTrace, place_rules
from newsstand.workload.trace.files import TableLayout
from newsstand.workload.trace.folder import Trace
from newsstand.workload.trace.tables import ROW, check_table, read_table_at, row_in

PLACES = TableLayout("places", {"subnet": "string", "latitude": "double", "longitude": "double"}, ("subnet",))
PREFIX_V4, PREFIX_V6 = 24, 48
"""The bits of an address that make its subnet."""
_V4, _V6, _DOMAIN = "4:", "6:", "d:"


def read_places(spark: SparkSession, path: Path) -> DataFrame:
    """Return a table of places: (key, finer, latitude, longitude), the key being that of a subnet."""
    table = read_table_at(spark, path, PLACES)
    table = table.select("*", key_of(F.col("subnet")).alias("key"))
    rules = {"subnet is neither a prefix of addresses nor a domain": F.col("key").isNull(), **place_rules()}
    try:
        check_table(table, PLACES, rules)
    except BadTrace as error:
        raise BadTrace(f"{path}: {error}") from error
    longest = F.when(F.col("key").startswith(_V4), PREFIX_V4).when(F.col("key").startswith(_V6), PREFIX_V6)
    finer = F.length("key") - 2 > longest
    cut = F.when(finer, F.substring("key", F.lit(1), longest + 2)).otherwise(F.col("key"))
    first = Window.partitionBy("key").orderBy("finer", ROW)
    keyed = table.select(
        cut.alias("key"), F.coalesce(finer, F.lit(False)).alias("finer"), "latitude", "longitude", ROW
    )
    return keyed.withColumn("nth", F.row_number().over(first)).where("nth = 1").drop("nth", ROW)


def placed(names: DataFrame, places: DataFrame) -> DataFrame:
    """Return the names with a location: (name, latitude, longitude)."""
    keyed = names.select("name", key_of(F.col("name")).alias("key"))
    prefixes = keyed.select("name", F.explode(_prefixes(F.col("key"))).alias("prefix"))
    fitting = prefixes.select("name", F.col("prefix.key").alias("key"), "prefix.length").join(places, "key")
    best = fitting.groupBy("name").agg(F.max_by(F.struct("latitude", "longitude"), "length").alias("place"))
    return best.select("name", "place.latitude", "place.longitude")


def key_of(text: Column) -> Column:
    """Return the key of a prefix (its family and its bits) or of a domain; null if it is neither."""
    trimmed = F.lower(F.trim(text))
    address = F.substring_index(trimmed, "/", 1)
    given = F.when(trimmed.contains("/"), F.substring_index(trimmed, "/", -1).try_cast("int"))
    full = network(address, 32, 128)
    parts = F.substring_index(full, "/", 1)
    bits_v4 = _bits(F.split(parts, r"\."), 10, 8)
    bits_v6 = _bits(F.split(parts, ":"), 16, 16)
    domain = F.regexp_replace(trimmed, r"^(\*?\.)|\.$", "")
    return (
        F.when(full.rlike(r"^[\d.]+/32$"), _cut(_V4, bits_v4, trimmed, given, 32))
        .when(full.rlike(r"^[0-9a-f:]+/128$"), _cut(_V6, bits_v6, trimmed, given, 128))
        .when(domain.rlike(r"^[^\s/:]+$"), F.concat(F.lit(_DOMAIN), domain))
    )


def _bits(numbers: Column, base: int, width: int) -> Column:
    return F.array_join(F.transform(numbers, lambda one: F.lpad(F.conv(one, base, 2), width, "0")), "")


def _cut(family: str, bits: Column, text: Column, given: Column, longest: int) -> Column:
    """Return the first bits, all without a given length; null if the length is impossible."""
    length = F.when(~text.contains("/"), F.lit(longest)).when(given.between(0, longest), given)
    return F.concat(F.lit(family), F.substring(bits, F.lit(1), length))


def _prefixes(key: Column) -> Column:
    """Return all keys that include a key, with their lengths."""
    labels = F.split(F.substring(key, F.lit(3), F.length(key)), r"\.")
    domains = F.transform(
        F.sequence(F.lit(1), F.size(labels)),
        lambda many: F.struct(
            F.concat(F.lit(_DOMAIN), F.array_join(F.slice(labels, -many, many), ".")).alias("key"),
            many.alias("length"),
        ),
    )
    addresses = F.transform(
        F.sequence(F.lit(0), F.length(key) - 2),
        lambda many: F.struct(F.substring(key, F.lit(1), many + 2).alias("key"), many.alias("length")),
    )
    return F.when(key.startswith(_DOMAIN), domains).otherwise(addresses)


SITES = TableLayout("servers", {"name": "string", "latitude": "double", "longitude": "double"}, ("name",))
_SHOWN_SUBNETS = 3
_BROADCAST_ROWS = 1_000_000


def read_push_logs(
    spark: SparkSession, logs: Mapping[str, Path], servers: Path, places: Path, *, strict: bool = False
) -> PushTrace:
    """Return the trace of the logs of servers, by name; it has all servers of the table, in its order.

    Its meaning is `urls(page, server, url)`.
    """
    sites = _read_sites(spark, servers)
    numbers = {row["name"]: row["server"] for row in sites.select("name", "server").collect()}
    for name in logs:
        if name not in numbers:
            raise BadOption(f"no such server in {servers}", log=name)
    known = read_places(spark, places)
    read = {
        name: read_access_log(spark, path, strict=strict, prefix_v4=PREFIX_V4, prefix_v6=PREFIX_V6)
        for name, path in logs.items()
    }
    requests = _together([_requests(numbers[name], log) for name, log in read.items()])
    counts = requests.groupBy("name").agg(F.count(F.lit(1)).alias("requests")).localCheckpoint()
    subnets = _numbered(counts.join(placed(counts, known), "name"))
    known_subnets = subnets.count()
    notes = [f"{name}: {note}" for name, log in read.items() for note in log.notes]
    notes += _unplaced(counts, subnets, known_subnets, places)
    numbering = subnets.select("name", "subnet")
    if known_subnets <= _BROADCAST_ROWS:
        numbering = F.broadcast(numbering)
    return PushTrace(
        source=", ".join(map(str, logs.values())),
        servers=sites,
        subnets=subnets,
        pages=_together([_pages(numbers[name], log) for name, log in read.items()]),
        requests=requests.join(numbering, "name").select("time", "server", "subnet", "page", ROW),
        notes=tuple(notes),
        meanings={"urls": _together([_urls(numbers[name], log) for name, log in read.items()])},
    )


def _read_sites(spark: SparkSession, path: Path) -> DataFrame:
    """Return the servers, numbered in the order of their table."""
    table = read_table_at(spark, path, SITES)
    try:
        check_table(table, SITES, place_rules())
    except BadTrace as error:
        raise BadTrace(f"{path}: {error}") from error
    place = (F.row_number().over(Window.orderBy(ROW)) - 1).cast("int")
    node = F.lit(None).cast("int").alias("node")
    return table.select(place.alias("server"), *SITES.columns, node, ROW).localCheckpoint()


def _page(server: int) -> Column:
    """Return the number of a page: two servers may have equal targets."""
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
    """Assign numbers to all subnets in one task: there are far fewer of them than requests."""
    place = (F.row_number().over(Window.orderBy("name")) - 1).cast("int")
    columns = F.col("requests").cast("double").alias("weight"), F.lit(None).cast("int").alias("node")
    row = row_in("", place.cast("long")).alias(ROW)
    return subnets.select(place.alias("subnet"), "name", "latitude", "longitude", *columns, row).localCheckpoint()


def _unplaced(counts: DataFrame, subnets: DataFrame, known_subnets: int, places: Path) -> list[str]:
    total = counts.agg(F.count(F.lit(1)).alias("subnets"), F.sum("requests").alias("requests")).first()
    lost = counts.join(subnets.select("name"), "name", "left_anti")
    missing = lost.agg(F.coalesce(F.sum("requests"), F.lit(0)).alias("requests")).first()
    assert total is not None
    assert missing is not None
    if not known_subnets:
        raise BadTrace(f"{places}: none of the {total['subnets']} subnets in the logs has a place there")
    if known_subnets == total["subnets"]:
        return []
    most = lost.orderBy(F.desc("requests"), "name").limit(_SHOWN_SUBNETS).collect()
    more = ", ..." if total["subnets"] - known_subnets > len(most) else ""
    shown = ", ".join(f"{row['name']} ({row['requests']})" for row in most)
    return [
        f"{total['subnets'] - known_subnets} of {total['subnets']} subnets, with {missing['requests']} of "
        f"{total['requests']} requests, have no place in {places}: {shown}{more}"
    ]
