"""The plan with the least traffic, proven by branch and bound (method `exact`; Sourlas et al. 2011, eq. 4).

HiGHS proves that no other plan has less traffic, or, if time is up, how much less it might have at most. Before,
`relaxed` gives a plan and a bound; what cannot be part of any better plan by its reduced cost is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy import optimize

from newsstand.planning.cost import traffic
from newsstand.planning.improve import improve
from newsstand.planning.problem import Limits, Plan, Problem
from newsstand.planning.radius import Floats, Program, as_plan, program
from newsstand.planning.relaxed import TIME_LIMIT_S, Bounded, Fractions, bound_of_topics, bounded, relax, rounded
from newsstand.planning.tree_median import tree_median

TOLERANCE = 1e-6
"""Of costs, which are around the number of nodes: what HiGHS is exact to."""


def exact(
    problem: Problem, time_limit_s: float = TIME_LIMIT_S, clock: Callable[[], float] = time.monotonic
) -> Bounded:
    """The best plan within M and SC, each topic kept as often within its limits as is best.

    If time is up, the best plan found, with its gap. If there is no room for all replicas, as many as find room
    are kept, at least one of each topic, and the answer says which are short; `BadOption` if there is not even
    room for one of each.
    """
    until = clock() + time_limit_s
    model = program(problem)
    fractions = relax(model, time_limit_s)
    start = improve(problem, rounded(model, fractions.values if fractions else None))
    if fractions is None:
        return bounded(problem, start, bound_of_topics(problem))
    return _branch_and_bound(model, fractions, start, until - clock())


def without_limits(problem: Problem, replicas: Sequence[int], time_limit_s: float = TIME_LIMIT_S) -> Bounded:
    """The best nodes for each topic by itself, so many, disregarding SC and M: what `grd_opt` is near to.

    On trees by dynamic programming, else by the program of each topic, with an equal share of the time.
    """
    if problem.topology.is_tree:
        medians = [
            tree_median(problem.topology, demand, count)
            for demand, count in zip(problem.demand, replicas, strict=True)
        ]
        keepers = {topic: np.array(median.nodes) - 1 for topic, median in enumerate(medians)}
        plan = as_plan(problem, keepers)
        return bounded(problem, plan, float(sum(median.cost for median in medians)))
    alone = [
        exact(_only(problem, topic, count), time_limit_s / len(replicas)) for topic, count in enumerate(replicas)
    ]
    assignment = {name: one.plan.assignment[name] for name, one in zip(problem.topics, alone, strict=True)}
    used = sorted({node for nodes in assignment.values() for node in nodes})
    return bounded(problem, Plan(tuple(used), assignment), sum(one.bound for one in alone))


def _branch_and_bound(model: Program, fractions: Fractions, start: Plan, time_limit_s: float) -> Bounded:
    problem = model.problem
    cost = model.cost_of(traffic(problem, start.assignment))
    if cost <= fractions.cost + TOLERANCE:
        return bounded(problem, start, float(traffic(problem, start.assignment)))
    low, high = _worth_trying(model, fractions, cost)
    solved = optimize.milp(
        model.cost,
        integrality=model.whole,
        bounds=optimize.Bounds(low, high),
        constraints=optimize.LinearConstraint(model.rows, model.lower, model.upper),
        options={"time_limit": max(0.0, time_limit_s), "mip_rel_gap": 0.0},
    )
    found = start
    if solved.x is not None:
        found = min(start, model.plan(solved.x), key=lambda plan: traffic(problem, plan.assignment))
    own = float(traffic(problem, found.assignment))
    if solved.status in (0, 2):
        return bounded(problem, found, own)
    proven = fractions.cost if solved.mip_dual_bound is None else max(fractions.cost, solved.mip_dual_bound)
    return bounded(problem, found, model.traffic(proven))


def _worth_trying(model: Program, fractions: Fractions, cost: float) -> tuple[Floats, Floats]:
    """Bounds of variables: those that are fixed cost more than what is known if they are not.

    If nothing is left, then the plan that is known is best.
    """
    spare = cost - fractions.cost + TOLERANCE
    low = np.where(model.whole & (fractions.at_most > spare), model.most, 0.0)
    high = np.where(model.whole & (fractions.at_zero > spare), 0.0, model.most)
    return low, high


def _only(problem: Problem, topic: int, count: int) -> Problem:
    """The problem of one topic, with room everywhere."""
    return replace(
        problem,
        topics=problem.topics[topic : topic + 1],
        demand=problem.demand[topic : topic + 1],
        replication=(Limits(count, count),),
        capacity=(1,) * problem.topology.nodes,
        storages=count,
    )
