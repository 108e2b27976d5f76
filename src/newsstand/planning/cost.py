"""What an assignment costs: traffic and hops if everybody asks the nearest storage (Sourlas et al. 2011, eq. 1-3).

Requests for a topic that is kept nowhere are answered by nobody, and count in neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from newsstand.planning.problem import Hops, Plan, Problem

Assignment = Mapping[str, Sequence[int]]
"""For each topic the nodes that keep it, numbered from 1."""


@dataclass(frozen=True)
class Figures:
    """What a plan comes to."""

    traffic: float
    """ONT: requests times hops per second, of all topics."""
    mean_hops: float
    """Between a request and the storage that answers it."""
    traffic_of: Mapping[str, float]
    mean_hops_of: Mapping[str, float]


def nearest_hops(problem: Problem, nodes: Sequence[int]) -> Hops:
    """How far each node is from the nearest of some nodes, at least one, numbered from 1."""
    nearest: Hops = problem.hops[np.asarray(nodes) - 1].min(axis=0)
    return nearest


def topic_traffic(problem: Problem, topic: int, nodes: Sequence[int]) -> int:
    """C_t, eq. 2: a topic's demand times hops if these nodes keep it, in units of demand."""
    return int(problem.demand[topic] @ nearest_hops(problem, nodes).astype(np.int64)) if len(nodes) else 0


def traffic(problem: Problem, assignment: Assignment) -> int:
    """C, eq. 3, in units of demand."""
    return sum(topic_traffic(problem, topic, assignment[name]) for topic, name in enumerate(problem.topics))


def mean_hops(problem: Problem, assignment: Assignment) -> float:
    """Hops from a request to the storage that answers it, over all requests that are answered."""
    answered = sum(int(problem.totals[topic]) for topic, name in enumerate(problem.topics) if assignment[name])
    return _ratio(traffic(problem, assignment), answered)


def evaluate(problem: Problem, plan: Plan) -> Figures:
    """The figures of a plan, of all topics and of each."""
    units = [topic_traffic(problem, topic, plan.assignment[name]) for topic, name in enumerate(problem.topics)]
    return Figures(
        traffic=float(sum(units) * problem.unit),
        mean_hops=mean_hops(problem, plan.assignment),
        traffic_of={name: float(unit * problem.unit) for name, unit in zip(problem.topics, units, strict=True)},
        mean_hops_of={
            name: _ratio(unit, int(total))
            for name, unit, total in zip(problem.topics, units, problem.totals, strict=True)
        },
    )


def _ratio(part: int, whole: int) -> float:
    return float(Fraction(part, whole)) if whole else 0.0
