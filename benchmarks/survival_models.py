"""The chain of several brokers: what lumping saves, and how large a chain can be solved.

    .venv/bin/python benchmarks/survival_models.py [--distribution] [--size 10x15 ...]

First the same system lumped and unlumped, side by side; then large ones, lumped. Each size runs in a process of
its own, so that the peak of memory is its own. CPU seconds are shown beside wall-clock ones, for other work may go
on.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from newsstand.survival.absorbing_chain import Chain
from newsstand.survival.lumped_chain import LumpedChain
from newsstand.survival.setting import SurvivalSetting
from newsstand.survival.several_brokers import broker_network
from newsstand.survival.survival_time import SurvivalTime

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.survival.unlumped import unlumped_chain

Answer = TypeVar("Answer")

BOTH = "4x7"
LARGE = ("10x15", "5x50")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--size", action="append", help="brokers x slots; may be repeated")
    options.add_argument("--distribution", action="store_true", help="compute quantiles, too")
    options.add_argument("--alone", choices=["lumped", "unlumped"], help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.alone:
        measure(given.alone, given.size[0], given.distribution)
        return
    print(
        "| size | chain | states | build s (CPU) | MST | s (CPU) | sd | s (CPU) | quantiles | s (CPU) | peak GB |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    jobs = [("unlumped", BOTH), ("lumped", BOTH)] if given.size is None else []
    for kind, size in [*jobs, *(("lumped", size) for size in given.size or LARGE)]:
        more = ["--distribution"] if given.distribution else []
        subprocess.run([sys.executable, __file__, "--alone", kind, "--size", size, *more], check=True)


def measure(kind: str, size: str, distribution: bool) -> None:
    brokers, slots = map(int, size.split("x"))
    make: Callable[[SurvivalSetting], Chain] = {
        "lumped": lambda setting: LumpedChain(broker_network(setting)),
        "unlumped": lambda setting: unlumped_chain(broker_network(setting)),
    }[kind]
    warm = SurvivalTime(make(SurvivalSetting(2, 2, 1.0, 0.1, 2.0)))
    warm.quantile(0.5)
    chain, build = timed(lambda: make(SurvivalSetting(brokers, slots, 1.0, 0.1, 2.0)))
    lifetime = SurvivalTime(chain)
    mst, mean_time = timed(lambda: lifetime.mst)
    deviation, second_time = timed(lambda: lifetime.sd)
    quantiles, curve_time = "", ""
    if distribution:
        found, curve_time = timed(lambda: [lifetime.quantile(p) for p in (0.05, 0.5, 0.95)])
        quantiles = ", ".join(f"{value:.4f}" for value in found)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    cells = [size, kind, f"{chain.entry.size:,}", build, f"{mst:.6f}", mean_time, f"{deviation:.6f}", second_time]
    print("| " + " | ".join([*cells, quantiles, curve_time, f"{peak:.2f}"]) + " |", flush=True)


def timed(work: Callable[[], Answer]) -> tuple[Answer, str]:
    wall, processor = time.perf_counter(), time.process_time()
    answer = work()
    return answer, f"{time.perf_counter() - wall:.1f} ({time.process_time() - processor:.1f})"


if __name__ == "__main__":
    main()
