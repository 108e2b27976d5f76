"""The news site's week at growing size: generated and replayed on Spark by the commands that a user types.

    .venv/bin/python benchmarks/full_week.py [--sizes 1750000,17500000,175000000] [--proxies 100000] [--keep]

For each size, `newsstand workload chen2003` and then `newsstand simulate` under five policies, as
subprocesses. The cost per request must not grow with the trace: at most 1.3 times that of the smallest size,
generation and replay together. What each command spends once (Spark's start, 100,000 proxies) weighs on the
smallest size and so flatters the growth; the table therefore also gives the growth over the second-smallest.
CPU time and memory are those of the whole tree of processes (the JVM, Python workers), sampled from /proc;
memory that processes share counts in each. Traces lie in build/week; the largest takes some gigabytes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
COMMAND = Path(sys.executable).parent / "newsstand"
POLICIES = ("gdstar", "sub", "sg2", "sr", "dc-lap")
LARGEST_GROWTH = 1.3


@dataclass(frozen=True)
class Cost:
    """What one command took."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    peak_swap_bytes: int
    answer: object


@dataclass(frozen=True)
class Week:
    """One size of the trace."""

    requests: int
    generate: Cost
    replay: Cost

    @property
    def microseconds(self) -> float:
        """Wall-clock time per request, generation and replay together."""
        return (self.generate.seconds + self.replay.seconds) / self.requests * 1e6

    @property
    def peak_bytes(self) -> int:
        return max(self.generate.peak_bytes, self.replay.peak_bytes)

    @property
    def peak_swap_bytes(self) -> int:
        return max(self.generate.peak_swap_bytes, self.replay.peak_swap_bytes)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--sizes", default="1750000,17500000,175000000", help="requests, comma-separated")
    options.add_argument("--proxies", type=int, default=100_000)
    options.add_argument("--keep", action="store_true", help="leave the traces in build/week")
    asked = options.parse_args()
    weeks: list[Week] = []
    for requests in sorted(int(size) for size in asked.sizes.split(",")):
        weeks.append(run(requests, asked.proxies, keep=asked.keep))
        show(weeks, asked.proxies)


def run(requests: int, proxies: int, *, keep: bool) -> Week:
    folder = ROOT / "build" / "week" / str(requests)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    wanted = ["--requests", str(requests), "--proxies", str(proxies)]
    generated = measure([str(COMMAND), "workload", "chen2003", *wanted, "--out", str(folder), "--json"])
    replay = [str(COMMAND), "simulate", str(folder), "--policy", *POLICIES, "--capacity", "0.05", "--json"]
    replayed = measure(replay)
    for answer in replayed.answer if isinstance(replayed.answer, list) else []:
        if answer["requests"] != requests:
            sys.exit(f"{answer['policy']}: replayed {answer['requests']:,} of {requests:,} requests")
    if not keep:
        shutil.rmtree(folder)
    return Week(requests, generated, replayed)


def measure(command: list[str]) -> Cost:
    """Run a command; its answer on standard output is JSON, its errors are shown."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    tree = Tree(process.pid)
    tree.start()
    out, _ = process.communicate()
    seconds = time.perf_counter() - start
    tree.done.set()
    tree.join()
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}")
    return Cost(seconds, sum(tree.cpu_seconds.values()), tree.peak_bytes, tree.peak_swap_bytes, json.loads(out))


class Tree(threading.Thread):
    """Watches the memory and the CPU time of a process and all its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.done = threading.Event()
        self.cpu_seconds: dict[int, float] = {}
        self.peak_bytes = 0
        self.peak_swap_bytes = 0

    def run(self) -> None:
        while not self.done.wait(0.2):
            pids = descendants(self.pid)
            facts = [status(pid) for pid in pids]
            self.peak_bytes = max(self.peak_bytes, sum(one.get("VmRSS", 0) for one in facts))
            self.peak_swap_bytes = max(self.peak_swap_bytes, sum(one.get("VmSwap", 0) for one in facts))
            self.cpu_seconds.update((pid, cpu) for pid in pids if (cpu := cpu_seconds(pid)) is not None)


def descendants(root: int) -> list[int]:
    """The process and everything it started, directly or not."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = status(int(entry.name)).get("PPid")
            if parent is not None:
                children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def status(pid: int) -> dict[str, int]:
    """PPid, and VmRSS and VmSwap in bytes; nothing if the process is gone."""
    facts = {}
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "PPid":
                facts[name] = int(value)
            elif name in ("VmRSS", "VmSwap"):
                facts[name] = int(value.split()[0]) * 1024
    except OSError:
        return {}
    return facts


def cpu_seconds(pid: int) -> float | None:
    """User and system time of a process so far, without that of its children; None if it is gone."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def show(weeks: list[Week], proxies: int) -> None:
    """The table so far, so that a long run tells what it has."""
    print(f"\n{proxies:,} proxies, policies {' '.join(POLICIES)}, capacity 0.05")
    print(
        f"{'requests':>12} {'generate s':>11} {'replay s':>9} {'µs/request':>11} {'CPU µs/request':>15} "
        f"{'peak GiB':>9} {'swap GiB':>9} {'to smallest':>12} {'to second':>10}  verdict"
    )
    for place, week in enumerate(weeks):
        growth = week.microseconds / weeks[0].microseconds
        second = f"{week.microseconds / weeks[1].microseconds:9.2f}x" if place > 1 else "-"
        cpu = (week.generate.cpu_seconds + week.replay.cpu_seconds) / week.requests * 1e6
        verdict = "OK" if growth <= LARGEST_GROWTH else f"grows by more than {LARGEST_GROWTH}x"
        print(
            f"{week.requests:12,} {week.generate.seconds:11.1f} {week.replay.seconds:9.1f} "
            f"{week.microseconds:11.2f} {cpu:15.2f} {week.peak_bytes / 2**30:9.2f} "
            f"{week.peak_swap_bytes / 2**30:9.2f} {growth:11.2f}x {second:>10}  {verdict}",
            flush=True,
        )


if __name__ == "__main__":
    main()
