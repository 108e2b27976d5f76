"""Access logs in the Common and Combined Log Format (Apache HTTP Server, mod_log_config), plain or gzipped.

A page is a request target, numbered by its 64-bit hash: among n targets two share a number with a chance of
about n²/2⁶⁵, 3·10⁻⁸ for a million and 3·10⁻⁴ for a hundred million. Such a pair would count as one page.
A proxy is the network of a client, numbered from 0 in the order of the networks' texts.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from newsstand.errors import BadTrace
from newsstand.workload.networks import network
from newsstand.workload.requests_only import no_subscriptions, publication_columns
from newsstand.workload.trace import ROW, Trace, data_files

LINE = (
    r"^(\S+) \S+ \S+ "
    r"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "
    r'"([^"\\]*+(?:\\.[^"\\]*+)*+)" '  # possessive: Java's matcher would recurse once per character otherwise
    r"(\d{3}) (\d+|-)(?:\s|$)"
)
"""A line: host, time, request, status, bytes; what follows the bytes is not looked at."""

_TIME = "dd/MMM/yyyy:HH:mm:ss Z"
_SEPARATOR = "\x01"  # servers write control characters escaped
_SHOWN_LINES = 3
_SHOWN_CHARACTERS = 80
_BROADCAST_ROWS = 1_000_000

_PAGE, _OTHER, _MALFORMED = "page", "other", "malformed"


def read_access_log(
    spark: SparkSession,
    path: str | Path,
    *,
    strict: bool = False,
    prefix_v4: int = 24,
    prefix_v6: int = 48,
) -> Trace:
    """The log as a trace: a GET answered with 2xx or 304 asks for a page, as large as its largest answer.

    Its meanings are `urls(page, url)` and `networks(proxy, network)`.
    """
    # Never null, as Spark cannot see by itself: it would compute it twice to make sure, before the join.
    client = F.coalesce(network(F.col("host"), prefix_v4, prefix_v6), F.lit("-"))
    lines = _parsed(_lines(spark, Path(path))).withColumn("network", client)
    pages = _pages(lines, path)
    counts = _counts(pages)
    notes = _notes(lines, counts, path, strict)

    sized = pages.where((F.col("kind") == _PAGE) & F.col("largest").isNotNull())
    asked = lines.where(F.col("kind") == _PAGE)
    if counts["unsized"]:
        unsized = pages.where((F.col("kind") == _PAGE) & F.col("largest").isNull()).select("page")
        asked = asked.join(_hinted(unsized, counts["unsized"]), "page", "left_anti")
    networks = _numbered(asked.select("network").distinct())
    requests = asked.join(_hinted(networks, networks.count()), "network").select("time", "proxy", "page", ROW)
    urls = asked.select("page", F.col("target").alias("url")).distinct()
    return Trace(
        source=str(path),
        publications=sized.select(*publication_columns(str(path))),
        requests=requests,
        subscriptions=no_subscriptions(spark),
        notes=notes,
        meanings={"urls": urls, "networks": networks},
    )


def _lines(spark: SparkSession, path: Path) -> DataFrame:
    if not path.exists():
        raise BadTrace(f"{path}: no such file or folder")
    text = spark.read.text([str(file.absolute()) for file in data_files(path)])
    return text.where(F.trim("value") != "").select(
        "value",
        F.struct(
            F.col("_metadata.file_path").alias("file"),
            F.col("_metadata.file_block_start").alias("block"),
            # Within a block of a file this id grows with the lines.
            F.monotonically_increasing_id().alias("place"),
        ).alias(ROW),
    )


def _parsed(lines: DataFrame) -> DataFrame:
    """One match per line: five separate extractions took twice as long, reading included."""
    fields = F.regexp_replace("value", f"(?s){LINE}.*", _SEPARATOR.join(["", "$1", "$2", "$3", "$4", "$5"]))
    split = lines.select("value", ROW, F.split(fields, _SEPARATOR).alias("fields"))
    field = [F.get("fields", F.lit(place)) for place in range(6)]
    time = F.try_to_timestamp(field[2], F.lit(_TIME)).cast("double")
    told = split.select(
        "value",
        ROW,
        field[1].alias("host"),
        F.when(F.size("fields") == 6, time).alias("time"),
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
        F.when(answered, F.col("bytes")).alias("bytes"),
    )
    # Spark would push a filter on the kind below the match, and so match each line again for every field in
    # it; it pushes nothing through an explode.
    return told.select("value", ROW, F.explode(F.array(line)).alias("line")).select("value", ROW, "line.*")


def _pages(lines: DataFrame, path: str | Path) -> DataFrame:
    """(kind, page, first, largest, lines), kept so that the log is not read again for it."""
    pages = lines.groupBy("kind", "page").agg(
        F.min("time").alias("first"), F.max("bytes").alias("largest"), F.count(F.lit(1)).alias("lines")
    )
    try:
        # Unlike cache(), a checkpoint goes with the table, and never serves a log that has grown since.
        return pages.localCheckpoint()
    except Exception as error:
        raise BadTrace(f"{_file_of(error) or path}: not readable as text ({_cause(error)})") from error


def _counts(pages: DataFrame) -> Row:
    def lines(condition: Column) -> Column:
        return F.coalesce(F.sum(F.when(condition, F.col("lines"))), F.lit(0))

    is_page = F.col("kind") == _PAGE
    unsized = is_page & F.col("largest").isNull()
    counts = pages.agg(
        lines(F.lit(True)).alias("all"),
        lines(F.col("kind") == _MALFORMED).alias("malformed"),
        lines(F.col("kind") == _OTHER).alias("other"),
        F.count_if(is_page & ~unsized).alias("sized"),
        F.count_if(unsized).alias("unsized"),
        lines(unsized).alias("unsized_lines"),
    ).first()
    assert counts is not None
    return counts


def _notes(lines: DataFrame, counts: Row, path: str | Path, strict: bool) -> tuple[str, ...]:
    notes = []
    if counts["malformed"]:
        malformed = lines.where(F.col("kind") == _MALFORMED).select(ROW, "value")
        shown = [_shown(line) for line in malformed.orderBy(ROW).limit(_SHOWN_LINES).collect()]
        if strict:
            raise BadTrace(f"{shown[0]}: not a line of the Common or Combined Log Format")
        more = ", ..." if counts["malformed"] > len(shown) else ""
        notes.append(f"{counts['malformed']} lines cannot be parsed: {', '.join(shown)}{more}")
    if counts["other"]:
        notes.append(f"{counts['other']} lines are not page requests (a GET answered with 2xx or 304)")
    if counts["unsized"]:
        notes.append(
            f"{counts['unsized']} pages are dropped, with {counts['unsized_lines']} requests: "
            "no answer tells their size"
        )
    if not counts["all"]:
        raise BadTrace(f"{path}: the log is empty")
    if not counts["sized"]:
        raise BadTrace(f"{path}: no line of the log can be used: {'; '.join(notes)}")
    return tuple(notes)


def _shown(line: Row) -> str:
    """The file and the start of a line; its number is not known, since a file is read in blocks."""
    text = line["value"]
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    return f"{unquote(urlparse(line[ROW]['file']).path)}: {cut!r}"


def _numbered(networks: DataFrame) -> DataFrame:
    """One task sorts and numbers all networks: there are far fewer of them than requests."""
    place = F.row_number().over(Window.orderBy("network"))
    return networks.select((place - 1).cast("int").alias("proxy"), "network").localCheckpoint()


def _hinted(table: DataFrame, rows: int) -> DataFrame:
    return F.broadcast(table) if rows <= _BROADCAST_ROWS else table


def _file_of(error: Exception) -> str | None:
    found = re.search(r"reading file (\S+?)\.?\s", str(error))
    return unquote(urlparse(found[1]).path) if found else None


def _cause(error: Exception) -> str:
    text = str(error).strip()
    causes = re.findall(r"^Caused by: (.*)$", text, re.MULTILINE)
    return (causes or text.splitlines())[-1].strip()
