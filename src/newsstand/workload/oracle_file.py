"""The binary traces of libCacheSim as files: oracleGeneral (`libCacheSim/bin/traceConv`), plain or in zstd.

Packed little-endian records; `next` is the number, from 1, of the next request for the same object, or -1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from newsstand.errors import BadTrace

RECORD = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
"""A request, 24 bytes."""


def count_records(path: str | Path, length: int, *, strict: bool) -> tuple[int, tuple[str, ...]]:
    """Return the complete records in a trace of some bytes, and notes about the rest."""
    records, trailing = divmod(length, RECORD.itemsize)
    if trailing and strict:
        raise BadTrace(f"{path}: {trailing} bytes follow record {records}, no complete record")
    if not records:
        raise BadTrace(f"{path}: the file holds no record of {RECORD.itemsize} bytes")
    return records, (f"the last {trailing} bytes are no complete record and were skipped",) if trailing else ()


def chunks(file: Path) -> Iterator[bytes]:
    """Yield the bytes of a compressed trace."""
    try:
        with opened(file) as stream:
            while chunk := stream.read(2**20):
                yield chunk
    except OSError as error:
        raise BadTrace(f"{file}: not readable as zstd ({error})") from error


def is_compressed(file: Path) -> bool:
    """Return whether a trace is compressed, by its name."""
    return file.suffix == ".zst"


def opened(file: Path) -> BinaryIO:
    """Return the uncompressed bytes of a trace as a stream."""
    if not is_compressed(file):
        return file.open("rb")
    import pyarrow as pa  # takes longer to load than most traces to read

    stream: BinaryIO = pa.CompressedInputStream(pa.OSFile(str(file)), "zstd")
    return stream


def write_oracle_general(
    path: str | Path, times: npt.NDArray[np.generic], pages: npt.NDArray[np.int64], sizes: npt.NDArray[np.generic]
) -> None:
    """Write requests in the given order, compressed if the name ends in .zst."""
    if not len(times) == len(pages) == len(sizes):
        raise BadTrace(f"{path}: {len(times)} times, {len(pages)} pages and {len(sizes)} sizes")
    for name, values in (("time", times), ("size", sizes)):
        if len(values) and not (values.min() >= 0 and values.max() < 2**32):
            raise BadTrace(f"{path}: a {name} does not fit in 32 bits")
    records = np.empty(len(pages), RECORD)
    records["time"], records["size"] = times, sizes
    records["object"] = pages.astype(np.int64).view(np.uint64)
    records["next"] = _next_requests(pages)
    import pyarrow as pa

    compression = "zstd" if is_compressed(Path(path)) else None
    with pa.output_stream(str(path), compression=compression) as out:
        out.write(records.tobytes())


def _next_requests(pages: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    order = np.argsort(pages, kind="stable")
    again = pages[order[1:]] == pages[order[:-1]]
    following = np.full(len(pages), -1, np.int64)
    following[order[:-1][again]] = order[1:][again] + 1
    return following
