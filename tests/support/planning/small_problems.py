"""Problems small enough to try every plan."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product

import numpy as np
from hypothesis import strategies as st

from newsstand.overlay.topology import Topology
from newsstand.planning.problem import Problem, ReplicationLimits, to_whole_units, traffic
from newsstand.planning.replication import storages_allowed
from support.planning.small_networks import networks


@st.composite
def problems(draw: st.DrawFn, least_capacity: int = 0) -> Problem:
    """Up to 6 nodes, 3 topics and 3 storages; replicas may lack room."""
    topology = draw(networks())
    nodes, topics = topology.nodes, draw(st.integers(1, 3))
    storages = draw(st.integers(1, min(3, nodes)))
    demand = draw(st.lists(st.integers(0, 4), min_size=nodes * topics, max_size=nodes * topics))
    demand[0] = 1
    limits = []
    for _ in range(topics):
        least = draw(st.integers(1, storages))
        limits.append(ReplicationLimits(least, draw(st.integers(least, storages))))
    capacity = draw(st.lists(st.integers(least_capacity, 3), min_size=nodes, max_size=nodes))
    return Problem(
        topology,
        tuple("abc"[:topics]),
        np.array(demand, np.int64).reshape(topics, nodes),
        Fraction(1),
        tuple(limits),
        tuple(capacity),
        storages,
    )


def assignments(problem: Problem) -> Iterator[dict[str, tuple[int, ...]]]:
    """Every assignment within M, SC and the most replicas of each topic, and with at least one of each."""
    nodes = range(1, problem.topology.nodes + 1)
    choices = [
        [keepers for count in range(1, limits.most + 1) for keepers in combinations(nodes, count)]
        for limits in problem.replication
    ]
    for chosen in product(*choices):
        assignment = dict(zip(problem.topics, chosen, strict=True))
        if fits(problem, assignment):
            yield assignment


def fits(problem: Problem, assignment: dict[str, tuple[int, ...]]) -> bool:
    """Within M and SC, and no topic twice in a storage."""
    load = np.bincount([node - 1 for keepers in assignment.values() for node in keepers], minlength=1)
    return (
        all(len(set(keepers)) == len(keepers) for keepers in assignment.values())
        and int((load > 0).sum()) <= storages_allowed(problem)
        and all(kept <= room for kept, room in zip(load, problem.capacity, strict=False))
    )


def missing(problem: Problem, assignment: dict[str, tuple[int, ...]]) -> int:
    return sum(
        max(0, limits.least - len(assignment[name]))
        for name, limits in zip(problem.topics, problem.replication, strict=True)
    )


def best(problem: Problem) -> tuple[int, int] | None:
    """How many replicas are missing at least, and the least traffic then; None if a topic is kept nowhere."""
    return min(((missing(problem, one), traffic(problem, one)) for one in assignments(problem)), default=None)


def problem_of(
    topology: Topology, demand: list[list[int]], k: int, publishing: list[int] | None = None
) -> Problem:
    rows, unit = to_whole_units(demand, topology.nodes)
    return Problem(
        topology,
        tuple("abcdefgh"[: len(demand)]),
        rows,
        unit,
        (ReplicationLimits(k, k),) * len(demand),
        (len(demand),) * topology.nodes,
        publishing=None if publishing is None else np.array(publishing),
    )
