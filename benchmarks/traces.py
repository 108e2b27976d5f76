"""The traces that the benchmarks replay, as libCacheSim's uncompressed oracleGeneral files in `build/traces`.

`synthetic` is drawn here. `twitter` is the first 10 million requests of Twitter's cluster 52 (Yang, Yue &
Rashmi 2020; CC BY 4.0), which the source distribution of libcachesim carries; it is fetched once by pip, and
needs that package's build tools for its metadata. The traces of `CAFFEINE` are in the simulator of Caffeine
(Apache License 2.0), which Maven fetches once. All have one size for an object, that of its first request and at
least 1, because a cache may do as it likes about an object that changes its size; those without sizes have 1.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from newsstand.workload.oracle_file import RECORD, write_oracle_general

FOLDER = Path(__file__).parent.parent / "build" / "traces"
PEER = "libcachesim==0.3.5"
MEMBER = "src/libCacheSim/data/twitter_cluster52_10m.csv.zst"

Ints = npt.NDArray[np.int64]

SIMULATOR = "com.github.ben-manes.caffeine:simulator:3.2.0"
SIMULATOR_SHA256 = "0536c9d8c3217c43dc1049eb1200e6f915f6efd0433328de871149263f5d4ff0"
PARSER = "com/github/benmanes/caffeine/cache/simulator/parser"

Columns = tuple[Ints, Ints]
"""The object and the size of each request."""
CAFFEINE: dict[str, tuple[str, Callable[[bytes], Columns]]] = {
    "adapt-size": ("adapt_size/request.trace.xz", lambda text: _rows(text, 1, 2)),
    "gradle": ("gradle/build-cache.xz", lambda text: _unsized(_folded(text))),
    "scarab": ("scarab/recs.trace.20160808T073231Z.xz", lambda raw: _unsized(np.frombuffer(raw, ">i8"))),
    "sprite": ("lirs/sprite.trace.gz", lambda text: _unsized(_numbers(text))),
    "web": ("cache2k/web12.trace.xz", lambda raw: _unsized(np.frombuffer(raw, "<i4"))),
    "w106": ("cloud_physics/w106.trace.xz", lambda raw: _unsized(np.frombuffer(raw, "<i4"))),
}
"""Real traces by name: requests for content, build results, recommendations, files, web pages and disk blocks."""


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


def caffeine(name: str) -> Path:
    """One of the real traces of Caffeine's simulator."""
    file = FOLDER / f"caffeine-{name}.oracleGeneral"
    if not file.exists():
        member, parse = CAFFEINE[name]
        with zipfile.ZipFile(_simulator()) as archive:
            packed = archive.read(f"{PARSER}/{member}")
        pages, sizes = parse((lzma if member.endswith(".xz") else gzip).decompress(packed))
        _, first, number = np.unique(pages, return_index=True, return_inverse=True)
        _write(file, np.arange(len(pages)) // 1000, pages, np.maximum(1, sizes[first][number]))
    return file


def access_log(lines: int = 200_000, seed: int = 1) -> Path:
    """A log in the Combined Log Format: Zipf 1.0 over 20,000 pages, 1,000 networks of clients, ten days."""
    file = FOLDER / f"access-{lines}-{seed}.log"
    if not file.exists():
        random = np.random.default_rng(seed)
        popularity = np.cumsum(1 / np.arange(1, 20_001))
        pages = np.searchsorted(popularity, random.random(lines) * popularity[-1])
        sizes = np.maximum(1, random.lognormal(9.357, 1.318, 20_001)).astype(np.int64)[pages]
        start = np.datetime64("2000-10-10T00:00:00")
        times = (start + np.sort(random.integers(0, 864_000, lines)).astype("m8[s]")).astype(object)
        hosts = zip(*random.integers(0, [[25], [40], [254]], (3, lines)).tolist(), strict=True)
        rows = zip(hosts, times, pages.tolist(), sizes.tolist(), strict=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w") as log:
            log.writelines(
                f"10.{a}.{b}.{c} - - [{at:%d/%b/%Y:%H:%M:%S} +0000] "
                f'"GET /news/{page}.html HTTP/1.1" 200 {size} "https://example.org/" "Mozilla/5.0 (X11; Linux)"\n'
                for (a, b, c), at, page, size in rows
            )
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


def _simulator() -> Path:
    jar = FOLDER / "{1}-{2}.jar".format(*SIMULATOR.split(":"))
    if not jar.exists():
        print(f"fetching {SIMULATOR} for its traces ...", file=sys.stderr)
        options = [f"-Dartifact={SIMULATOR}", f"-DoutputDirectory={FOLDER}", "-Dmdep.useBaseVersion=true"]
        subprocess.run(["mvn", "--quiet", "--batch-mode", "dependency:copy", *options], check=True)
    if hashlib.sha256(jar.read_bytes()).hexdigest() != SIMULATOR_SHA256:
        sys.exit(f"{jar}: its SHA-256 is not that of {SIMULATOR}; remove the file to fetch it again")
    return jar


def _unsized(pages: npt.NDArray[np.integer]) -> Columns:
    return pages.astype(np.int64), np.ones(len(pages), np.int64)


def _rows(text: bytes, page: int, size: int) -> Columns:
    rows = np.array([line.split(b" ") for line in text.splitlines()])
    return rows[:, page].astype(np.int64), rows[:, size].astype(np.int64)


def _numbers(text: bytes) -> Ints:
    return np.array([int(line) for line in text.splitlines() if line not in (b"", b"*")])


def _folded(text: bytes) -> Ints:
    """64 bits of each hexadecimal number of 128."""
    numbers = np.frombuffer(b"".join(map(bytes.fromhex, text.decode().split())), ">u8").reshape(-1, 2)
    return (numbers[:, 0] ^ numbers[:, 1]).astype(np.int64)


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
