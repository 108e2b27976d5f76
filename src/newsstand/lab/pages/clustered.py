"""Replay of a trace that lies clustered on disk: each task reads its proxies and shuffles nothing.

A trace is clustered if `requests` and `subscriptions` are Parquet and the files of `requests` hold disjoint
ranges of proxies, as the footers tell. Order within a file is checked, not trusted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from newsstand.errors import BadTrace, first_line_of
from newsstand.lab.pages.replay import ReplayJob, bad_rows, replay_timeline
from newsstand.lab.pages.results import RESULT_DDL, batches
from newsstand.lab.pages.timeline import PushEvents, RequestEvents, Timeline, interleaved
from newsstand.workload.trace.files import TABLES, data_files, table_path
from newsstand.workload.trace.folder import ROWS_A_SHARD
from newsstand.workload.trace.folder_columns import ARROW_TYPES

LARGEST_SHARD = 4 * ROWS_A_SHARD
"""Requests in one file that one task may take, unless they are of one proxy, which no shuffle could divide."""

LARGEST_CATALOGUE = 4_000_000
"""Publications that every worker may hold in memory; a trace with more is shuffled instead."""


@dataclass(frozen=True)
class Shard:
    """The files that hold the proxies from `low` up to but without `high`."""

    publications: str
    low: int
    high: int
    requests: tuple[str, ...]
    subscriptions: tuple[str, ...]


def shards(folder: Path) -> list[Shard] | None:
    """Return how to read a clustered trace in parallel, or None if it is not clustered."""
    paths = {name: table_path(folder, name) for name in TABLES}
    files = {name: data_files(path) for name, path in paths.items()}
    if any(file.suffix != ".parquet" for listed in files.values() for file in listed):
        return None
    catalogue = sum(pq.read_metadata(file).num_rows for file in files["publications"])
    if catalogue > LARGEST_CATALOGUE:
        return None
    requests = _ranges(files["requests"])
    subscriptions = _ranges(files["subscriptions"])
    if not requests or subscriptions is None:
        return None
    requests.sort()
    if any(low != high and pq.read_metadata(file).num_rows > LARGEST_SHARD for low, high, file in requests):
        return None
    if any(left[1] >= right[0] for left, right in itertools.pairwise(requests)):
        return None
    edges = [-(2**31), *(low for low, _, _ in requests[1:]), 2**31]
    return [
        Shard(
            str(paths["publications"].absolute()),
            low,
            high,
            tuple(str(file.absolute()) for _, _, file in requests[i : i + 1]),
            tuple(str(file.absolute()) for first, last, file in subscriptions if first < high and last >= low),
        )
        for i, (low, high) in enumerate(itertools.pairwise(edges))
    ]


def _ranges(files: list[Path]) -> list[tuple[int, int, Path]] | None:
    """Return the first and last proxy of each file that has rows, from its footer."""
    found = []
    for file in files:
        try:
            footer = pq.read_metadata(file)
        except (OSError, pa.ArrowException):
            return None
        schema = footer.schema.to_arrow_schema()
        if "proxy" not in schema.names or schema.field("proxy").type != pa.int32():
            return None
        # Columns are counted by their leaves: one with fields, which we do not read, counts more than once.
        column = [footer.schema.column(i).path for i in range(footer.num_columns)].index("proxy")
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        statistics = [group.column(column).statistics for group in groups if group.num_rows]
        if any(one is None or not one.has_min_max or one.null_count for one in statistics):
            return None
        if statistics:
            found.append((min(one.min for one in statistics), max(one.max for one in statistics), file))
    return found


def replay_clustered(spark: SparkSession, parts: list[Shard], job: ReplayJob) -> DataFrame:
    """Replay each shard in a task."""

    def replay_shards(listed: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in listed:
            for text in batch.column(0).to_pylist():
                try:
                    seen = read_shard(Shard(**json.loads(text)), hourly=job.hourly)
                except BadTrace as error:
                    yield from batches([bad_rows(str(error))])
                else:
                    yield from batches(replay_timeline(seen, job))

    rows = [(json.dumps(asdict(part)),) for part in parts]
    # One partition a shard: a task holds one shard in memory and the bar moves shard by shard.
    listed = spark.sparkContext.parallelize(rows, len(rows)).toDF("shard string")
    return listed.mapInArrow(replay_shards, RESULT_DDL)


def read_shard(shard: Shard, *, hourly: bool) -> Timeline:
    """Return the events of a shard's proxies, in order."""
    catalogue = PublicationCatalogue.read(shard.publications)
    requests = _read(shard.requests, "requests")
    _no_gaps(requests, "requests")
    proxy, time, page = (requests.column(name).to_numpy() for name in ("proxy", "time", "page"))
    if not np.isfinite(time).all():
        raise BadTrace(f"requests: a time at proxy {proxy[~np.isfinite(time)][0]} is not a finite number")
    wanted = catalogue.find(page, "requests", proxy)
    proxy, time, wanted = _sorted(proxy, time, wanted)

    within = (pc.field("proxy") >= shard.low) & (pc.field("proxy") < shard.high)
    subscriptions = _read(shard.subscriptions, "subscriptions", within)
    _no_gaps(subscriptions, "subscriptions")
    to, about, count = (subscriptions.column(name).to_numpy() for name in ("proxy", "page", "count"))
    if (count < 0).any():
        worst = int(np.argmax(count < 0))
        raise BadTrace(f"subscriptions: proxy {to[worst]}, page {about[worst]}: count {count[worst]} is negative")
    matched = catalogue.find(about, "subscriptions", to)
    to, rank, matched, count = _sorted(to, catalogue.rank[matched], matched, count)
    if len(to) > 1 and ((np.diff(to) == 0) & (np.diff(rank) == 0)).any():
        twice = int(np.argmax((np.diff(to) == 0) & (np.diff(rank) == 0)))
        raise BadTrace(f"subscriptions: proxy {to[twice]}, page {catalogue.page[matched[twice]]} occurs twice")

    proxies = np.union1d(proxy, to).astype(np.int32)
    pushed = count > 0
    to, matched, count = to[pushed], matched[pushed], count[pushed].astype(np.int64)
    return interleaved(
        proxies,
        RequestEvents(_offsets(proxies, proxy), time, wanted),
        PushEvents(_offsets(proxies, to), matched, count),
        catalogue.time,
        catalogue.size,
        hourly=hourly,
    )


