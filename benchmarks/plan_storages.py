"""Modified greedy, compiled, side by side with three plain loops, and alone on a large network.

    .venv/bin/python benchmarks/plan_storages.py

Times are CPU seconds of all threads, without those of compiling; `wall` is what a user waits.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import networkx
import numpy as np

from newsstand.overlay.topology import Topology
from newsstand.planning.problem import Problem, ReplicationLimits, to_whole_units
from newsstand.planning.solvers.greedy import possible_storages

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.planning.plain_greedy import plain_possible


def _attached(nodes: int) -> networkx.Graph:
    """Each broker joins any of those that are there already."""
    draw = np.random.default_rng(1)
    return networkx.Graph((node, int(draw.integers(0, node))) for node in range(1, nodes))


NETWORKS: dict[str, Callable[[int], networkx.Graph]] = {
    "recursive tree": _attached,
    "uniform tree": lambda nodes: networkx.random_labeled_tree(nodes, seed=1),
    "scale-free graph": lambda nodes: networkx.barabasi_albert_graph(nodes, 2, seed=1),
}


def problem_of(network: str, nodes: int, topics: int, replicas: int) -> Problem:
    graph = NETWORKS[network](nodes)
    demand, unit = to_whole_units(np.random.default_rng(2).integers(0, 50, (topics, nodes)).tolist(), nodes)
    topology = Topology(nodes, [(a + 1, b + 1) for a, b in graph.edges])
    names = tuple(f"topic {number}" for number in range(topics))
    return Problem(
        topology, names, demand, unit, (ReplicationLimits(replicas, replicas),) * topics, (topics,) * nodes
    )


def timed(work: Callable[[], list[list[int]]]) -> tuple[list[list[int]], float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    found = work()
    return found, time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200, help="side by side with plain loops")
    parser.add_argument("--topics", type=int, default=2)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--large-nodes", type=int, default=2000, help="compiled only; 0 for none")
    parser.add_argument("--large-topics", type=int, default=100)
    parser.add_argument("--large-networks", nargs="*", default=["recursive tree", "uniform tree"])
    asked = parser.parse_args()
    for network in NETWORKS:
        possible_storages(problem_of(network, 8, 2, 2))
    print(
        "| network | brokers | topics | k | plain CPU s | compiled CPU s | ratio |\n|---|---|---|---|---|---|---|"
    )
    for network in NETWORKS:
        problem = problem_of(network, asked.nodes, asked.topics, asked.replicas)
        _ = problem.hops
        plain, slow, _ = timed(lambda: plain_possible(problem))  # noqa: B023
        found, quick, _ = timed(lambda: possible_storages(problem).tolist())  # noqa: B023
        assert found == plain, "compiled greedy picked something else"
        row = (
            network,
            asked.nodes,
            asked.topics,
            asked.replicas,
            f"{slow:.2f}",
            f"{quick:.4f}",
            f"{slow / quick:.0f}x",
        )
        print("|", " | ".join(map(str, row)), "|", flush=True)
    if asked.large_nodes:
        print("\n| network | brokers | topics | k | compiled CPU s | wall s |\n|---|---|---|---|---|---|")
        for network in asked.large_networks:
            problem = problem_of(network, asked.large_nodes, asked.large_topics, asked.replicas)
            _, cpu, wall = timed(lambda: possible_storages(problem).tolist())  # noqa: B023
            row = (network, asked.large_nodes, asked.large_topics, asked.replicas, f"{cpu:.0f}", f"{wall:.0f}")
            print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main()
