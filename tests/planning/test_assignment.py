"""Section 5.3's example comes out exactly, and the rules that it does not show hold, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_greedy import problem_of

from newsstand.overlay.topology import Topology
from newsstand.planning import assignment
from newsstand.planning.cost import evaluate
from newsstand.planning.greedy import possible_storages
from newsstand.planning.methods import METHODS, Asked, planned
from newsstand.planning.network_file import read_network
from newsstand.planning.problem import Plan, Problem
from newsstand.planning.replication import relative_weights, replicas

EXAMPLE = Path(__file__).parents[2] / "examples" / "storage-network.json"


@pytest.fixture(scope="module")
def example() -> Asked:
    problem = read_network(EXAMPLE)
    return Asked(problem, possible_storages(problem))


def test_the_example_of_section_5_3(example: Asked) -> None:
    problem, possible = example.problem, example.possible
    assert [float(weight) for weight in problem.weights] == [0.34, 0.54, 0.12]
    assert possible.tolist() == [[0, 3, 5, 0, 2, 2], [0, 2, 5, 0, 5, 0], [0, 2, 5, 0, 5, 0]]
    assert [total / 50 for total in assignment.weighted_sum(problem, possible)] == [0, 2.34, 5, 0, 3.98, 0.68]
    assert assignment.storage_brokers(problem, possible) == (3, 5, 2)
    plan = assignment.serial(problem, possible)
    assert plan.assignment == {"b": (3, 5), "a": (3, 2), "c": (5, 2)}
    assert plan.short == {}


def test_both_assignments_are_the_same_in_the_example(example: Asked) -> None:
    assert planned("wrr", example) == planned("srl", example)


def test_relative_weights_round_half_up(example: Asked) -> None:
    assert relative_weights(example.problem) == (3, 5, 1)


def test_topics_go_round_as_in_section_5_5() -> None:
    star = Topology(6, [(5, node) for node in (1, 2, 3, 4, 6)])
    problem = problem_of(star, [[0, 5, 8, 0, 0, 4], [3, 6, 11, 1, 3, 3], [0, 1, 2, 0, 3, 0]], 6)
    a, b, c = 0, 1, 2
    taken = list(assignment.rounds(problem))
    assert taken == [(b, 5), (a, 3), (c, 1), (b, 1), (a, 3), (c, 1), (c, 1), (c, 1), (c, 1), (c, 1)]


def test_the_figures_of_the_example(example: Asked) -> None:
    figures = evaluate(example.problem, planned("srl", example).plan)
    assert (figures.traffic, figures.mean_hops) == (23.0, 0.46)
    assert figures.traffic_of == {"a": 8.0, "b": 13.0, "c": 2.0}
    assert figures.mean_hops_of["c"] == 2 / 6


def test_no_plan_within_the_limits_beats_the_exact_one(example: Asked) -> None:
    plans = {name: planned(name, example) for name in METHODS}
    traffic = {name: evaluate(example.problem, answer.plan).traffic for name, answer in plans.items()}
    assert traffic == {
        "srl": 23.0, "wrr": 23.0, "random": 30.0, "greedy": 22.0, "swap": 23.0, "relaxed": 23.0, "exact": 23.0,
    }  # fmt: skip
    assert plans["exact"].gap == 0
    assert plans["srl"].gap is None


def test_another_seed_is_another_random_plan(example: Asked) -> None:
    plans = [assignment.random(example.problem, example.possible, seed) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert {plan.storages for plan in plans} == {(2, 3, 5)}


def test_a_topic_without_possible_storages_goes_where_its_traffic_is_least() -> None:
    line = Topology(5, [(1, 2), (2, 3), (3, 4), (4, 5)])
    problem = problem_of(line, [[90, 0, 0, 0, 0], [80, 0, 0, 0, 0], [0, 0, 0, 0, 1]], 1)
    problem = Problem(**{**vars_of(problem), "capacity": (1,) * 5, "storages": 3})
    plan = assignment.serial(problem, possible_storages(problem))
    assert plan.storages == (1, 2, 5)
    assert plan.assignment == {"a": (1,), "b": (2,), "c": (5,)}
    plan = assignment.serial(
        Problem(**{**vars_of(problem), "capacity": (1, 1, 1, 1, 0)}), possible_storages(problem)
    )
    assert plan.storages == (1, 2, 3)
    assert plan.assignment["c"] == (3,)


def vars_of(problem: Problem) -> dict[str, object]:
    return {name: getattr(problem, name) for name in Problem.__dataclass_fields__}


def test_replicas_that_find_no_room_are_told() -> None:
    line = Topology(3, [(1, 2), (2, 3)])
    problem = problem_of(line, [[9, 9, 0], [1, 0, 1]], 2)
    problem = Problem(**{**vars_of(problem), "capacity": (1, 1, 1), "storages": 2})
    plan = assignment.serial(problem, possible_storages(problem))
    assert plan.assignment["b"] == ()
    assert plan.short == {"b": 2}
    figures = evaluate(problem, plan)
    assert (figures.mean_hops, figures.mean_hops_of["b"]) == (0.0, 0.0)


@st.composite
def roomy(draw: st.DrawFn) -> Problem:
    nodes = draw(st.integers(2, 9))
    edges = [(node, draw(st.integers(1, node - 1))) for node in range(2, nodes + 1)]
    row = st.lists(st.integers(0, 9), min_size=nodes, max_size=nodes)
    demand = draw(st.lists(row, min_size=1, max_size=4).filter(lambda rows: any(map(any, rows))))
    problem = problem_of(Topology(nodes, edges), demand, draw(st.integers(1, nodes)))
    capacity = draw(st.lists(st.integers(1, 3), min_size=nodes, max_size=nodes))
    return Problem(**{**vars_of(problem), "capacity": tuple(capacity)})


@settings(max_examples=150, deadline=None)
@given(roomy(), st.sampled_from(["srl", "wrr", "random"]), st.integers(0, 5))
def test_limits_are_kept_and_what_is_missing_is_told(problem: Problem, method: str, seed: int) -> None:
    plan = planned(method, Asked(problem, possible_storages(problem), seed)).plan
    kept = [node for keepers in plan.assignment.values() for node in keepers]
    assert all(kept.count(node) <= problem.capacity[node - 1] for node in plan.storages)
    assert set(kept) <= set(plan.storages)
    for topic, (name, wanted) in enumerate(zip(problem.topics, replicas(problem), strict=True)):
        keepers = plan.assignment[name]
        assert len(set(keepers)) == len(keepers) == wanted - plan.short.get(name, 0)
        assert not plan.short.get(name) or is_full(problem, plan, name), topic


def is_full(problem: Problem, plan: Plan, name: str) -> bool:
    """Whether no storage has room for one more replica of a topic."""
    kept = [node for keepers in plan.assignment.values() for node in keepers]
    others = set(plan.storages) - set(plan.assignment[name])
    return all(kept.count(node) == problem.capacity[node - 1] for node in others)
