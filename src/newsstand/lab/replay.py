"""Replays on Spark: every proxy on its own, all runs in one pass over the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from newsstand.caching import POLICIES
from newsstand.caching.kernels.compiled import compiled
from newsstand.caching.policy_file import PolicyFile
from newsstand.errors import BadInput, BadOption, BadPolicyFile, BadTrace
from newsstand.lab.tally import COUNTS, new_counts, tally, tally_hours
from newsstand.lab.timeline import Timeline

TOTAL, PROXY, HOUR = "total", "proxy", "hour"
BAD: dict[str, type[BadInput]] = {"bad trace": BadTrace, "bad policy": BadPolicyFile}
"""What a row of a replay's result counts; one of a BAD kind carries an error in `text`."""

RESULT = pa.schema(
    [("kind", pa.string()), ("run", pa.int32()), ("key", pa.int64()), ("text", pa.string())]
    + [(name, pa.int64()) for name in COUNTS]
)
RESULT_DDL = "kind string, run int, key long, text string, " + ", ".join(f"{name} long" for name in COUNTS)


@dataclass(frozen=True)
class Run:
    """One policy at one capacity (a fraction of the bytes requested at a proxy, as written) and one beta."""

    policy: str
    capacity: str
    beta: float

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise BadOption(f"capacity {self.capacity} is outside (0, 1]")
        if not (0 < self.beta < float("inf")):
            raise BadOption(f"beta {self.beta} is not a positive number")

    @property
    def fraction(self) -> Fraction:
        try:
            return Fraction(self.capacity)
        except (ValueError, ZeroDivisionError):
            raise BadOption(f"capacity '{self.capacity}' is not a number") from None


@dataclass(frozen=True)
class Job:
    """What to replay; small, and shipped to every task."""

    runs: tuple[Run, ...]
    policy_files: tuple[PolicyFile, ...] = field(default=())
    per_proxy: bool = False
    hourly: bool = False

    def load(self) -> None:
        """Make the users' policies known in this process."""
        for file in self.policy_files:
            file.load()


def prepare(job: Job) -> None:
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
    """The line of a compiler's long explanation that tells a user most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    telling = [line for line in lines if line.startswith(("Unknown attribute", "NameError", "No implementation"))]
    return (telling or lines)[0]


def replay_timeline(seen: Timeline, job: Job) -> Iterator[pa.RecordBatch]:
    """Replay all runs of the job at the proxies of a timeline."""
    job.load()
    for number, run in enumerate(job.runs):
        policy = POLICIES[run.policy]
        decide = compiled(policy)
        by_proxy = new_counts(len(seen))
        by_hour = new_counts(0 if seen.hours is None else len(seen.hours))
        fraction = run.fraction
        outcome = np.zeros(int(np.max(np.diff(seen.event_offset), initial=0)), np.uint8)
        for group in range(len(seen)):
            start, end = seen.event_offset[group : group + 2]
            here = slice(*seen.page_offset[group : group + 2])
            events, sizes = seen.events[start:end], seen.sizes[here]
            capacity = int(fraction * int(seen.requested_bytes[group]))
            decided = outcome[: end - start]
            try:
                decide(events, sizes, seen.subscriptions[here], capacity, run.beta, decided)
            except Exception as error:
                if not policy.is_users:
                    raise
                where = f"policy '{policy.name}' cannot score an entry at proxy {seen.proxies[group]}"
                yield bad_rows(f"{where}: {error}", "bad policy")
                return
            tally(events, sizes, decided, policy.uses_push, by_proxy[group])
            if seen.hour is not None:
                tally_hours(events, sizes, decided, policy.uses_push, seen.hour[start:end], by_hour)
        yield _rows(TOTAL, number, np.zeros(1, np.int64), by_proxy.sum(axis=0, keepdims=True))
        if job.per_proxy:
            yield _rows(PROXY, number, seen.proxies, by_proxy)
        if seen.hours is not None:
            yield _rows(HOUR, number, seen.hours, by_hour)


def _rows(kind: str, run: int, keys: np.ndarray, counts: np.ndarray) -> pa.RecordBatch:
    rows = len(keys)
    columns = [
        pa.array([kind] * rows),
        pa.array(np.full(rows, run, np.int32)),
        pa.array(keys.astype(np.int64)),
        pa.nulls(rows, pa.string()),
        *(pa.array(np.ascontiguousarray(counts[:, i])) for i in range(len(COUNTS))),
    ]
    return pa.record_batch(columns, schema=RESULT)


def bad_rows(text: str, kind: str = "bad trace") -> pa.RecordBatch:
    """A user's error, found by a task, on its way to the user."""
    columns = [[kind], [-1], [0], [text], *([0] for _ in COUNTS)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RESULT, strict=True)]
    return pa.record_batch(arrays, schema=RESULT)


def collect(results: DataFrame) -> list[dict[str, object]]:
    """Sum the tasks' results: one row per run, and per proxy or hour where asked for."""
    sums = [F.sum(name).alias(name) for name in COUNTS]
    rows = results.groupBy("kind", "run", "key").agg(F.min("text").alias("text"), *sums).collect()
    errors = sorted((row["kind"], row["text"]) for row in rows if row["kind"] in BAD)
    if errors:
        kind, text = errors[0]
        raise BAD[kind](text)
    return [row.asDict() for row in sorted(rows, key=lambda row: (row["run"], row["kind"], row["key"]))]


def report(job: Job, wanted: Sequence[Run], rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """One object per wanted run, under the names of the lab's contract.

    A wanted run may differ in beta from the one replayed for it, where the policy does not use beta.
    """
    answers = []
    by_run: dict[object, list[dict[str, object]]] = {}
    for row in rows:
        by_run.setdefault(row["run"], []).append(row)
    for run in wanted:
        mine = by_run.get(job.runs.index(canonical(run)), [])
        total = next((row for row in mine if row["kind"] == TOTAL), dict.fromkeys(COUNTS, 0))
        requests, hits = int(str(total["requests"])), int(str(total["hits"]))
        answer: dict[str, object] = {
            "policy": run.policy,
            "capacity": float(run.fraction),
            "beta": run.beta,
            "requests": requests,
            "hits": hits,
            "hit_ratio": hits / requests if requests else 0.0,
        }
        answer.update({name: total[name] for name in COUNTS[2:]})
        if job.per_proxy:
            answer["proxies"] = [
                {"proxy": row["key"], "requests": row["requests"], "hits": row["hits"]}
                for row in mine
                if row["kind"] == PROXY
            ]
        if job.hourly:
            answer["hours"] = [
                {"hour": row["key"], **{name: row[name] for name in COUNTS}} for row in mine if row["kind"] == HOUR
            ]
        answers.append(answer)
    return answers


def canonical(run: Run) -> Run:
    """The run that decides the same: beta is 2 where the policy does not use it."""
    return run if POLICIES[run.policy].uses_beta else Run(run.policy, run.capacity, 2.0)
