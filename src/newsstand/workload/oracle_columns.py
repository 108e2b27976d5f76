"""The binary traces of libCacheSim, read into memory."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from newsstand.errors import BadTrace
from newsstand.workload.oracle_file import RECORD, chunks, count_records, is_compressed
from newsstand.workload.trace.columns import PublicationColumns, RequestColumns, SubscriptionColumns, TraceColumns
from newsstand.workload.trace.numbering import number_pages


def read_oracle_columns(path: Path, *, strict: bool = False) -> TraceColumns:
    """Return all requests at proxy 0, with pages numbered by first appearance; a page's size is its largest.

    The times are those of the file, which stays mapped into memory.
    """
    file = path.absolute()
    if not file.is_file():
        raise BadTrace(f"{path}: no such file")
    content = _content(file)
    count, notes = count_records(path, len(content), strict=strict)
    records = np.frombuffer(content, RECORD, count)
    found = number_pages(records["object"], records["size"], records["time"])
    published = records["time"][found.first].astype(np.float64)
    if not found.in_order:
        np.minimum.at(published, found.numbers, records["time"].astype(np.float64))
    return TraceColumns(
        str(path),
        RequestColumns(records["time"], np.broadcast_to(np.int32(0), count), found.numbers),
        PublicationColumns(np.arange(len(published)), published, np.maximum(found.largest, 1)),
        SubscriptionColumns.none(),
        notes,
        is_in_order=found.in_order,
    )


def _content(file: Path) -> bytes | bytearray | mmap.mmap:
    if is_compressed(file):
        return bytearray().join(chunks(file))
    with file.open("rb") as stream:
        if not file.stat().st_size:
            return b""
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
