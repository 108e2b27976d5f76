from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_problems import assignments, fits, problems

from newsstand.overlay.topology import Topology
from newsstand.planning.cost import traffic
from newsstand.planning.improve import descent, improve
from newsstand.planning.neighbourhood import Neighbourhood
from newsstand.planning.problem import Limits, Plan, Problem

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


@settings(max_examples=60, deadline=None)
@given(planned())
def test_each_move_spares_exactly_what_it_says(case: tuple[Problem, Plan]) -> None:
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


@settings(max_examples=60, deadline=None)
@given(planned())
def test_no_neighbour_of_the_answer_is_better(case: tuple[Problem, Plan]) -> None:
    problem, plan = case
    answer = improve(problem, plan)
    own = traffic(problem, answer.assignment)
    assert own <= traffic(problem, plan.assignment)
    assert own <= min((traffic(problem, one) for one in neighbours(problem, dict(answer.assignment))), default=own)
    for name, limits in zip(problem.topics, problem.replication, strict=True):
        assert len(answer.assignment[name]) >= min(limits.least, len(plan.assignment[name]))
        assert len(answer.assignment[name]) <= limits.most


@settings(max_examples=60, deadline=None)
@given(planned())
def test_the_best_move_is_the_best_of_all_neighbours(case: tuple[Problem, Plan]) -> None:
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


def test_a_topic_that_is_kept_nowhere_stays_so() -> None:
    path = Topology(3, ((1, 2), (2, 3)))
    problem = Problem(
        path, ("a", "b"), np.array([[1, 0, 5], [1, 1, 1]]), Fraction(1), (Limits(1, 1),) * 2, (1, 1, 1), 1
    )
    answer = improve(problem, Plan((1,), {"a": (1,), "b": ()}))
    assert answer.assignment == {"a": (3,), "b": ()}
    assert answer.short == {"b": 1}
    assert answer.storages == (3,)
    assert traffic(problem, answer.assignment) == 2


def test_what_stays_keeps_its_order_and_what_is_new_follows() -> None:
    path = Topology(4, ((1, 2), (2, 3), (3, 4)))
    problem = Problem(path, ("a",), np.array([[0, 9, 9, 9]]), Fraction(1), (Limits(3, 3),), (1,) * 4, 3)
    best = Plan((4, 2, 3), {"a": (3, 4, 2)}, {"a": [0, 1, 1, 1]})
    assert improve(problem, best) == best
    assert improve(problem, Plan((4, 1, 3), {"a": (1, 4, 3)})) == Plan((4, 3, 2), {"a": (4, 3, 2)})
