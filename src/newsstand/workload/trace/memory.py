"""Whether a trace fits into the memory of this machine."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

SHARE = 0.7
"""The share of the available memory that a replay may take."""

_NEEDED = {"trace": 8.0, "push-trace": 8.0, "access-log": 8.0, "oracle-general": 20.0}
"""Bytes of memory for each byte of a file, at most: columns, copies in the order of events, and the caches.

A record of oracleGeneral is one request, and one policy takes up to 60 bytes for each; two cores replay two.
"""
_COMPRESSED = {".parquet": 10.0, ".gz": 20.0, ".zst": 10.0, ".bz2": 30.0}
"""Bytes of a compressed file for each that it has, at most."""

HADOOP_CODECS = (".deflate", ".lz4", ".snappy", ".zst")
"""The endings of logs that only Spark unpacks."""


def fits_in_memory(path: Path, format: str) -> bool:
    """Return whether a source can be read without Spark and replayed in the memory that is available now."""
    if format == "access-log" and any(file.suffix in HADOOP_CODECS for file in _files(path)):
        return False
    return needed_bytes(path, format) <= SHARE * available_bytes()


def needed_bytes(path: Path, format: str) -> int:
    """Estimate from the sizes of its files how many bytes of memory the replay of a source takes at most."""
    sizes = (file.stat().st_size * _COMPRESSED.get(file.suffix, 1.0) for file in _files(path))
    return round(sum(sizes) * _NEEDED[format])


def _files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]


def available_bytes() -> int:
    """Return the memory that a new process can use: that of the machine, or of its container if that is less."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    with suppress(OSError):
        if found := re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.M):
            available = int(found[1]) * 1024
    with suppress(OSError, ValueError):  # no limit is the word `max`
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        available = min(available, limit - int((group / "memory.current").read_text()))
    return available
