"""Survival by simulation: compiled, and with the overlay's own brokers, side by side.

    .venv/bin/python benchmarks/survival_simulation.py [--messages 1000] [--rounds 3] [--size 3x10 ...]

Both simulate the same rules with the same random numbers, and must come to the same times. Then the compiled one
is timed on 200 times as many messages, for it would be over too soon. lambda_b = 1, lambda_c = 0.1, rho = 2; the
brokers are a line. CPU time of one process, the fastest of several rounds that take turns; compiling is not in it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from newsstand.caching.kernels import slots
from newsstand.caching.kernels.slots import SlotCacheRules, SurvivalObservations
from newsstand.lab.survival import overlay_simulator as survival_overlay
from newsstand.lab.survival.simulator import Simulation
from newsstand.model import OpportunisticPolicy
from newsstand.overlay.topology import line
from newsstand.survival.setting import SurvivalSetting

POLICIES = ("sel-sub-prt", "all-fld-nop")
SIZES = ("1x5", "3x10", "5x10")
MORE = 200


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--size", action="append", help="brokers x slots; may be repeated")
    options.add_argument("--messages", type=int, default=1000, help="that are watched with the overlay's brokers")
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    print("| brokers x slots | policy | overlay messages/s | compiled messages/s | ratio | same times |")
    print("|---|---|---|---|---|---|", flush=True)
    for size in given.size or SIZES:
        for policy in POLICIES:
            measure(size, policy, given.messages, given.rounds)


def measure(size: str, policy: str, messages: int, rounds: int) -> None:
    brokers, slots_each = map(int, size.split("x"))
    setting = SurvivalSetting(brokers, slots_each, 1.0, 0.1, 2.0, OpportunisticPolicy.parse(policy))
    simulation = Simulation(setting)
    rules, warm = simulation.rules, simulation.warm
    by_kernel = compiled(rules, warm, messages)
    by_brokers = with_brokers(rules, warm, messages)
    same = all(np.array_equal(one, other) for one, other in zip(by_kernel, by_brokers, strict=True))
    slow, quick = [], []
    for _ in range(rounds):
        slow.append(seconds(lambda: with_brokers(rules, warm, messages)))
        quick.append(seconds(lambda: compiled(rules, warm, MORE * messages)))
    overlay, kernel = (warm + messages) / min(slow), (warm + MORE * messages) / min(quick)
    cells = [
        size,
        policy,
        f"{overlay:,.0f}",
        f"{kernel:,.0f}",
        f"{kernel / overlay:,.0f}",
        "yes" if same else "NO",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


def compiled(rules: SlotCacheRules, warm: int, messages: int) -> SurvivalObservations:
    return slots.simulate(rules, slots.new_network_state(rules), np.random.default_rng(1), warm, messages)


def with_brokers(rules: SlotCacheRules, warm: int, messages: int) -> SurvivalObservations:
    return survival_overlay.simulate(rules, line(rules.brokers), np.random.default_rng(1), warm, messages)


def seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


if __name__ == "__main__":
    main()
