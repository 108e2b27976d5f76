"""Access logs in the Common and Combined Log Format (Apache HTTP Server, mod_log_config), plain or gzipped.

A page is a request target, numbered by its 64-bit hash: among n targets two share a number with a chance of
about n²/2⁶⁵, 3·10⁻⁸ for a million and 3·10⁻⁴ for a hundred million. Such a pair would count as one page.
A proxy is the network of a client, numbered from 0 in the order of the networks' texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from newsstand.errors import BadTrace
from newsstand.workload.client_network import GROUP, GROUPS, QUAD, mask, require_prefixes
from newsstand.workload.log_line import LARGEST_ANSWER, LINE, SEPARATOR, SHOWN_LINES, LogCounts
from newsstand.workload.trace.files import data_files
from newsstand.workload.trace.folder import Trace, no_subscriptions, publication_columns
from newsstand.workload.trace.tables import ROW, file_path, row_at


def network(host: Column, prefix_v4: int = 24, prefix_v6: int = 48) -> Column:
    """Return the networks of hosts, such as `192.0.2.0/24`, `2001:db8:1::/48` or `example.org`."""
    require_prefixes(prefix_v4, prefix_v6)

    def of_plain(name: Column) -> Column:
        return (
            F.when(_is_v4(name), _network_v4(name, prefix_v4))
            .when(name.contains(":"), _let(_in_hexadecimal(name), of_address))
            .otherwise(_domain(name))
        )

    def of_address(address: Column) -> Column:
        return _let(
            _groups(address),
            lambda groups: F.when(_is_v6(address, groups), _network_v6(groups, prefix_v6)).otherwise(address),
        )

    plain = F.regexp_replace(F.lower(host), rf"^::ffff:(?={QUAD}$)|%.*$|\.$", "")
    return F.when(_is_v4(host), _network_v4(host, prefix_v4)).otherwise(_let(plain, of_plain))


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Apply a function to a value that is computed once, however often it is used: Spark would repeat its code."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def _is_v4(host: Column) -> Column:
    return host.rlike(f"^{QUAD}$")


def _network_v4(quad: Column, prefix: int) -> Column:
    full, bits = divmod(prefix, 8)
    octets = [F.substring_index(quad, ".", full)] if full else []
    if bits:
        octet = F.get(F.split(quad, r"\."), F.lit(full)).try_cast("int")
        octets.append(octet.bitwiseAND(mask(bits, 8)).cast("string"))
    octets += [F.lit("0")] * (4 - full - bool(bits))
    return F.concat(F.concat_ws(".", *octets), F.lit(f"/{prefix}"))


def _in_hexadecimal(address: Column) -> Column:
    """Return the same IPv6 address, without a dotted end."""
    octets = [F.get(F.split(F.regexp_extract(address, "[^:]*$", 0), r"\."), F.lit(n)) for n in range(4)]
    end = F.format_string("%02x%02x:%02x%02x", *(octet.try_cast("int") for octet in octets))
    start = F.regexp_extract(address, "^.*:", 0)
    return F.when(address.rlike(f":{QUAD}$"), F.concat(start, end)).otherwise(address)


def _groups(address: Column) -> Column:
    """Return the groups of an IPv6 address in full; more than eight if it has a `::` that stands for none."""
    halves = F.split(address, "::", 2)
    left, right = (
        F.filter(F.split(F.coalesce(F.get(halves, F.lit(half)), F.lit("")), ":"), lambda group: group != "")
        for half in (0, 1)
    )
    zeros = F.greatest(F.lit(8) - F.size(left) - F.size(right), F.lit(1))
    return F.concat(left, F.array_repeat(F.lit("0"), zeros), right)


def _is_v6(address: Column, groups: Column) -> Column:
    in_full = address.rlike(f"^(?:{GROUP}:){{7}}{GROUP}$")
    return in_full | (address.rlike(f"^{GROUPS}::{GROUPS}$") & (F.size(groups) == 8))


def _network_v6(groups: Column, prefix: int) -> Column:
    texts = []
    for place in range(-(-prefix // 16)):
        value = F.conv(F.get(groups, F.lit(place)), 16, 10).try_cast("int")
        texts.append(F.lower(F.hex(value.bitwiseAND(mask(min(16, prefix - 16 * place), 16)))))
    ending = f"/{prefix}" if len(texts) == 8 else f"::/{prefix}"
    return F.concat(F.concat_ws(":", *texts), F.lit(ending))


def _domain(name: Column) -> Column:
    return F.when(name.rlike(r"\..*\."), F.regexp_replace(name, r"^[^.]*\.", "")).otherwise(name)


_TIME = "dd/MMM/yyyy:HH:mm:ss Z"
_BROADCAST_ROWS = 1_000_000

_PAGE, _OTHER, _MALFORMED = "page", "other", "malformed"


def read_access_log(
    spark: SparkSession, path: str | Path, *, strict: bool = False, prefix_v4: int = 24, prefix_v6: int = 48
) -> Trace:
    """Return the log as a trace: a GET answered with 2xx or 304 is a request, the largest answer the size.

    Its meanings are `urls(page, url)` and `networks(proxy, network)`.
    """
    # It is never null, but Spark does not know: without this it would compute the network twice for the join.
    client = F.coalesce(network(F.col("host"), prefix_v4, prefix_v6), F.lit("-"))
    lines = _parsed(_lines(spark, Path(path))).withColumn("network", client)
    pages = _pages(lines, path)
    counts = _counts(pages)
    malformed = _first_malformed(lines) if counts.malformed else []
    notes = counts.notes(path, malformed, strict=strict)

    sized = pages.where((F.col("kind") == _PAGE) & F.col("largest").isNotNull())
    page_lines = lines.where(F.col("kind") == _PAGE)
    if counts.unsized:
        unsized = pages.where((F.col("kind") == _PAGE) & F.col("largest").isNull()).select("page")
        page_lines = page_lines.join(_hinted(unsized, counts.unsized), "page", "left_anti")
    networks = _numbered(page_lines.select("network").distinct())
    requests = page_lines.join(_hinted(networks, networks.count()), "network").select("time", "proxy", "page", ROW)
    urls = page_lines.select("page", F.col("target").alias("url")).distinct()
    return Trace(
        source=str(path),
        publications=sized.select(*publication_columns(str(path))),
        requests=requests,
        subscriptions=no_subscriptions(spark),
        notes=notes,
        meanings={"urls": urls, "networks": networks},
    )


def _lines(spark: SparkSession, path: Path) -> DataFrame:
    text = spark.read.text([str(file.absolute()) for file in data_files(path)])
    # Within a block of a file this id grows with the lines.
    return text.where(F.trim("value") != "").select("value", row_at(F.monotonically_increasing_id()))


def _parsed(lines: DataFrame) -> DataFrame:
    """Parse each line by one match: five separate extractions took twice as long, reading included."""
    fields = F.regexp_replace("value", f"(?s){LINE}.*", SEPARATOR.join(["", "$1", "$2", "$3", "$4", "$5"]))
    split = lines.select("value", ROW, F.split(fields, SEPARATOR).alias("fields"))
    field = [F.get("fields", F.lit(place)) for place in range(6)]
    time = F.try_to_timestamp(field[2], F.lit(_TIME)).cast("double")
    # A line that does not match stays as it is: it may start with a separator, but no match does.
    is_match = (F.size("fields") == 6) & (field[0] == "") & ~F.col("value").startswith(SEPARATOR)
    matched = split.select(
        "value",
        ROW,
        field[1].alias("host"),
        F.when(is_match, time).alias("time"),
        F.regexp_extract(field[3], r"(?s)^GET +(\S.*?)(?: +HTTP/\S+)?\s*$", 1).alias("target"),
        field[4].try_cast("int").alias("status"),
        field[5].try_cast("long").alias("bytes"),
    )
    answered = F.col("status").between(200, 299)
    is_page = (F.col("target") != "") & (answered | (F.col("status") == 304))
    kind = F.when(F.col("time").isNull(), _MALFORMED).when(is_page, _PAGE).otherwise(_OTHER)
    line = F.struct(
        "host",
        "time",
        "target",
        kind.alias("kind"),
        F.when(kind == _PAGE, F.xxhash64("target")).alias("page"),
        F.when(answered & (F.col("bytes") <= LARGEST_ANSWER), F.col("bytes")).alias("bytes"),
    )
    # Spark would push a filter on the kind below the match and match each line again for every field in it. It
    # pushes nothing through an explode.
    return matched.select("value", ROW, F.explode(F.array(line)).alias("line")).select("value", ROW, "line.*")


def _pages(lines: DataFrame, path: str | Path) -> DataFrame:
    """Return (kind, page, first, largest, lines), checkpointed so that the log is not read again."""
    pages = lines.groupBy("kind", "page").agg(
        F.min("time").alias("first"), F.max("bytes").alias("largest"), F.count(F.lit(1)).alias("lines")
    )
    try:
        # Unlike cache(), a checkpoint belongs to the table: it is never used for a log that has grown since.
        return pages.localCheckpoint()
    except Exception as error:
        raise _unreadable(path, error) from error


def _counts(pages: DataFrame) -> LogCounts:
    def lines(condition: Column) -> Column:
        return F.coalesce(F.sum(F.when(condition, F.col("lines"))), F.lit(0))

    is_page = F.col("kind") == _PAGE
    unsized = is_page & F.col("largest").isNull()
    counts = pages.agg(
        lines(F.lit(True)).alias("lines"),
        lines(F.col("kind") == _MALFORMED).alias("malformed"),
        lines(F.col("kind") == _OTHER).alias("other"),
        F.count_if(is_page & ~unsized).alias("sized"),
        F.count_if(unsized).alias("unsized"),
        lines(unsized).alias("unsized_lines"),
    ).first()
    assert counts is not None
    return LogCounts(**counts.asDict())


def _first_malformed(lines: DataFrame) -> list[tuple[Path, str]]:
    malformed = lines.where(F.col("kind") == _MALFORMED).select(ROW, "value").orderBy(ROW).limit(SHOWN_LINES)
    return [(file_path(line[ROW]["file"]), line["value"]) for line in malformed.collect()]


def _numbered(networks: DataFrame) -> DataFrame:
    """Assign numbers to all networks in one task: there are far fewer of them than requests."""
    place = F.row_number().over(Window.orderBy("network"))
    return networks.select((place - 1).cast("int").alias("proxy"), "network").localCheckpoint()


def _hinted(table: DataFrame, rows: int) -> DataFrame:
    return F.broadcast(table) if rows <= _BROADCAST_ROWS else table


def _unreadable(path: str | Path, error: Exception) -> BadTrace:
    text = str(error).strip()
    file = re.search(r"reading file (\S+?)\.?\s", text)
    causes = re.findall(r"^Caused by: (.*)$", text, re.MULTILINE) or text.splitlines()
    return BadTrace(f"{file_path(file[1]) if file else path}: not readable as text ({causes[-1].strip()})")
