"""Sections 5.1 and 5.2 of Sourlas et al. 2011 as plain loops: what compiled code has to agree with."""

from __future__ import annotations

from newsstand.planning.problem import Problem
from newsstand.planning.replication import replicas


def plain_picks(problem: Problem, topic: int, server: int, wanted: int) -> tuple[int, ...]:
    """Greedy for one assumed server: nodes from 1, in the order picked."""
    hops, demand = problem.hops.tolist(), problem.demand[topic].tolist()
    nodes = range(len(demand))
    near = list(hops[server - 1])
    picks: list[int] = []
    for _ in range(min(wanted, len(demand) - 1)):
        cheapest, best = None, -1
        for node in nodes:
            if node + 1 != server and node + 1 not in picks:
                cost = 0
                for other in nodes:
                    cost += demand[other] * min(near[other], hops[node][other])
                if cheapest is None or cost < cheapest:
                    cheapest, best = cost, node
        picks.append(best + 1)
        near = [min(near[other], hops[best][other]) for other in nodes]
    return tuple(picks)


def plain_possible(problem: Problem) -> list[list[int]]:
    """Modified greedy: PS of every topic."""
    nodes = problem.topology.nodes
    publishing = [1] * nodes if problem.publishing is None else problem.publishing.tolist()
    counts = [[0] * nodes for _ in problem.topics]
    for topic, wanted in enumerate(replicas(problem)):
        for server in range(1, nodes + 1):
            for pick in plain_picks(problem, topic, server, wanted):
                counts[topic][pick - 1] += publishing[server - 1]
    return counts
