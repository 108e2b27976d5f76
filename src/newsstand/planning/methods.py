"""The planning methods, by name: assignments of topics to chosen storages, and calls of solvers.

Storages are chosen and topics assigned as in Sourlas et al. (2011, sections 5.3, 5.5 and 6). Among equal nodes the
lowest number comes first, among topics of equal weight the first in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from newsstand.planning.problem import Ints, Plan, Problem, nearest_hops
from newsstand.planning.replication import (
    as_many_as_needed,
    least_storages,
    relative_weights,
    replicas,
    replicas_with_room,
)
from newsstand.planning.solvers.greedy import possible_for, topology_arrays

DRAWS = 20
"""Attempts to draw storages for a topic that leave room for the others."""


def weighted_sum(problem: Problem, possible: Ints) -> list[int]:
    """Return the sum of PS of all topics, weighted by their demand, by which SBV is chosen (steps 2 and 3)."""
    totals = [int(total) for total in problem.totals]
    return [sum(map(int.__mul__, totals, map(int, column))) for column in possible.T]


def storage_brokers(problem: Problem, possible: Ints) -> tuple[int, ...]:
    """SBV: the M nodes that were picked most often, most often first (step 3)."""
    return as_many_as_needed(problem, _by_count(weighted_sum(problem, possible)))


def serial(problem: Problem, possible: Ints) -> Plan:
    """`srl`: topics get all their storages one topic after the other, heaviest first (step 4)."""
    wanted = replicas(problem)
    turns = [(topic, wanted[topic]) for topic in problem.by_weight]
    return _assigned(problem, possible, turns)


def weighted_round_robin(problem: Problem, possible: Ints) -> Plan:
    """`wrr`: topics go round, heaviest first, and take up to rw storages each time (section 5.5)."""
    return _assigned(problem, possible, list(rounds(problem)))


def rounds(problem: Problem) -> Iterator[tuple[int, int]]:
    """Yield the topic of each turn and the storages that it takes: k^r = min{rw, k - those that it has}."""
    left = list(replicas(problem))
    weights = relative_weights(problem)
    while any(left):
        for topic in problem.by_weight:
            if share := min(weights[topic], left[topic]):
                left[topic] -= share
                yield topic, share


def greedy(problem: Problem, possible: Ints) -> Plan:
    """`grd_opt`: each topic in the nodes that were picked most often for it, disregarding M and SC (section 6)."""
    wanted = replicas(problem)
    chosen = [_by_count(counts.tolist())[: wanted[topic]] for topic, counts in enumerate(possible)]
    storages = dict.fromkeys(node for topic in problem.by_weight for node in chosen[topic])
    return _plan(problem, tuple(storages), chosen, possible)


def random(problem: Problem, possible: Ints, seed: int) -> Plan:
    """`rnd`: storages for the total demand as if of one topic, and topics in any of these storages (section 6).

    A draw that leaves other topics without room is repeated; after `DRAWS` attempts the topic gets the storages
    with most room.
    """
    number = problem.storages or least_storages(problem)
    counts = possible_for(topology_arrays(problem), problem.demand.sum(axis=0), number, problem.publishing)
    storages = as_many_as_needed(problem, _by_count(counts.tolist()))
    generator = np.random.Generator(np.random.Philox(seed))
    room = {node: problem.capacity[node - 1] for node in storages}
    chosen: list[list[int]] = [[] for _ in problem.topics]
    wanted = replicas(problem)
    for turn, topic in enumerate(problem.by_weight, 1):
        others = [wanted[other] for other in problem.by_weight[turn:]]
        chosen[topic] = _drawn(generator, room, wanted[topic], others)
        for node in chosen[topic]:
            room[node] -= 1
    return _plan(problem, storages, chosen, possible)


def _drawn(generator: np.random.Generator, room: dict[int, int], wanted: int, others: Sequence[int]) -> list[int]:
    """Draw storages with room that leave as much room as possible for the replicas of the others."""
    free = [node for node in room if room[node]]

    def placeable(taken: Sequence[int]) -> int:
        return replicas_with_room(others, [left - (node in taken) for node, left in room.items()])

    roomiest = sorted(free, key=lambda node: -room[node])[:wanted]
    for _ in range(DRAWS):
        drawn = [free[place] for place in generator.permutation(len(free))[:wanted]]
        if placeable(drawn) == placeable(roomiest):
            return drawn
    return roomiest


def _assigned(problem: Problem, possible: Ints, turns: Sequence[tuple[int, int]]) -> Plan:
    """Let topics choose storages turn by turn, as long as there is room (step 4)."""
    storages = storage_brokers(problem, possible)
    load = dict.fromkeys(storages, 0)
    chosen: list[list[int]] = [[] for _ in problem.topics]
    for topic, share in turns:
        for _ in range(share):
            free = [
                node for node in storages if load[node] < problem.capacity[node - 1] and node not in chosen[topic]
            ]
            if free:
                node = _preferred(problem, possible[topic], topic, free, chosen[topic])
                chosen[topic].append(node)
                load[node] += 1
    return _plan(problem, storages, chosen, possible)


def _preferred(problem: Problem, counts: Ints, topic: int, free: Sequence[int], chosen: Sequence[int]) -> int:
    """Return the storage picked most often for a topic; if none was, the one that leaves the least traffic."""
    best = min(free, key=lambda node: (-int(counts[node - 1]), node))
    if counts[best - 1]:
        return best
    near = problem.hops[np.array(free) - 1]
    if chosen:
        near = np.minimum(near, nearest_hops(problem, chosen))
    traffic = (near.astype(np.int64) @ problem.demand[topic]).tolist()
    return min(zip(traffic, free, strict=True))[1]


def _by_count(counts: Sequence[int]) -> list[int]:
    """Return all nodes, those with the highest count first."""
    return sorted(range(1, len(counts) + 1), key=lambda node: (-counts[node - 1], node))


def _plan(problem: Problem, storages: tuple[int, ...], chosen: Sequence[Sequence[int]], possible: Ints) -> Plan:
    missing = [k - len(nodes) for k, nodes in zip(replicas(problem), chosen, strict=True)]
    return Plan(
        storages,
        {name: tuple(nodes) for name, nodes in zip(problem.topics, chosen, strict=True)},
        {name: counts.tolist() for name, counts in zip(problem.topics, possible, strict=True)},
        {name: number for name, number in zip(problem.topics, missing, strict=True) if number},
    )


TIME_LIMIT_S = 300.0


@dataclass(frozen=True)
class PlanningRequest:
    """The input of a method: the problem, PS of all topics, and options of some methods."""

    problem: Problem
    possible: Ints
    seed: int = 0
    time_limit_s: float = TIME_LIMIT_S


@dataclass(frozen=True)
class PlanningResult:
    """The output of a method."""

    plan: Plan
    gap: float | None = None
    """The share of the traffic that another plan might save, if that is proven."""


Method = Callable[[PlanningRequest], PlanningResult]


def run_method(method: str, request: PlanningRequest) -> PlanningResult:
    """Run the method of a name in `METHODS`."""
    answer = METHODS[method](request)
    possible = dict(zip(request.problem.topics, request.possible.tolist(), strict=True))
    return replace(answer, plan=replace(answer.plan, possible=possible))


def _swap(request: PlanningRequest) -> PlanningResult:
    from newsstand.planning.solvers.local_search import improve

    start = weighted_round_robin(request.problem, request.possible)
    return PlanningResult(improve(request.problem, start))


def _relaxed(request: PlanningRequest) -> PlanningResult:
    from newsstand.planning.solvers.bounded_plans import round_relaxation

    found = round_relaxation(request.problem, request.time_limit_s)
    return PlanningResult(found.plan, found.gap)


def _exact(request: PlanningRequest) -> PlanningResult:
    from newsstand.planning.solvers.bounded_plans import exact

    found = exact(request.problem, request.time_limit_s)
    return PlanningResult(found.plan, found.gap)


METHODS: dict[str, Method] = {
    "srl": lambda given: PlanningResult(serial(given.problem, given.possible)),
    "wrr": lambda given: PlanningResult(weighted_round_robin(given.problem, given.possible)),
    "random": lambda given: PlanningResult(random(given.problem, given.possible, given.seed)),
    "greedy": lambda given: PlanningResult(greedy(given.problem, given.possible)),
    "swap": _swap,
    "relaxed": _relaxed,
    "exact": _exact,
}
