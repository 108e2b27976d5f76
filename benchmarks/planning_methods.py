"""How far planning methods are from the optimum, and how long they take (Sourlas et al. 2011, section 6.1.2).

    .venv/bin/python benchmarks/planning_methods.py --storages 20 --seeds 3

T = 10 topics of Zipf popularity (s_p = 1), wanted alike by all of N = 100 brokers in a random tree, SC = 5. Topics
are kept by weight, at least 4 times (M = 20) or twice (M = 10); with --free between that and M times, as a method
likes. The times are CPU seconds, without those of compiling.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import networkx
import numpy as np

from newsstand.overlay.topology import Topology
from newsstand.planning.methods import METHODS, PlanningRequest, run_method
from newsstand.planning.problem import Problem, ReplicationLimits, to_whole_units, traffic
from newsstand.planning.replication import replicas
from newsstand.planning.solvers.bounded_plans import without_limits
from newsstand.planning.solvers.greedy import possible_storages


def tree(kind: str, nodes: int, seed: int) -> Topology:
    """`attachment`: each broker joins one that is there already; `uniform`: any tree is as likely."""
    draw = np.random.default_rng(seed)
    if kind == "attachment":
        return Topology(nodes, [(int(draw.integers(1, node)), node) for node in range(2, nodes + 1)])
    pruefer = networkx.from_prufer_sequence(draw.integers(0, nodes, nodes - 2).tolist())
    return Topology(nodes, [(a + 1, b + 1) for a, b in pruefer.edges])


def problem_of(topology: Topology, storages: int, free: bool, topics: int = 10, capacity: int = 5) -> Problem:
    ranks = sum(1 / rank for rank in range(1, topics + 1))
    rates = [round(25 / rank / ranks, 6) for rank in range(1, topics + 1)]
    demand, unit = to_whole_units([[rate] * topology.nodes for rate in rates], topology.nodes)
    names = tuple(f"topic {rank}" for rank in range(1, topics + 1))
    limits = (ReplicationLimits(max(1, storages // 5), storages),) * topics
    problem = Problem(topology, names, demand, unit, limits, (capacity,) * topology.nodes, storages)
    return (
        problem
        if free
        else replace(problem, replication=tuple(ReplicationLimits(k, k) for k in replicas(problem)))
    )


def measured(problem: Problem, limit_s: float) -> Iterator[tuple[str, float, float, float]]:
    """Each method's mean hops, its proven gap, and its seconds."""
    requests = int(problem.totals.sum())
    for name in METHODS:
        if name in ("srl", "wrr", "swap"):
            run_method(name, PlanningRequest(problem, possible_storages(problem)))
        begun = time.process_time()
        answer = run_method(name, PlanningRequest(problem, possible_storages(problem), time_limit_s=limit_s))
        seconds = time.process_time() - begun
        hops = traffic(problem, answer.plan.assignment) / requests
        yield name, hops, np.nan if answer.gap is None else answer.gap, seconds
    begun = time.process_time()
    best = without_limits(problem, replicas(problem))
    yield "no limits", best.traffic / requests, best.gap, time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--storages", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trees", choices=["attachment", "uniform"], default="attachment")
    parser.add_argument("--free", action="store_true", help="let each method choose how often topics are kept")
    parser.add_argument("--limit", type=float, default=300, help="seconds for relaxed and for exact")
    options = parser.parse_args()
    print("seed method     mean hops  over exact  proven gap   CPU s")
    for seed in range(1, options.seeds + 1):
        problem = problem_of(tree(options.trees, options.nodes, seed), options.storages, options.free)
        rows = list(measured(problem, options.limit))
        optimum = next(hops for name, hops, *_ in rows if name == "exact")
        for name, hops, gap, seconds in rows:
            print(
                f"{seed:4} {name:10} {hops:9.4f} {hops / optimum - 1:11.2%} {gap:11.2%} {seconds:7.2f}", flush=True
            )


if __name__ == "__main__":
    main()