@dataclass(frozen=True)
class PublicationCatalogue:
    """The publications, findable by page."""

    page: npt.NDArray[np.int64]
    time: npt.NDArray[np.float64]
    size: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int64]
    """The place of each publication by time, equal times in the order of rows."""
    by_page: npt.NDArray[np.int64]
    numbered: bool
    """Whether page i is the i-th row."""

    @classmethod
    def read(cls, path: str) -> PublicationCatalogue:
        """Return the publications at a path, kept in memory until their files are replaced."""
        files = data_files(Path(path))
        written = ((found.st_ino, found.st_mtime_ns, found.st_size) for found in map(Path.stat, files))
        return cls._cached(tuple(map(str, files)), tuple(written))

    @staticmethod
    @lru_cache(maxsize=2)
    def _cached(files: tuple[str, ...], _written: tuple[tuple[int, int, int], ...]) -> PublicationCatalogue:
        table = _read(files, "publications")
        page, time, size = (table.column(name).to_numpy() for name in ("page", "time", "size"))
        order = np.argsort(time, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        numbered = bool(np.array_equal(page, np.arange(len(page))))
        return PublicationCatalogue(page, time, size, rank, np.argsort(page, kind="stable"), numbered)

    def find(
        self, pages: npt.NDArray[np.int64], table: str, proxies: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.int64]:
        """Return the publication of each page."""
        if self.numbered and len(pages) and pages.min() >= 0 and pages.max() < len(self.page):
            return pages
        ordered = self.page[self.by_page]
        at = np.minimum(np.searchsorted(ordered, pages), max(0, len(ordered) - 1))
        known = ordered[at] == pages if len(ordered) else np.zeros(len(pages), np.bool_)
        if not known.all():
            lost = int(np.argmin(known))
            raise BadTrace(f"{table}: page {pages[lost]} at proxy {proxies[lost]} has no publication")
        return self.by_page[at]


def _read(files: tuple[str, ...], name: str, rows: pc.Expression | None = None) -> pa.Table:
    """Return the rows of some files; groups of rows that a file's footer rules out are not read."""
    schema = pa.schema([(column, ARROW_TYPES[kind]) for column, kind in TABLES[name].columns.items()])
    tables = [schema.empty_table()]
    for file in files:
        try:
            tables.append(pq.read_table(file, columns=schema.names, filters=rows, partitioning=None).cast(schema))
        except (OSError, pa.ArrowException) as error:
            raise BadTrace(f"{file}: not readable ({first_line_of(error)})") from error
    return pa.concat_tables(tables)


def _no_gaps(table: pa.Table, name: str) -> None:
    for column in table.column_names:
        if table.column(column).null_count:
            raise BadTrace(f"{name}: column '{column}' has {table.column(column).null_count} missing values")


def _sorted(group: np.ndarray, key: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the columns in the order of (group, key), equal ones as they are."""
    # Compared, not subtracted: the difference of two proxies may not fit into 32 bits.
    later, same = group[1:] > group[:-1], group[1:] == group[:-1]
    if (later | (same & (key[1:] >= key[:-1]))).all():
        return group, key, *others
    order = np.lexsort((key, group))
    return tuple(column[order] for column in (group, key, *others))


def _offsets(proxies: npt.NDArray[np.int32], sorted_column: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    ends = np.searchsorted(sorted_column, proxies, side="right").astype(np.int64)
    starts = np.searchsorted(sorted_column, proxies, side="left").astype(np.int64)
    return np.concatenate([starts[:1], ends]) if len(proxies) else np.zeros(1, np.int64)
