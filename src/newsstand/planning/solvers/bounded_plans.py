"""Plans with a bound on what another plan can save: by rounding (`relaxed`), and by branch and bound (`exact`).

The linear relaxation of the program in `milp` is a lower bound of the traffic of any plan. `relaxed` rounds its
fractions: the M nodes with the largest values become storages, topics go to the nodes with their largest values as
far as there is room (a transportation problem), and local search improves the plan.

`exact` begins with that plan (Sourlas et al. 2011, eq. 4). HiGHS proves that no other plan has less traffic or, at
the time limit, how much less another plan can have. Variables that by their reduced cost no better plan can change
are fixed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, sparse

from newsstand.planning.problem import Ints, Plan, Problem, ReplicationLimits, traffic
from newsstand.planning.replication import missing_replicas, replicas_with_room, storages_allowed
from newsstand.planning.solvers.local_search import improve
from newsstand.planning.solvers.milp import Bools, Floats, Program, as_plan, program
from newsstand.planning.solvers.tree_median import tree_median

TIME_LIMIT_S = 300.0


@dataclass(frozen=True)
class BoundedPlan:
    """A plan, and a bound for all plans, to the tolerance of HiGHS, a millionth."""

    plan: Plan
    traffic: int
    """Of this plan, in units of demand times hops."""
    bound: float
    """No plan has less traffic than this."""

    @property
    def gap(self) -> float:
        """The share of this plan's traffic that another plan might save: 0 if this one is proven to be best."""
        return max(0.0, 1 - self.bound / self.traffic) if self.traffic else 0.0


@dataclass(frozen=True, eq=False)
class Fractions:
    """An optimum of the linear program."""

    values: Floats
    cost: float
    at_zero: Floats
    """The least rise of the cost for each unit that a variable rises from 0."""
    at_most: Floats
    """The rise of the cost for each unit that a variable falls from its largest value."""


def round_relaxation(problem: Problem, time_limit_s: float = TIME_LIMIT_S) -> BoundedPlan:
    """Return a rounded and improved plan, and the bound of the linear program.

    If the program is not solved in time, the plan is that of local search from any rounding, and the bound is
    `bound_of_topics`.
    """
    model = program(problem)
    fractions = relax(model, time_limit_s)
    plan = improve(problem, rounded(model, fractions.values if fractions else None))
    return bounded_plan(problem, plan, model.traffic(fractions.cost) if fractions else bound_of_topics(problem))


def bound_of_topics(problem: Problem) -> float:
    """Return the traffic if topics did not compete for storages, a quick bound, on trees; else 0."""
    if not problem.topology.is_tree:
        return 0.0
    most = storages_allowed(problem)
    return float(
        sum(
            tree_median(problem.topology, demand, min(limits.most, most)).cost
            for demand, limits in zip(problem.demand, problem.replication, strict=True)
        )
    )


def bounded_plan(problem: Problem, plan: Plan, bound: float) -> BoundedPlan:
    """Return a plan with its traffic; the bound is at most that."""
    own = traffic(problem, plan.assignment)
    return BoundedPlan(plan, own, min(bound, float(own)))


def relax(model: Program, time_limit_s: float) -> Fractions | None:
    """Solve the linear program by an interior point and a crossover to a vertex; None at the time limit."""
    if time_limit_s <= 0:
        return None
    at_least, at_most = np.isfinite(model.lower), np.isfinite(model.upper)
    solved = optimize.linprog(
        model.cost,
        sparse.vstack([model.rows[at_most], -model.rows[at_least]], format="csr"),
        np.concatenate([model.upper[at_most], -model.lower[at_least]]),
        bounds=np.stack([np.zeros_like(model.most), model.most], axis=1),
        method="highs-ipm",
        options={"time_limit": time_limit_s},
    )
    if solved.status != 0:
        return None
    return Fractions(solved.x, float(solved.fun), solved.lower.marginals, -solved.upper.marginals)


def rounded(model: Program, values: Floats | None) -> Plan:
    """Round fractions to a plan within all limits; without fractions, all nodes and topics are equal."""
    problem = model.problem
    values = np.zeros(len(model.cost)) if values is None else values
    chosen = _storages(problem, model.nodes, model.opened(values).round(9))
    wish = model.kept(values)[:, chosen]
    keeps = _transported(problem, model.nodes[chosen], wish)
    return as_plan(problem, {topic: model.nodes[chosen[row]] for topic, row in enumerate(keeps)})


def _storages(problem: Problem, nodes: Ints, opened: Floats) -> Ints:
    """Return the places in `nodes` of the M with the largest values, or, if these lack room, with most room."""
    capacity = np.array(problem.capacity)[nodes]
    least = [limits.least for limits in problem.replication]
    reachable = sum(least) - missing_replicas(problem)
    by_wish = list(np.lexsort((np.arange(len(nodes)), -capacity, -opened)))
    by_room = list(np.lexsort((np.arange(len(nodes)), -opened, -capacity)))
    count = storages_allowed(problem)
    for roomy in range(count + 1):
        first = by_room[:roomy]
        chosen = first + [node for node in by_wish if node not in set(first)][: count - roomy]
        if replicas_with_room(least, [int(capacity[node]) for node in chosen]) == reachable:
            break
    return np.sort(np.array(chosen, np.int64))


