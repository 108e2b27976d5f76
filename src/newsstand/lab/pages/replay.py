"""Replays: every proxy on its own, all runs in one pass over the data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.caching import POLICIES
from newsstand.caching.kernels.pages import HIT, MISS, STORED
from newsstand.caching.kernels.pages.compiled import compiled
from newsstand.caching.pages.policy import PolicyFile
from newsstand.errors import BadInput, BadOption, BadPolicyFile, BadTrace
from newsstand.lab.pages.sampling import estimated_counts, sampled
from newsstand.lab.pages.timeline import Timeline

COUNTS = (
    "requests",
    "hits",
    "hit_bytes",
    "fetched_pages",
    "fetched_bytes",
    "pushed_pages_always",
    "pushed_bytes_always",
    "pushed_pages_needed",
    "pushed_bytes_needed",
)
"""The counts of one proxy, hour or run, in this order."""


@njit(cache=True, nogil=True)
def tally(events, sizes, outcome, uses_push, counts):  # type: ignore[no-untyped-def]
    """Add the outcome of one proxy's events to `counts`."""
    for i in range(len(events)):
        _count(events[i], sizes, outcome[i], uses_push, counts)


@njit(cache=True, nogil=True)
def tally_hours(events, sizes, outcome, uses_push, hour, counts):  # type: ignore[no-untyped-def]
    """Add the outcome of one proxy's events to the row of `counts` of each event's hour."""
    for i in range(len(events)):
        _count(events[i], sizes, outcome[i], uses_push, counts[hour[i]])


@njit(cache=True)
def _count(event, sizes, outcome, uses_push, counts):  # type: ignore[no-untyped-def]
    size = sizes[event if event >= 0 else ~event]
    if event >= 0:
        counts[0] += 1
        if outcome == HIT:
            counts[1] += 1
            counts[2] += size
        elif outcome == MISS:
            counts[3] += 1
            counts[4] += size
    elif uses_push:
        counts[5] += 1
        counts[6] += size
        if outcome == STORED:
            counts[7] += 1
            counts[8] += size


