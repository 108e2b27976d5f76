"""Local search: from a plan to one that no small change makes better (method `swap`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from newsstand.planning.neighbourhood import Move, Neighbourhood
from newsstand.planning.problem import Plan, Problem
from newsstand.planning.radius import as_plan


def improve(problem: Problem, plan: Plan) -> Plan:
    """Make the best move of the neighbourhood until none spares traffic; as many replicas, within M and SC.

    Storages of the answer are the nodes that keep something, and like keepers in ascending order.
    """
    neighbourhood = Neighbourhood(problem, plan)
    for _ in descent(neighbourhood):
        pass
    keepers = {topic: np.flatnonzero(row) for topic, row in enumerate(neighbourhood.keeps)}
    return replace(as_plan(problem, keepers), possible=plan.possible)


def descent(neighbourhood: Neighbourhood) -> Iterator[Move]:
    """The moves down to a local optimum, each after it is made."""
    while move := neighbourhood.best():
        neighbourhood.make(move)
        yield move
