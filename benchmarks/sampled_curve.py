"""A curve of 20 sizes from a sample of the pages, beside exact replays of the same sizes.

    .venv/bin/python benchmarks/sampled_curve.py [--trace twitter] [--policy lru gdsf] [--sizes 20]

Both sides replay a trace that is in memory and numbered. *exact* is the CPU time of one exact replay of one
size, *curve* that of all sizes by the sample, medians. The target is a curve in less time than four exact
replays. *off* is the mean difference between the estimated and the exact hit ratio, *error* the mean error that
the estimate states, *within* the share of the sizes at which the difference is within the error.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import traces

from newsstand.lab.pages.local import simulate
from newsstand.lab.pages.replay import PolicyRun, ReplayJob
from newsstand.lab.pages.sweep import curve_capacities, plan
from newsstand.workload.trace.columns import TraceColumns
from newsstand.workload.trace.sources import read_columns

TRACES = {"synthetic": traces.synthetic, "twitter": traces.twitter}
ROUNDS = 3


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--trace", nargs="+", choices=TRACES, default=list(TRACES))
    options.add_argument("--policy", nargs="+", default=["lru", "sieve", "gdsf", "s3-fifo"])
    options.add_argument("--sizes", type=int, default=20)
    asked = options.parse_args()
    titles = f"{'exact s':>8} {'curve s':>8} {'ratio':>6} {'off':>7} {'error':>7} {'within':>7}"
    print(f"{'trace':10} {'policy':10} {titles}")
    for name in asked.trace:
        trace = read_columns(TRACES[name]())
        for policy in asked.policy:
            print(f"{name:10} {policy:10} {measured(trace, policy, asked.sizes)}", flush=True)


def measured(trace: TraceColumns, policy: str, sizes: int) -> str:
    """Return the row of a policy."""
    one = plan([policy], ["0.05"], [2.0])
    wanted, job = plan([policy], curve_capacities(sizes), [2.0])
    estimate = wanted, replace(job, sample=None)
    simulate(trace, *one)  # loads the kernels
    exact_s, curve_s = zip(*((timed(trace, *one), timed(trace, *estimate)) for _ in range(ROUNDS)), strict=True)
    exact, curve = statistics.median(exact_s), statistics.median(curve_s)
    found, wanted_ratios = simulate(trace, *estimate), simulate(trace, wanted, job)
    off = np.abs(column(found, "hit_ratio") - column(wanted_ratios, "hit_ratio"))
    error = column(found, "hit_ratio_error")
    return (
        f"{exact:8.2f} {curve:8.2f} {curve / exact:6.1f} {off.mean():7.4f} {error.mean():7.4f} "
        f"{np.mean(off <= error):7.0%}"
    )


def timed(trace: TraceColumns, wanted: Sequence[PolicyRun], job: ReplayJob) -> float:
    """Return the CPU seconds of a replay."""
    start = time.process_time()
    simulate(trace, wanted, job)
    return time.process_time() - start


def column(answers: Sequence[dict[str, object]], name: str) -> np.ndarray:
    return np.array([float(str(answer[name])) for answer in answers])


if __name__ == "__main__":
    main()
