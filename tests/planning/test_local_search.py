from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.planning.small_problems import assignments, fits, problems
from support.profiles import examples

from newsstand.overlay.topology import Topology
from newsstand.planning.problem import Plan, Problem, ReplicationLimits, traffic
from newsstand.planning.solvers.local_search import Neighbourhood, descent, improve

Assignment = dict[str, tuple[int, ...]]


@st.composite
def planned(draw: st.DrawFn) -> tuple[Problem, Plan]:
    """A problem, and some plan of it, good or bad."""
    problem = draw(problems())
    possible = list(assignments(problem))
    assume(possible)
    assignment = draw(st.sampled_from(possible))
    used = {node for keepers in assignment.values() for node in keepers}
    return problem, Plan(tuple(sorted(used)), assignment)


@settings(max_examples=examples(60))
@given(planned())
def test_local_search_move_saves_what_it_claims(case: tuple[Problem, Plan]) -> None:
    problem, plan = case
    neighbourhood = Neighbourhood(problem, plan)
    before = traffic(problem, plan.assignment)
    for move in descent(neighbourhood):
        now = {
            name: tuple(int(node) + 1 for node in row.nonzero()[0])
            for name, row in zip(problem.topics, neighbourhood.keeps, strict=True)
        }
        assert fits(problem, now)
        assert traffic(problem, now) == before + move.rise < before
        before += move.rise


@settings(max_examples=examples(60))
@given(planned())
def test_local_search_ends_at_local_optimum(case: tuple[Problem, Plan]) -> None:
    problem, plan = case
    answer = improve(problem, plan)
    own = traffic(problem, answer.assignment)
    assert own <= traffic(problem, plan.assignment)
    assert own <= min((traffic(problem, one) for one in neighbours(problem, dict(answer.assignment))), default=own)
    for name, limits in zip(problem.topics, problem.replication, strict=True):
        assert len(answer.assignment[name]) >= min(limits.least, len(plan.assignment[name]))
        assert len(answer.assignment[name]) <= limits.most


@settings(max_examples=examples(60))
@given(planned())
def test_local_search_makes_best_move(case: tuple[Problem, Plan]) -> None:
    problem, plan = case
    before = traffic(problem, plan.assignment)
    best = min((traffic(problem, one) for one in neighbours(problem, dict(plan.assignment))), default=before)
    move = Neighbourhood(problem, plan).best()
    assert (move.rise if move else 0) == min(0, best - before)


def neighbours(problem: Problem, assignment: Assignment) -> Iterator[Assignment]:
    """Every plan one move away, by trying all of them."""
    for one in (*shifted(problem, assignment), *exchanged(assignment), *relocated(problem, assignment)):
        if fits(problem, one):
            yield one
    for one in (*added(problem, assignment), *replaced(problem, assignment)):
        if fits(problem, one):
            yield one


def shifted(problem: Problem, assignment: Assignment) -> Iterator[Assignment]:
    for name, keepers in assignment.items():
        for leaves, joins in product(keepers, range(1, problem.topology.nodes + 1)):
            yield swapped(assignment, (name, leaves, joins))


def exchanged(assignment: Assignment) -> Iterator[Assignment]:
    for one, other in product(assignment, assignment):
        if one < other:
            for left, right in product(assignment[one], assignment[other]):
                yield swapped(assignment, (one, left, right), (other, right, left))


def relocated(problem: Problem, assignment: Assignment) -> Iterator[Assignment]:
    used = {node for keepers in assignment.values() for node in keepers}
    for old, new in product(used, set(range(1, problem.topology.nodes + 1)) - used):
        yield swapped(assignment, *((name, old, new) for name, keepers in assignment.items() if old in keepers))


def added(problem: Problem, assignment: Assignment) -> Iterator[Assignment]:
    for (name, keepers), limits in zip(assignment.items(), problem.replication, strict=True):
        if len(keepers) < limits.most:
            for joins in range(1, problem.topology.nodes + 1):
                yield assignment | {name: (*keepers, joins)}


def replaced(problem: Problem, assignment: Assignment) -> Iterator[Assignment]:
    limits = dict(zip(problem.topics, problem.replication, strict=True))
    for one, other in product(assignment, assignment):
        if one != other and len(assignment[one]) < limits[one].most:
            for node in assignment[other]:
                rest = tuple(keeper for keeper in assignment[other] if keeper != node)
                if len(rest) >= limits[other].least:
                    yield assignment | {one: (*assignment[one], node), other: rest}


def swapped(assignment: Assignment, *changes: tuple[str, int, int]) -> Assignment:
    return assignment | {
        name: (*(node for node in assignment[name] if node != leaves), joins) for name, leaves, joins in changes
    }


def test_local_search_leaves_unstored_topics() -> None:
    path = Topology(3, ((1, 2), (2, 3)))
    problem = Problem(
        path,
        ("a", "b"),
        np.array([[1, 0, 5], [1, 1, 1]]),
        Fraction(1),
        (ReplicationLimits(1, 1),) * 2,
        (1, 1, 1),
        1,
    )
    answer = improve(problem, Plan((1,), {"a": (1,), "b": ()}))
    assert answer.assignment == {"a": (3,), "b": ()}
    assert answer.short == {"b": 1}
    assert answer.storages == (3,)
    assert traffic(problem, answer.assignment) == 2


def test_local_search_keeps_order_of_storages() -> None:
    path = Topology(4, ((1, 2), (2, 3), (3, 4)))
    problem = Problem(path, ("a",), np.array([[0, 9, 9, 9]]), Fraction(1), (ReplicationLimits(3, 3),), (1,) * 4, 3)
    best = Plan((4, 2, 3), {"a": (3, 4, 2)}, {"a": [0, 1, 1, 1]})
    assert improve(problem, best) == best
    assert improve(problem, Plan((4, 1, 3), {"a": (1, 4, 3)})) == Plan((4, 3, 2), {"a": (4, 3, 2)})
