"""Replay of the same traces by our compiled kernels and by libCacheSim, side by side on one core.

    .venv/bin/pip install --no-deps --require-hashes -r benchmarks/requirements.lock
    .venv/bin/python benchmarks/replay_vs_libcachesim.py [--rounds 5] [--trace twitter] [--policy gdsf lru]

libCacheSim takes its fastest path: `process_trace`, a loop in C over an uncompressed, memory-mapped
oracleGeneral file, hashpower 18. The two sides alternate; times are CPU time of this one thread, medians over
the rounds.

- *kernel*: our replay alone, over pages that are already numbered. The targets are for this one: a trace is
  numbered once and replayed under many policies, capacities and betas.
- *all in*: kernel, the numbering of pages (`read_oracle_columns`) and the counting of hits and bytes (`tally`),
  because libCacheSim hashes the objects' ids and counts while it replays.

Both caches hold 5 % of the bytes of the distinct objects. `gdsf` is the textbook's; `gdsf*` is libCacheSim's
own rule on our heap (see `libcachesim_gdsf.py`). Hit ratios are equal if they differ by less than 0.00005;
S3-FIFO and W-TinyLFU are shown without a target, and the latter is another variant there: it estimates by a
counting Bloom filter what we count exactly.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import libcachesim
import numpy as np
import traces
from libcachesim_gdsf import libcachesim_gdsf

from newsstand.caching import POLICIES
from newsstand.caching.kernels.pages import HIT, PageReplayKernel
from newsstand.caching.kernels.pages.compiled import compiled
from newsstand.lab.pages.local import timelines
from newsstand.lab.pages.replay import new_counts, tally
from newsstand.lab.pages.timeline import Timeline
from newsstand.workload.oracle_columns import read_oracle_columns

CAPACITY = 0.05
TRACES: dict[str, Callable[[], Path]] = {"synthetic": traces.synthetic, "twitter": traces.twitter}


@dataclass(frozen=True)
class Contest:
    """One policy on both sides, and how many times faster ours must be."""

    kernel: PageReplayKernel
    peer: type[libcachesim.CacheBase]
    target: float | None = None


CONTESTS = {
    "gdsf": Contest(compiled(POLICIES["gdsf"]), libcachesim.GDSF, 10.0),
    "gdsf*": Contest(libcachesim_gdsf, libcachesim.GDSF),
    "lru": Contest(compiled(POLICIES["lru"]), libcachesim.LRU, 2.0),
    "sieve": Contest(compiled(POLICIES["sieve"]), libcachesim.Sieve, 2.0),
    "s3-fifo": Contest(compiled(POLICIES["s3-fifo"]), libcachesim.S3FIFO),
    "w-tinylfu": Contest(compiled(POLICIES["w-tinylfu"]), libcachesim.WTinyLFU),
}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--trace", nargs="+", choices=TRACES, default=list(TRACES))
    options.add_argument("--policy", nargs="+", choices=CONTESTS, default=list(CONTESTS))
    asked = options.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name in asked.trace:
        compare(name, TRACES[name](), asked.policy, asked.rounds)


def compare(name: str, file: Path, policies: list[str], rounds: int) -> None:
    """Print the table of one trace."""
    seen, numbering = number(file, rounds)
    capacity = int(seen.requested_bytes[0] * CAPACITY)
    reader = libcachesim.TraceReader(str(file), libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    print(
        f"\n{name}: {len(seen.events):,} requests, {len(seen.sizes):,} objects, cache {capacity:,} bytes, "
        f"{rounds} rounds; numbering the pages {numbering:.1f} ns/request"
    )
    print(
        f"{'':9} {'ns/request':^30} {'times faster':^15} {'hit ratio':^21}\n"
        f"{'policy':9} {'kernel':>8} {'all in':>8} {'libCacheSim':>12} {'kernel':>7} {'all in':>7} "
        f"{'ours':>10} {'libCacheSim':>11}  verdict"
    )
    for policy in policies:
        print(row(policy, seen, capacity, reader, numbering, rounds), flush=True)


def number(file: Path, rounds: int) -> tuple[Timeline, float]:
    """The trace as one proxy sees it, and the nanoseconds a request of reading it and numbering its pages."""
    read_oracle_columns(file)
    taken = []
    for _ in range(rounds):
        start = time.thread_time_ns()
        columns = read_oracle_columns(file)
        taken.append((time.thread_time_ns() - start) / len(columns.requests))
    (seen,) = timelines(columns, 1, hourly=False)
    return seen, statistics.median(taken)


def row(
    policy: str, seen: Timeline, capacity: int, reader: libcachesim.TraceReader, numbering: float, rounds: int
) -> str:
    """One line of the table."""
    contest = CONTESTS[policy]
    requests = len(seen.events)
    outcome = np.empty(requests, np.uint8)
    counts = new_counts(1)
    contest.kernel(seen.events[:9], seen.sizes, seen.subscriptions, capacity, 1.0, outcome[:9])
    tally(seen.events[:9], seen.sizes, outcome[:9], False, counts[0])
    kernel, counting, peer = [], [], []
    for _ in range(rounds):
        start = time.thread_time_ns()
        contest.kernel(seen.events, seen.sizes, seen.subscriptions, capacity, 1.0, outcome)
        replayed = time.thread_time_ns()
        tally(seen.events, seen.sizes, outcome, False, counts[0])
        kernel.append((replayed - start) / requests)
        counting.append((time.thread_time_ns() - replayed) / requests)

        cache = contest.peer(cache_size=capacity, hashpower=18)
        start = time.thread_time_ns()
        miss_ratio, _ = cache.process_trace(reader)
        peer.append((time.thread_time_ns() - start) / requests)
    ours, theirs = statistics.median(kernel), statistics.median(peer)
    all_in = ours + statistics.median(counting) + numbering
    hit_ratio, peer_hit_ratio = np.count_nonzero(outcome == HIT) / requests, 1 - miss_ratio
    equal = abs(hit_ratio - peer_hit_ratio) < 0.00005
    return (
        f"{policy:9} {ours:8.1f} {all_in:8.1f} {theirs:12.1f} {theirs / ours:6.1f}x {theirs / all_in:6.1f}x "
        f"{hit_ratio:10.6f} {peer_hit_ratio:11.6f}  {verdict(contest.target, theirs / ours, equal)}"
    )


def verdict(target: float | None, ratio: float, equal: bool) -> str:
    if target is None:
        return "no target" if equal else "no target; hit ratios differ"
    failures = [f"BELOW {target:g}x"] if ratio < target else []
    failures += [] if equal else ["hit ratios differ"]
    return ", ".join(failures) or f"OK (at least {target:g}x)"


if __name__ == "__main__":
    main()