def new_counts(rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return zeros for `rows` proxies or hours."""
    return np.zeros((rows, len(COUNTS)), np.int64)


TOTAL, PROXY, HOUR, SAMPLE = "total", "proxy", "hour", "sample"
LARGEST_CACHE = 2**53
"""Bytes of one cache, at most."""

BAD: dict[str, type[BadInput]] = {"bad trace": BadTrace, "bad policy": BadPolicyFile}
"""The kinds of rows of a replay's result; a row of a BAD kind carries an error in `text`."""


@dataclass(frozen=True)
class ResultRows:
    """Rows of a replay's result: the counts of a run in total, by proxy or by hour, or an error."""

    kind: str
    run: int
    keys: npt.NDArray[np.int64]
    """Each row's proxy or hour; 0 for a total."""
    counts: npt.NDArray[np.int64]
    """A row of COUNTS for each key."""
    cache_bytes: npt.NDArray[np.int64]
    text: str | None = None


@dataclass(frozen=True)
class PolicyRun:
    """One policy at one capacity and one beta.

    The capacity of each proxy is a fraction of the bytes requested there, as written, or a number of bytes.
    """

    policy: str
    capacity: str | int
    beta: float

    def __post_init__(self) -> None:
        if isinstance(self.capacity, int):
            if not 0 < self.capacity <= LARGEST_CACHE:
                raise BadOption(f"must be at least 1 and at most {LARGEST_CACHE}", cache_bytes=self.capacity)
        elif not 0 < self.fraction <= 1:
            raise BadOption("must be above 0 and at most 1", capacity=self.capacity)
        if not (0 < self.beta < float("inf")):
            raise BadOption("must be a number above 0", beta=self.beta)

    @property
    def fraction(self) -> Fraction:
        try:
            return Fraction(self.capacity)
        except (ValueError, ZeroDivisionError):
            raise BadOption("must be a number", capacity=self.capacity) from None

    def cache_bytes(self, requested_bytes: Iterable[int]) -> npt.NDArray[np.int64]:
        """Return the size of the cache of each proxy, from the bytes of the distinct pages requested there."""
        if isinstance(self.capacity, int):
            return np.array([self.capacity for _ in requested_bytes], np.int64)
        fraction = self.fraction
        return np.array([int(fraction * int(requested)) for requested in requested_bytes], np.int64)


@dataclass(frozen=True)
class ReplayJob:
    """The runs to replay; small, and sent to every task."""

    runs: tuple[PolicyRun, ...]
    policy_files: tuple[PolicyFile, ...] = field(default=())
    per_proxy: bool = False
    hourly: bool = False
    sample: float | None = 1.0
    """The share of the pages that is replayed: 1 for all, None for as many as an estimate needs."""
    one_proxy: bool = False
    """Whether the readers of all proxies share one cache."""

    def load(self) -> None:
        """Register the users' policies in this process."""
        for file in self.policy_files:
            file.load()


def prepare(job: ReplayJob) -> None:
    """Compile every kernel of the job here, so that workers on this machine find the code on disk.

    A policy that cannot be compiled or scored shows now, before any data is read.
    """
    job.load()
    events = np.array([~0, 0, 1, 0, ~2, 2, 1, 3, 0], np.int32)
    sizes = np.array([40, 30, 20, 10], np.int64)
    subscriptions = np.array([2, 0, 3, 0], np.int64)
    for policy in dict.fromkeys(POLICIES[run.policy] for run in job.runs):
        outcome = np.zeros(len(events), np.uint8)
        try:
            compiled(policy)(events, sizes, subscriptions, 70, 2.0, outcome)
        except Exception as error:
            if not policy.is_users:
                raise
            raise BadPolicyFile(
                f"policy '{policy.name}' cannot be compiled or scored: {_reason(error)}"
            ) from error
        tally(events, sizes, outcome, policy.uses_push, new_counts(1)[0])
        tally_hours(events, sizes, outcome, policy.uses_push, np.zeros(len(events), np.int64), new_counts(1))


def _reason(error: Exception) -> str:
    """Return the line of a compiler's long explanation that tells a user most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    telling = [line for line in lines if line.startswith(("Unknown attribute", "NameError", "No implementation"))]
    return (telling or lines)[0]


def replay_timeline(timeline: Timeline, job: ReplayJob) -> Iterator[ResultRows]:
    """Replay all runs of the job at the proxies of a timeline; the first error is the last row."""
    parts = [timeline]
    if job.sample != 1:
        assert job.sample is not None
        yield from without_caches(timeline, job)
        parts = sampled(timeline, job.sample)
    for number, part in itertools.product(range(len(job.runs)), parts):
        for rows in replay_run(part, job, number):
            yield rows
            if rows.text is not None:
                return


def without_caches(timeline: Timeline, job: ReplayJob) -> Iterator[ResultRows]:
    """Yield the total of each run as if the caches were empty: what is exact beside the estimates of a sample."""
    requests, requested, pushes, pushed = _events_and_bytes(
        timeline.event_offset, timeline.events, timeline.page_offset, timeline.sizes
    )
    for number, run in enumerate(job.runs):
        sent = (pushes, pushed) if POLICIES[run.policy].uses_push else (0, 0)
        counts = np.array([[requests, 0, 0, requests, requested, *sent, 0, 0]])
        cache_bytes = run.cache_bytes(timeline.requested_bytes)
        yield ResultRows(TOTAL, number, np.zeros(1, np.int64), counts, cache_bytes.sum(keepdims=True))


@njit(cache=True, nogil=True)
def _events_and_bytes(event_offset, events, page_offset, sizes):  # type: ignore[no-untyped-def]
    """Return the number of requests, the bytes that they are for, and both of pushes."""
    requests, requested, pushed = 0, 0, 0
    for proxy in range(len(event_offset) - 1):
        base = page_offset[proxy]
        for i in range(event_offset[proxy], event_offset[proxy + 1]):
            event = events[i]
            if event >= 0:
                requests += 1
                requested += sizes[base + event]
            else:
                pushed += sizes[base + ~event]
    return requests, requested, len(events) - requests, pushed


def replay_run(timeline: Timeline, job: ReplayJob, number: int) -> Iterator[ResultRows]:
    """Replay one run of the job at the proxies of a timeline."""
    job.load()
    run = job.runs[number]
    policy = POLICIES[run.policy]
    decide = compiled(policy)
    by_proxy = new_counts(len(timeline))
    by_hour = new_counts(0 if timeline.hours is None else len(timeline.hours))
    cache_bytes = run.cache_bytes(timeline.requested_bytes)
    if timeline.part is not None:
        cache_bytes = (cache_bytes * timeline.share).astype(np.int64)
    outcome = np.zeros(int(np.max(np.diff(timeline.event_offset), initial=0)), np.uint8)
    for group in range(len(timeline)):
        start, end = timeline.event_offset[group : group + 2]
        here = slice(*timeline.page_offset[group : group + 2])
        events, sizes = timeline.events[start:end], timeline.sizes[here]
        decided = outcome[: end - start]
        try:
            decide(events, sizes, timeline.subscriptions[here], cache_bytes[group], run.beta, decided)
        except Exception as error:
            if not policy.is_users:
                raise
            proxy = int(timeline.proxies[group])
            where = f"policy '{policy.name}' cannot score an entry at proxy {proxy}"
            yield bad_rows(f"{where}: {error}", "bad policy", number, proxy)
            return
        tally(events, sizes, decided, policy.uses_push, by_proxy[group])
        if timeline.hour is not None:
            tally_hours(events, sizes, decided, policy.uses_push, timeline.hour[start:end], by_hour)
    total = by_proxy.sum(axis=0, keepdims=True)
    kind, key = (TOTAL, 0) if timeline.part is None else (SAMPLE, timeline.part)
    yield ResultRows(kind, number, np.array([key]), total, cache_bytes.sum(keepdims=True))
    if job.per_proxy:
        yield ResultRows(PROXY, number, timeline.proxies.astype(np.int64), by_proxy, cache_bytes)
    if timeline.hours is not None:
        yield ResultRows(HOUR, number, timeline.hours.astype(np.int64), by_hour, np.zeros(len(by_hour), np.int64))


def bad_rows(text: str, kind: str = "bad trace", run: int = -1, proxy: int = 0) -> ResultRows:
    """Return the row that carries a user's error from a task to the caller of the replay."""
    return ResultRows(kind, run, np.array([proxy]), new_counts(1), np.zeros(1, np.int64), text)


def sorted_rows(rows: Iterable[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return the summed rows in order; raise the first of the users' errors among them."""
    ordered = sorted(rows, key=lambda row: (row["run"], row["kind"], row["key"]))
    for row in ordered:
        if row["kind"] in BAD:
            raise BAD[str(row["kind"])](str(row["text"]))
    return ordered


def report(
    job: ReplayJob, wanted: Sequence[PolicyRun], rows: Sequence[Mapping[str, object]]
) -> list[dict[str, object]]:
    """Return one object per wanted run, with the fields of `simulate --json` (docs/reference/commands.md).

    A wanted run may differ in beta from the one replayed for it, where the policy does not use beta.
    """
    answers = []
    by_run: dict[object, list[Mapping[str, object]]] = {}
    for row in rows:
        by_run.setdefault(row["run"], []).append(row)
    for run in wanted:
        mine = by_run.get(job.runs.index(canonical(run)), [])
        total = next((row for row in mine if row["kind"] == TOTAL), dict.fromkeys(("cache_bytes", *COUNTS), 0))
        answer: dict[str, object] = {
            "policy": run.policy,
            "capacity": None if isinstance(run.capacity, int) else float(run.fraction),
            "beta": run.beta,
        }
        parts = [row for row in mine if row["kind"] == SAMPLE]
        if parts:
            assert job.sample is not None
            answer |= estimated_counts(job.sample, total, parts)
        else:
            requests, hits = int(str(total["requests"])), int(str(total["hits"]))
            answer |= {"requests": requests, "hits": hits, "hit_ratio": hits / requests if requests else 0.0}
            answer |= {name: total[name] for name in COUNTS[2:]}
        answer["bytes_per_proxy"] = run.capacity if isinstance(run.capacity, int) else None
        answer["cache_bytes"] = total["cache_bytes"]
        if job.per_proxy:
            answer["proxies"] = [
                {"proxy": row["key"], "requests": row["requests"], "hits": row["hits"]}
                for row in mine
                if row["kind"] == PROXY
            ]
            answer["proxy_cache_bytes"] = [row["cache_bytes"] for row in mine if row["kind"] == PROXY]
        if job.hourly:
            answer["hours"] = [
                {"hour": row["key"], **{name: row[name] for name in COUNTS}} for row in mine if row["kind"] == HOUR
            ]
        answers.append(answer)
    return answers


def canonical(run: PolicyRun) -> PolicyRun:
    """Return the run that decides the same: beta is 2 where the policy does not use it."""
    return run if POLICIES[run.policy].uses_beta else PolicyRun(run.policy, run.capacity, 2.0)
