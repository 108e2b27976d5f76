"""The local engine: replays of a trace in memory, on all cores of this process and without Spark."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.lab.cores import on_all_cores
from newsstand.lab.pages.replay import (
    COUNTS,
    PolicyRun,
    ReplayJob,
    ResultRows,
    prepare,
    replay_run,
    report,
    sorted_rows,
    without_caches,
)
from newsstand.lab.pages.sampling import checked_share, sampled
from newsstand.lab.pages.timeline import PushEvents, RequestEvents, Timeline, interleaved
from newsstand.workload.trace.columns import TraceColumns

PARTS_A_CORE = 4
"""Groups of proxies for each core, so that the cores end at about the same time."""

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Progress = Callable[[int], Callable[[int], object]]
"""Takes the number of tasks, and returns a function that takes how many more have ended."""


def simulate(
    trace: TraceColumns,
    wanted: Sequence[PolicyRun],
    job: ReplayJob,
    progress: Progress = lambda total: lambda piece: None,
) -> list[dict[str, object]]:
    """Replay a trace: one object per wanted run, with the fields of `simulate --json`."""
    prepare(job)
    trace = trace.behind_one_proxy() if job.one_proxy else trace
    parts = list(timelines(trace, PARTS_A_CORE * (os.cpu_count() or 1), hourly=job.hourly))
    if job.sample != 1:
        pages = sum(len(part.sizes) for part in parts)
        proxies = sum(int(np.count_nonzero(np.diff(part.page_offset))) for part in parts)
        job = replace(job, sample=checked_share(job.sample, pages, proxies))
    results: list[ResultRows] = []
    if (share := job.sample) is not None and share < 1:
        results += itertools.chain(*on_all_cores(lambda part: list(without_caches(part, job)), parts))
        parts = list(itertools.chain(*on_all_cores(lambda part: sampled(part, share), parts)))
    tasks = [(part, number) for number in range(len(job.runs)) for part in parts]
    advance = progress(len(tasks))
    for rows in on_all_cores(lambda task: list(replay_run(task[0], job, task[1])), tasks):
        results += rows
        advance(1)
    return report(job, wanted, sorted_rows(_summed(results)))


def timelines(trace: TraceColumns, parts: int, *, hourly: bool) -> Iterator[Timeline]:
    """Yield the events of all proxies, in about as many parts, with whole proxies in each."""
    requests, subscriptions = trace.requests, trace.subscriptions
    if trace.is_in_order and not len(subscriptions):
        yield _timeline_in_order(trace, hourly=hourly)
        return
    proxies = np.union1d(_distinct(requests.proxy), _distinct(subscriptions.proxy)).astype(np.int32)
    pushed = subscriptions.count > 0
    times = trace.publications.time
    rank = np.empty(len(times), np.int64)
    rank[np.argsort(times, kind="stable")] = np.arange(len(times))
    requested = GroupedRows.of(requests.proxy, proxies)
    subscribed = GroupedRows.of(subscriptions.proxy[pushed], proxies)
    published, count = subscriptions.page[pushed], subscriptions.count[pushed]

    def part(low: int, high: int) -> Timeline:
        offset, rows = requested.part(low, high)
        time, page = _ordered(offset, requests.time[rows], requests.page[rows])
        push_offset, rows = subscribed.part(low, high)
        _, pushed_page, pushed_count = _ordered(push_offset, rank[published[rows]], published[rows], count[rows])
        return interleaved(
            proxies[low:high],
            RequestEvents(offset, time.astype(np.float64, copy=False), page.astype(np.int64, copy=False)),
            PushEvents(push_offset, pushed_page.astype(np.int64, copy=False), pushed_count.astype(np.int64)),
            times,
            trace.publications.size,
            hourly=hourly,
        )

    edges = _edges(requested.offset + subscribed.offset, parts)
    yield from on_all_cores(lambda edge: part(*edge), list(itertools.pairwise(edges)))


def _timeline_in_order(trace: TraceColumns, *, hourly: bool) -> Timeline:
    requests, size = trace.requests, trace.publications.size
    hours, hour = None, None
    if hourly:
        hours, hour = np.unique(np.floor(requests.time / 3600.0), return_inverse=True)
    return Timeline(
        requests.proxy[:1],
        np.array([0, len(requests)]),
        requests.page.astype(np.int32, copy=False),
        np.array([0, len(size)]),
        size,
        np.zeros(len(size), np.int64),
        size.sum(keepdims=True),
        hours,
        hour,
    )


@dataclass(frozen=True)
class GroupedRows:
    """The rows of each group, as they follow each other in a table."""

    offset: Int64s
    order: Int64s | None
    """The rows, group by group; None if the table has them in this order."""

    @classmethod
    def of(cls, column: Int32s, groups: Int32s) -> GroupedRows:
        if len(groups) == 1:
            return cls(np.array([0, len(column)]), None)
        if (column[1:] >= column[:-1]).all():
            ends = np.searchsorted(column, groups, side="right")
            return cls(np.concatenate([[0], ends]).astype(np.int64), None)
        return cls(*_grouped(np.searchsorted(groups, column), len(groups)))

    def part(self, low: int, high: int) -> tuple[Int64s, slice | Int64s]:
        """Return the offsets of some groups among their rows, and the rows."""
        start, end = self.offset[low], self.offset[high]
        rows = slice(start, end) if self.order is None else self.order[start:end]
        return self.offset[low : high + 1] - start, rows


@njit(cache=True, nogil=True)
def _grouped(group, groups):  # type: ignore[no-untyped-def]
    """Return the offset of each group and the rows, group by group, those of a group as they are."""
    offset = np.zeros(groups + 1, np.int64)
    for row in range(len(group)):
        offset[group[row] + 1] += 1
    offset = np.cumsum(offset)
    at = offset[:-1].copy()
    order = np.empty(len(group), np.int64)
    for row in range(len(group)):
        order[at[group[row]]] = row
        at[group[row]] += 1
    return offset, order


def _distinct(column: Int32s) -> Int32s:
    """Return the values of a column in order; proxies have small numbers, which need no sort."""
    if not len(column):
        return column
    low, high = int(column.min()), int(column.max())
    if low == high:
        return column[:1]
    if high - low > 4 * len(column):
        return np.unique(column)
    found = np.zeros(high - low + 1, np.bool_)
    found[column.astype(np.int64) - low] = True
    return (np.flatnonzero(found) + low).astype(np.int32)


def _ordered(offset: Int64s, key: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return columns in the order of a key within each group, equal ones as they are."""
    descends = np.flatnonzero(key[1:] < key[:-1]) + 1
    if np.isin(descends, offset).all():
        return key, *others
    group = np.repeat(np.arange(len(offset) - 1), np.diff(offset))
    order = np.lexsort((key, group))
    return tuple(column[order] for column in (key, *others))


def _edges(offset: Int64s, parts: int) -> list[int]:
    """Return where to divide groups so that the parts have about as many rows."""
    wanted = np.linspace(0, offset[-1], parts + 1)
    edges = np.searchsorted(offset, wanted[1:-1])
    return sorted({0, *map(int, edges), len(offset) - 1})


def _summed(results: Iterable[ResultRows]) -> Iterator[Mapping[str, object]]:
    """Yield one row per run, and per proxy or hour if the job says so."""
    tables: dict[tuple[str, int, str | None], list[ResultRows]] = {}
    for one in results:
        tables.setdefault((one.kind, one.run, one.text), []).append(one)
    for (kind, run, text), listed in tables.items():
        keys, place = np.unique(np.concatenate([one.keys for one in listed]), return_inverse=True)
        counts = np.zeros((len(keys), len(COUNTS) + 1), np.int64)
        np.add.at(
            counts, place, np.concatenate([np.column_stack([one.counts, one.cache_bytes]) for one in listed])
        )
        for key, row in zip(keys.tolist(), counts.tolist(), strict=True):
            yield {
                "kind": kind,
                "run": run,
                "key": key,
                "text": text,
                **dict(zip((*COUNTS, "cache_bytes"), row, strict=True)),
            }
