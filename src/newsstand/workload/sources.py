"""What people have, read as a trace whatever its format."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from newsstand.errors import BadOption, BadTrace
from newsstand.workload.access_log import LINE, read_access_log
from newsstand.workload.oracle_general import read_oracle_general
from newsstand.workload.trace import COLUMNS, Trace, data_files, read_trace

Reader = Callable[[SparkSession, Path, bool], Trace]

FORMATS: dict[str, Reader] = {
    "trace": lambda spark, path, strict: read_trace(spark, path),
    "access-log": lambda spark, path, strict: read_access_log(spark, path, strict=strict),
    "oracle-general": lambda spark, path, strict: read_oracle_general(spark, path, strict=strict),
}
"""The reader of each format, by name."""

_EXPLAINED = (
    f"a folder with the tables {', '.join(COLUMNS)} (trace), an access log in the Common or Combined Log "
    "Format (access-log), or a libCacheSim trace named *.oracleGeneral or *.bin, also with .zst "
    "(oracle-general)"
)
_BINARY = re.compile(r"\.(oracleGeneral|bin)(\.zst)?$")
_SNIFFED_BYTES = 2**16
SMALL_BYTES = 64 * 2**20
_SNIFFED_LINES = 20


def read_source(spark: SparkSession, path: str | Path, format: str = "auto", strict: bool = False) -> Trace:
    """Read a trace in a format of `FORMATS`, or in the one that its name and its first lines tell."""
    return FORMATS[format_of(path, format)](spark, Path(path), strict)


def format_of(path: str | Path, format: str = "auto") -> str:
    """The format that a source will be read in; what cannot be read at all is refused before Spark starts."""
    if format != "auto" and format not in FORMATS:
        raise BadOption(f"format: '{format}' is none of auto, {', '.join(FORMATS)}")
    if not Path(path).exists():
        raise BadTrace(f"{path}: no such file or folder")
    return recognize(Path(path)) if format == "auto" else format


def is_small(path: Path) -> bool:
    """Whether a source is read in a minute or so; a path that does not exist is small, too."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) < SMALL_BYTES


def recognize(path: Path) -> str:
    """The format's name in `FORMATS`."""
    if path.is_dir() and any(_is_table(path, name) for name in COLUMNS):
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
    raise BadTrace(f"{path}: format not recognized; expected {_EXPLAINED}")


def _is_table(folder: Path, name: str) -> bool:
    return any((folder / (name + ending)).exists() for ending in (".parquet", ".csv", ""))


def _start(file: Path) -> bytes:
    try:
        if file.suffix == ".gz":
            with gzip.open(file) as unpacked:
                return unpacked.read(_SNIFFED_BYTES)
        with file.open("rb") as plain:
            return plain.read(_SNIFFED_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise BadTrace(f"{file}: not readable ({error})") from error
