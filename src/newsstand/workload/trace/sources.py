"""The reader of traces in any supported format."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from newsstand.errors import BadOption, BadTrace
from newsstand.workload.log_line import LINE
from newsstand.workload.trace.files import TABLES, data_files, holds_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from newsstand.workload.trace.columns import TraceColumns
    from newsstand.workload.trace.folder import Trace

# A process that reads a trace without Spark does not load it, nor the readers of other formats.


def _trace(spark: SparkSession, path: Path, strict: bool) -> Trace:
    from newsstand.workload.trace.folder import read_trace

    return read_trace(spark, path)


def _access_log(spark: SparkSession, path: Path, strict: bool) -> Trace:
    from newsstand.workload.access_log import read_access_log

    return read_access_log(spark, path, strict=strict)


def _oracle_general(spark: SparkSession, path: Path, strict: bool) -> Trace:
    from newsstand.workload.oracle_general import read_oracle_general

    return read_oracle_general(spark, path, strict=strict)


def _trace_columns(path: Path, strict: bool) -> TraceColumns:
    from newsstand.workload.trace.folder_columns import read_folder_columns

    return read_folder_columns(path)


def _log_columns(path: Path, strict: bool) -> TraceColumns:
    from newsstand.workload.log_columns import read_log_columns

    return read_log_columns(path, strict=strict)


def _oracle_columns(path: Path, strict: bool) -> TraceColumns:
    from newsstand.workload.oracle_columns import read_oracle_columns

    return read_oracle_columns(path, strict=strict)


FORMATS: dict[str, Callable[[SparkSession, Path, bool], Trace]] = {
    "trace": _trace,
    "access-log": _access_log,
    "oracle-general": _oracle_general,
}
"""The reader of each format on Spark, by name."""

COLUMN_READERS: dict[str, Callable[[Path, bool], TraceColumns]] = {
    "trace": _trace_columns,
    "access-log": _log_columns,
    "oracle-general": _oracle_columns,
}
"""The reader of each format into memory, by name."""

_BINARY = re.compile(r"\.(oracleGeneral|bin)(\.zst)?$")
_SNIFFED_BYTES = 2**16
SMALL_BYTES = 64 * 2**20
_SNIFFED_LINES = 20


def read_source(spark: SparkSession, path: str | Path, format: str = "auto", strict: bool = False) -> Trace:
    """Read a trace in a format of `FORMATS`, by default that of its name and its first lines."""
    return FORMATS[format_of(path, format)](spark, Path(path), strict)


def read_columns(path: str | Path, format: str = "auto", *, strict: bool = False) -> TraceColumns:
    """Read a trace into memory, without Spark."""
    return COLUMN_READERS[format_of(path, format)](Path(path), strict)


def format_of(path: str | Path, format: str = "auto") -> str:
    """Return the format of a source; reject an unreadable one before Spark starts."""
    if format != "auto" and format not in FORMATS:
        raise BadOption(f"must be one of auto, {', '.join(FORMATS)}", format=format)
    if not Path(path).exists():
        raise BadTrace(f"{path}: no such file or folder")
    return recognize(Path(path)) if format == "auto" else format


def is_small(path: Path) -> bool:
    """Return whether a source is read in about a minute; a path that does not exist is small."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) < SMALL_BYTES


def recognize(path: Path) -> str:
    """Return the name in `FORMATS` of the format of a file or folder."""
    if path.is_dir() and any(holds_table(path, name) for name in TABLES):
        return "trace"
    if path.is_file() and _BINARY.search(path.name):
        return "oracle-general"
    first = data_files(path)[0]
    start = _start(first)
    if not start:
        raise BadTrace(f"{first}: the file is empty")
    lines = start.decode("utf-8", "replace").splitlines()[:_SNIFFED_LINES]
    if any(re.match(LINE, line) for line in lines):
        return "access-log"
    raise BadTrace(
        f"{path}: format not recognized; expected a folder with the tables {', '.join(TABLES)} (trace), an "
        "access log in the Common or Combined Log Format (access-log), or a libCacheSim trace named "
        "*.oracleGeneral or *.bin, also with .zst (oracle-general)"
    )


def _start(file: Path) -> bytes:
    try:
        if file.suffix == ".gz":
            with gzip.open(file) as unpacked:
                return unpacked.read(_SNIFFED_BYTES)
        with file.open("rb") as plain:
            return plain.read(_SNIFFED_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise BadTrace(f"{file}: not readable ({error})") from error
