"""Commands of the lab as a user types them, start-up included, beside libCacheSim's Python package.

    .venv/bin/pip install --no-deps --require-hashes -r benchmarks/requirements.lock
    .venv/bin/python benchmarks/end_to_end.py [--rounds 5] [--trace twitter gradle ...] [--newsstand COMMAND]

Every time is that of a whole process from its start to its end. The two sides alternate, and the table shows
medians of wall-clock time and of processor time. libCacheSim replays by `process_trace` over the same
uncompressed oracleGeneral file, in a script of a few lines. Both caches hold 5 % of the bytes of the distinct
objects:

- *size known*: the script has the number of bytes.
- *5 %*: the script says `cache_size=0.05`, so libCacheSim reads the trace once for the size of each cache. Our
  command always does this work.

Our command has its kernels on disk: it runs once before the first round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import traces

ROOT = Path(__file__).parent.parent
NEWSSTAND = Path(sys.executable).parent / "newsstand"
PEERS = {"lru": "LRU", "sieve": "Sieve", "gdsf": "GDSF", "s3-fifo": "S3FIFO"}
TRACES: dict[str, Callable[[], Path]] = {
    "synthetic": traces.synthetic,
    "twitter": traces.twitter,
    **{name: partial(traces.caffeine, name) for name in traces.CAFFEINE},
}
SCRIPT = """
import json, sys
import libcachesim
reader = libcachesim.TraceReader(sys.argv[1], libcachesim.TraceType.ORACLE_GENERAL_TRACE)
size = json.loads(sys.argv[2])
for name in sys.argv[3:]:
    cache = getattr(libcachesim, name)(cache_size=size, reader=reader)
    print("ratio", 1 - cache.process_trace(reader)[0])
"""


@dataclass(frozen=True)
class Measurement:
    """The output and the seconds of a process."""

    output: str
    wall: float
    processor: float


Command = Callable[[list[str]], Measurement]
"""Runs our command with arguments."""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--trace", nargs="*", choices=TRACES, default=["synthetic", "twitter"])
    options.add_argument("--policies", nargs="+", choices=PEERS, help="one row with these, not the usual rows")
    options.add_argument("--newsstand", type=Path, default=NEWSSTAND, help="the command to measure")
    asked = options.parse_args()
    ours = partial(timed_command, asked.newsstand)
    print("seconds, wall-clock (processor)\n")
    commands(ours, asked.rounds)
    for name in asked.trace:
        file = TRACES[name]()
        rows = [asked.policies] if asked.policies else [list(PEERS), ["lru"], ["sieve"]]
        print(f"\n{name}, {file.stat().st_size // traces.RECORD.itemsize:,} requests")
        print(f"{'policies':9} {'newsstand':>15} {'size known':>15} {'faster':>7} {'5 %':>15} {'faster':>7}")
        for policies in rows:
            print(beside_peer(ours, file, policies, asked.rounds), flush=True)


def commands(ours: Command, rounds: int) -> None:
    """Time the commands that have no peer."""
    sizes = ["0.01", "0.02", "0.05", "0.1"]
    tiny = ["simulate", str(ROOT / "examples" / "tiny-trace"), "--policy", "sg2", "--capacity", "0.1"]
    log = ["simulate", str(traces.access_log()), "--policy", *PEERS, "--capacity", *sizes]
    for label, arguments, limit in (("tiny trace", tiny, 2), ("access log, 200,000 lines, 4 x 4", log, 4)):
        ours(arguments)
        timed = [ours(arguments) for _ in range(rounds)]
        print(f"{label:40} {seconds(timed)}  (goal: under {limit} s)", flush=True)


def beside_peer(ours: Command, file: Path, policies: list[str], rounds: int) -> str:
    """Time both sides on a trace; return a row of the table."""
    arguments = ["simulate", str(file), "--policy", *policies, "--capacity", "0.05", "--json"]
    answers = json.loads(ours(arguments).output)
    size = cache_bytes(file)
    us, known, fraction = [], [], []
    for _ in range(rounds):
        us.append(ours(arguments))
        known.append(peer(file, size, policies))
        fraction.append(peer(file, 0.05, policies))
    ratios = [float(line.split()[1]) for line in known[0].output.splitlines() if line.startswith("ratio")]
    far = max(abs(mine["hit_ratio"] - its) for mine, its in zip(answers, ratios, strict=True))
    label = "all four" if len(policies) == len(PEERS) else " ".join(policies)
    return (
        f"{label:9} {seconds(us):>15} {seconds(known):>15} {ratio(known, us):6.1f}x {seconds(fraction):>15} "
        f"{ratio(fraction, us):6.1f}x  hit ratios differ by at most {far:.6f}"
    )


def cache_bytes(file: Path) -> int:
    """Return 5 % of the bytes of the distinct objects, each of which has one size."""
    pages, sizes = traces.read(file)
    _, first = np.unique(pages, return_index=True)
    return int(sizes[first].sum()) * 5 // 100


def timed_command(newsstand: Path, arguments: list[str]) -> Measurement:
    return timed([str(newsstand), *arguments])


def peer(file: Path, size: float, policies: list[str]) -> Measurement:
    names = [PEERS[policy] for policy in policies]
    return timed([sys.executable, "-c", SCRIPT, str(file), json.dumps(size), *names])


def timed(command: list[str]) -> Measurement:
    """Run a process to its end."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - start, os.times()
    if done.returncode:
        sys.exit(f"{' '.join(command)}:\n{done.stderr}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return Measurement(done.stdout, wall, spent)


def seconds(runs: list[Measurement]) -> str:
    wall, spent = (statistics.median(getattr(run, name) for run in runs) for name in ("wall", "processor"))
    return f"{wall:.2f} ({spent:.2f})"


def ratio(theirs: list[Measurement], mine: list[Measurement]) -> float:
    """How many times longer the other side takes, round by round, as a median."""
    return statistics.median(their.wall / my.wall for their, my in zip(theirs, mine, strict=True))


if __name__ == "__main__":
    main()