def _transported(problem: Problem, storages: Ints, wish: Floats) -> Bools:
    """Return the keepers of each topic, as near to the wishes as capacities allow, with as many as possible."""
    topics, count = wish.shape
    missing = missing_replicas(problem)
    least = np.array([limits.least for limits in problem.replication])
    most = np.array([limits.most for limits in problem.replication])
    of_topic = sparse.kron(sparse.eye_array(topics), np.ones((1, count)), format="csr")
    of_storage = sparse.kron(np.ones((1, topics)), sparse.eye_array(count), format="csr")
    total = least.sum() - missing
    solved = optimize.milp(
        -(wish + 0.001).ravel(),
        integrality=np.ones(topics * count),
        bounds=optimize.Bounds(0, 1),
        constraints=[
            optimize.LinearConstraint(of_topic, np.ones(topics) if missing else least, least if missing else most),
            optimize.LinearConstraint(of_storage, 0, np.array(problem.capacity)[storages]),
            optimize.LinearConstraint(np.ones((1, topics * count)), total, total if missing else np.inf),
        ],
    )
    keeps: Bools = solved.x.reshape(topics, count) > 0.5
    return keeps


TOLERANCE = 1e-6
"""The precision of HiGHS for costs, which are around the number of nodes."""


def exact(
    problem: Problem, time_limit_s: float = TIME_LIMIT_S, clock: Callable[[], float] = time.monotonic
) -> BoundedPlan:
    """Return the best plan within M and SC, each topic kept as often within its limits as is best.

    At the time limit, return the best plan found with its gap. If there is no room for all replicas, keep as many
    as fit, at least one of each topic, and list the topics that are short. Raise `BadOption` if there is no room
    for one replica of each topic.
    """
    until = clock() + time_limit_s
    model = program(problem)
    fractions = relax(model, time_limit_s)
    start = improve(problem, rounded(model, fractions.values if fractions else None))
    if fractions is None:
        return bounded_plan(problem, start, bound_of_topics(problem))
    return _branch_and_bound(model, fractions, start, until - clock())


def without_limits(problem: Problem, replicas: Sequence[int], time_limit_s: float = TIME_LIMIT_S) -> BoundedPlan:
    """Return the best nodes for each topic by itself, disregarding SC and M: what `grd_opt` approximates.

    On trees by dynamic programming, else by the program of each topic, with an equal share of the time.
    """
    if problem.topology.is_tree:
        medians = [
            tree_median(problem.topology, demand, count)
            for demand, count in zip(problem.demand, replicas, strict=True)
        ]
        keepers = {topic: np.array(median.nodes) - 1 for topic, median in enumerate(medians)}
        plan = as_plan(problem, keepers)
        return bounded_plan(problem, plan, float(sum(median.cost for median in medians)))
    alone = [
        exact(_only(problem, topic, count), time_limit_s / len(replicas)) for topic, count in enumerate(replicas)
    ]
    assignment = {name: one.plan.assignment[name] for name, one in zip(problem.topics, alone, strict=True)}
    used = sorted({node for nodes in assignment.values() for node in nodes})
    return bounded_plan(problem, Plan(tuple(used), assignment), sum(one.bound for one in alone))


def _branch_and_bound(model: Program, fractions: Fractions, start: Plan, time_limit_s: float) -> BoundedPlan:
    problem = model.problem
    cost = model.cost_of(traffic(problem, start.assignment))
    if cost <= fractions.cost + TOLERANCE:
        return bounded_plan(problem, start, float(traffic(problem, start.assignment)))
    low, high = _worth_trying(model, fractions, cost)
    solved = optimize.milp(
        model.cost,
        integrality=model.integral,
        bounds=optimize.Bounds(low, high),
        constraints=optimize.LinearConstraint(model.rows, model.lower, model.upper),
        options={"time_limit": max(0.0, time_limit_s), "mip_rel_gap": 0.0},
    )
    found = start
    if solved.x is not None:
        found = min(start, model.plan(solved.x), key=lambda plan: traffic(problem, plan.assignment))
    own = float(traffic(problem, found.assignment))
    if solved.status in (0, 2):
        return bounded_plan(problem, found, own)
    proven = fractions.cost if solved.mip_dual_bound is None else max(fractions.cost, solved.mip_dual_bound)
    return bounded_plan(problem, found, model.traffic(proven))


def _worth_trying(model: Program, fractions: Fractions, cost: float) -> tuple[Floats, Floats]:
    """Return bounds of variables, which fix those that cost more than the known plan if they change.

    If no solution is left, the known plan is best.
    """
    spare = cost - fractions.cost + TOLERANCE
    low = np.where(model.integral & (fractions.at_most > spare), model.most, 0.0)
    high = np.where(model.integral & (fractions.at_zero > spare), 0.0, model.most)
    return low, high


def _only(problem: Problem, topic: int, count: int) -> Problem:
    """Return the problem of one topic, with room everywhere."""
    return replace(
        problem,
        topics=problem.topics[topic : topic + 1],
        demand=problem.demand[topic : topic + 1],
        replication=(ReplicationLimits(count, count),),
        capacity=(1,) * problem.topology.nodes,
        storages=count,
    )
