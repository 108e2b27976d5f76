"""The traces that the benchmarks replay, as libCacheSim's uncompressed oracleGeneral files in `build/traces`.

`synthetic` is drawn here. `twitter` is the first 10 million requests of Twitter's cluster 52 (Yang, Yue &
Rashmi 2020; CC BY 4.0), which the source distribution of libcachesim carries; it is fetched once by pip, and
needs that package's build tools for its metadata. Both have one size for an object, that of its first request
and at least 1, because a cache may do as it likes about an object that changes its size.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from newsstand.workload.oracle_general import RECORD, write_oracle_general

FOLDER = Path(__file__).parent.parent / "build" / "traces"
PEER = "libcachesim==0.3.5"
MEMBER = "src/libCacheSim/data/twitter_cluster52_10m.csv.zst"

Ints = npt.NDArray[np.int64]


def synthetic(requests: int = 10_000_000, objects: int = 1_000_000, seed: int = 1) -> Path:
    """Zipf 1.0 over the objects, log-normal sizes (mu 9.357, sigma 1.318: the pages of chen2003)."""
    file = FOLDER / f"zipf-{requests}-{objects}-{seed}.oracleGeneral"
    if not file.exists():
        random = np.random.default_rng(seed)
        popularity = np.cumsum(1 / np.arange(1, objects + 1))
        ranks = np.searchsorted(popularity, random.random(requests) * popularity[-1])
        pages = random.permutation(objects)[np.minimum(ranks, objects - 1)]
        sizes = np.maximum(1, random.lognormal(9.357, 1.318, objects)).astype(np.int64)
        _write(file, np.arange(requests) // 1000, pages, sizes[pages])
    return file


def twitter() -> Path:
    """Cluster 52 of Twitter, 10 million requests."""
    file = FOLDER / "twitter_cluster52_10m.oracleGeneral"
    if not file.exists():
        with tarfile.open(_source_distribution()) as archive:
            (name,) = (one for one in archive.getnames() if one.endswith(MEMBER))
            packed = archive.extractfile(name)
            assert packed is not None
            times, pages, sizes = _read_csv(packed.read())
        _, first, number = np.unique(pages, return_index=True, return_inverse=True)
        _write(file, times, pages, np.maximum(1, sizes[first][number]))
    return file


def read(file: Path) -> tuple[Ints, Ints]:
    """The object and the size of each request."""
    records = np.fromfile(file, RECORD)
    return records["object"].astype(np.uint64).view(np.int64), records["size"].astype(np.int64)


def _write(file: Path, times: Ints, pages: Ints, sizes: Ints) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    write_oracle_general(unfinished, times, pages, sizes)
    unfinished.rename(file)


def _source_distribution() -> Path:
    if not (found := list(FOLDER.glob("libcachesim-*.tar.gz"))):
        print(f"fetching the source distribution of {PEER} for its Twitter trace ...", file=sys.stderr)
        options = ["--quiet", "--no-deps", "--no-binary", "libcachesim", "--dest", str(FOLDER)]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, PEER], check=True)
        found = list(FOLDER.glob("libcachesim-*.tar.gz"))
    return found[0]


def _read_csv(packed: bytes) -> tuple[Ints, Ints, Ints]:
    table = pyarrow.csv.read_csv(
        pa.CompressedInputStream(pa.BufferReader(packed), "zstd"),
        read_options=pyarrow.csv.ReadOptions(column_names=["time", "object", "size", "next"], skip_rows=1),
        convert_options=pyarrow.csv.ConvertOptions(column_types={"object": pa.uint64()}),
    )
    return (
        table.column("time").to_numpy(),
        table.column("object").to_numpy().view(np.int64),
        table.column("size").to_numpy(),
    )
