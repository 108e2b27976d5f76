"""Places of subnets, looked up in a table of prefixes and domains: the longest that fits counts.

A row of the table is a prefix of IPv4 or IPv6 addresses (`192.0.2.0/24`, `2001:db8::/32`) or a domain with all in
it (`example.org`, `edu`). Both are looked up by a key: an address by its bits, a domain by its labels. A prefix
longer than a subnet stands for the whole of it, unless a row for the subnet itself is there.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from newsstand.errors import BadTrace
from newsstand.workload.networks import network
from newsstand.workload.push1995_tables import TableKind, check_table, read_table_at
from newsstand.workload.push1995_trace import place_rules
from newsstand.workload.trace import ROW

PLACES = TableKind("places", {"subnet": T.StringType(), "latitude": T.DoubleType(), "longitude": T.DoubleType()})
PREFIX_V4, PREFIX_V6 = 24, 48
"""The bits of an address that make its subnet."""
_V4, _V6, _DOMAIN = "4:", "6:", "d:"


def read_places(spark: SparkSession, path: Path) -> DataFrame:
    """A table of places (subnet, latitude, longitude) with what its subnets are looked up by: (key, finer)."""
    table = read_table_at(spark, path, PLACES)
    table = table.select("*", key_of(F.col("subnet")).alias("key"))
    rules = {"subnet is neither a prefix of addresses nor a domain": F.col("key").isNull(), **place_rules()}
    try:
        check_table(table, PLACES, rules, ("subnet",))
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
    """The names that have a place: (name, latitude, longitude)."""
    keyed = names.select("name", key_of(F.col("name")).alias("key"))
    prefixes = keyed.select("name", F.explode(_prefixes(F.col("key"))).alias("prefix"))
    fitting = prefixes.select("name", F.col("prefix.key").alias("key"), "prefix.length").join(places, "key")
    best = fitting.groupBy("name").agg(F.max_by(F.struct("latitude", "longitude"), "length").alias("place"))
    return best.select("name", "place.latitude", "place.longitude")


def key_of(text: Column) -> Column:
    """What a prefix or a domain is looked up by; null if it is neither."""
    trimmed = F.lower(F.trim(text))
    address = F.substring_index(trimmed, "/", 1)
    told = F.when(trimmed.contains("/"), F.substring_index(trimmed, "/", -1).try_cast("int"))
    full = network(address, 32, 128)
    parts = F.substring_index(full, "/", 1)
    bits_v4 = _bits(F.split(parts, r"\."), 10, 8)
    bits_v6 = _bits(F.split(parts, ":"), 16, 16)
    domain = F.regexp_replace(trimmed, r"^(\*?\.)|\.$", "")
    return (
        F.when(full.rlike(r"^[\d.]+/32$"), _cut(_V4, bits_v4, trimmed, told, 32))
        .when(full.rlike(r"^[0-9a-f:]+/128$"), _cut(_V6, bits_v6, trimmed, told, 128))
        .when(domain.rlike(r"^[^\s/:]+$"), F.concat(F.lit(_DOMAIN), domain))
    )


def _bits(numbers: Column, base: int, width: int) -> Column:
    return F.array_join(F.transform(numbers, lambda one: F.lpad(F.conv(one, base, 2), width, "0")), "")


def _cut(family: str, bits: Column, text: Column, told: Column, longest: int) -> Column:
    """The first bits, as many as are told, all if none are; null if they cannot be so many."""
    length = F.when(~text.contains("/"), F.lit(longest)).when(told.between(0, longest), told)
    return F.concat(F.lit(family), F.substring(bits, F.lit(1), length))


def _prefixes(key: Column) -> Column:
    """All keys that stand for this one, too, with how much each tells."""
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
