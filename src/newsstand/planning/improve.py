"""Local search: from a plan to one that no small change makes better (method `swap`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from newsstand.planning.neighbourhood import Move, Neighbourhood
from newsstand.planning.problem import Plan, Problem
from newsstand.planning.radius import as_plan


def improve(problem: Problem, plan: Plan) -> Plan:
    """Make the best move of the neighbourhood until none spares traffic; within M, SC and the limits of topics.

    Storages of the answer are the nodes that keep something. What the plan had stays in its order, and what is new
    follows in ascending order.
    """
    neighbourhood = Neighbourhood(problem, plan)
    for _ in descent(neighbourhood):
        pass
    found = as_plan(problem, {topic: np.flatnonzero(row) for topic, row in enumerate(neighbourhood.keeps)})
    return replace(
        found,
        storages=_in_order(plan.storages, found.storages),
        assignment={name: _in_order(plan.assignment[name], now) for name, now in found.assignment.items()},
        possible=plan.possible,
    )


def _in_order(before: tuple[int, ...], now: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(now, key=lambda node: before.index(node) if node in before else len(before)))


def descent(neighbourhood: Neighbourhood) -> Iterator[Move]:
    """The moves down to a local optimum, each after it is made."""
    while move := neighbourhood.best():
        neighbourhood.make(move)
        yield move
