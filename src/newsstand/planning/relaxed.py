"""Planning and assignment at once, by a linear program and rounding (method `relaxed`).

The program of `radius` without its whole numbers tells how little traffic any plan can have. Its fractions are
rounded: the M nodes that are most of a storage become storages, topics go where they mostly were, as far as there
is room (a transportation problem), and local search does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, sparse

from newsstand.planning.cost import traffic
from newsstand.planning.improve import improve
from newsstand.planning.problem import Ints, Plan, Problem
from newsstand.planning.radius import Bools, Floats, Program, as_plan, program
from newsstand.planning.room import missing_replicas, replicas_with_room, storages_allowed
from newsstand.planning.tree_median import tree_median

TIME_LIMIT_S = 300.0


@dataclass(frozen=True)
class Bounded:
    """A plan, and what is proven of all plans. HiGHS proves to its tolerance, a millionth."""

    plan: Plan
    traffic: int
    """Of this plan, in units of demand times hops."""
    bound: float
    """No plan has less traffic than this."""

    @property
    def gap(self) -> float:
        """How much of this plan's traffic another plan might spare: 0 if this one is proven to be best."""
        return max(0.0, 1 - self.bound / self.traffic) if self.traffic else 0.0


@dataclass(frozen=True, eq=False)
class Fractions:
    """An optimum of the linear program."""

    values: Floats
    cost: float
    at_zero: Floats
    """By how much the cost rises at least for each unit that a variable rises from 0."""
    at_most: Floats
    """By how much it rises for each unit that a variable falls from its largest value."""


def relaxed(problem: Problem, time_limit_s: float = TIME_LIMIT_S) -> Bounded:
    """A rounded and improved plan, and the bound of the linear program.

    If the program is not solved in time, the plan is that of local search from any rounding, and the bound is
    `bound_of_topics`.
    """
    model = program(problem)
    fractions = relax(model, time_limit_s)
    plan = improve(problem, rounded(model, fractions.values if fractions else None))
    return bounded(problem, plan, model.traffic(fractions.cost) if fractions else bound_of_topics(problem))


def bound_of_topics(problem: Problem) -> float:
    """What traffic would be if no topic stood in another's way: a bound told quickly, on trees; else 0."""
    if not problem.topology.is_tree:
        return 0.0
    most = storages_allowed(problem)
    return float(
        sum(
            tree_median(problem.topology, demand, min(limits.most, most)).cost
            for demand, limits in zip(problem.demand, problem.replication, strict=True)
        )
    )


def bounded(problem: Problem, plan: Plan, bound: float) -> Bounded:
    """A plan with its traffic; the bound is at most that."""
    own = traffic(problem, plan.assignment)
    return Bounded(plan, own, min(bound, float(own)))


def relax(model: Program, time_limit_s: float) -> Fractions | None:
    """Solve the linear program, by an interior point and from there to a vertex; None if time is up."""
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
    """Round fractions to a plan that keeps all limits; without fractions, all nodes and topics are alike."""
    problem = model.problem
    values = np.zeros(len(model.cost)) if values is None else values
    chosen = _storages(problem, model.nodes, model.opened(values).round(9))
    wish = model.kept(values)[:, chosen]
    keeps = _transported(problem, model.nodes[chosen], wish)
    return as_plan(problem, {topic: model.nodes[chosen[row]] for topic, row in enumerate(keeps)})


def _storages(problem: Problem, nodes: Ints, opened: Floats) -> Ints:
    """The places in `nodes` of the M that are open most, or, as far as those lack room, the roomiest."""
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
    """Who keeps what: as near to the wishes as capacities allow, and rather more replicas than fewer."""
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
