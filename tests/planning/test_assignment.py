"""Section 5.3's example is reproduced exactly, and so are the rules that it does not show."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planning.small_problems import problem_of
from support.profiles import examples

from newsstand.overlay.topology import Topology
from newsstand.planning import methods
from newsstand.planning.methods import METHODS, PlanningRequest, run_method
from newsstand.planning.problem import Plan, Problem, evaluate, read_network, topic_traffic
from newsstand.planning.replication import relative_weights, replicas
from newsstand.planning.solvers.greedy import possible_storages

EXAMPLE = Path(__file__).parents[2] / "examples" / "storage-network.json"


@pytest.fixture(scope="module")
def example() -> PlanningRequest:
    problem = read_network(EXAMPLE)
    return PlanningRequest(problem, possible_storages(problem))


def test_srl_assigns_example_of_section_5_3(example: PlanningRequest) -> None:
    problem, possible = example.problem, example.possible
    assert [float(weight) for weight in problem.weights] == [0.34, 0.54, 0.12]
    assert possible.tolist() == [[0, 3, 5, 0, 2, 2], [0, 2, 5, 0, 5, 0], [0, 2, 5, 0, 5, 0]]
    assert [total / 50 for total in methods.weighted_sum(problem, possible)] == [0, 2.34, 5, 0, 3.98, 0.68]
    assert methods.storage_brokers(problem, possible) == (3, 5, 2)
    plan = methods.serial(problem, possible)
    assert plan.assignment == {"b": (3, 5), "a": (3, 2), "c": (5, 2)}
    assert plan.short == {}


def test_srl_and_wrr_agree_on_example(example: PlanningRequest) -> None:
    assert run_method("wrr", example) == run_method("srl", example)


def test_relative_weights_round_half_up(example: PlanningRequest) -> None:
    assert relative_weights(example.problem) == (3, 5, 1)


def test_wrr_rounds_are_those_of_section_5_5() -> None:
    star = Topology(6, [(5, node) for node in (1, 2, 3, 4, 6)])
    problem = problem_of(star, [[0, 5, 8, 0, 0, 4], [3, 6, 11, 1, 3, 3], [0, 1, 2, 0, 3, 0]], 6)
    a, b, c = 0, 1, 2
    taken = list(methods.rounds(problem))
    assert taken == [(b, 5), (a, 3), (c, 1), (b, 1), (a, 3), (c, 1), (c, 1), (c, 1), (c, 1), (c, 1)]


def test_plan_cost_of_example(example: PlanningRequest) -> None:
    problem, plan = example.problem, run_method("srl", example).plan
    figures = evaluate(problem, plan)
    assert (figures.traffic, figures.mean_hops) == (23.0, 0.46)
    units = [topic_traffic(problem, topic, plan.assignment[name]) for topic, name in enumerate(problem.topics)]
    assert [float(one * problem.unit) for one in units] == [8.0, 13.0, 2.0]
    assert units[2] / problem.totals[2] == 2 / 6


def test_exact_plan_has_least_traffic(example: PlanningRequest) -> None:
    plans = {name: run_method(name, example) for name in METHODS}
    traffic = {name: evaluate(example.problem, answer.plan).traffic for name, answer in plans.items()}
    assert traffic == {
        "srl": 23.0, "wrr": 23.0, "random": 30.0, "greedy": 22.0, "swap": 23.0, "relaxed": 23.0, "exact": 23.0,
    }  # fmt: skip
    assert plans["exact"].gap == 0
    assert plans["srl"].gap is None


def test_random_plan_depends_on_seed(example: PlanningRequest) -> None:
    plans = [methods.random(example.problem, example.possible, seed) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert {plan.storages for plan in plans} == {(2, 3, 5)}


def test_topic_without_possible_storages_minimizes_traffic() -> None:
    line = Topology(5, [(1, 2), (2, 3), (3, 4), (4, 5)])
    problem = problem_of(line, [[90, 0, 0, 0, 0], [80, 0, 0, 0, 0], [0, 0, 0, 0, 1]], 1)
    problem = Problem(**{**vars_of(problem), "capacity": (1,) * 5, "storages": 3})
    plan = methods.serial(problem, possible_storages(problem))
    assert plan.storages == (1, 2, 5)
    assert plan.assignment == {"a": (1,), "b": (2,), "c": (5,)}
    plan = methods.serial(Problem(**{**vars_of(problem), "capacity": (1, 1, 1, 1, 0)}), possible_storages(problem))
    assert plan.storages == (1, 2, 3)
    assert plan.assignment["c"] == (3,)


def vars_of(problem: Problem) -> dict[str, object]:
    return {name: getattr(problem, name) for name in Problem.__dataclass_fields__}


def test_plan_lists_replicas_without_room() -> None:
    line = Topology(3, [(1, 2), (2, 3)])
    problem = problem_of(line, [[9, 9, 0], [1, 0, 1]], 2)
    problem = Problem(**{**vars_of(problem), "capacity": (1, 1, 1), "storages": 2})
    plan = methods.serial(problem, possible_storages(problem))
    assert plan.assignment["b"] == ()
    assert plan.short == {"b": 2}
    assert (evaluate(problem, plan).mean_hops, topic_traffic(problem, 1, plan.assignment["b"])) == (0.0, 0)


@st.composite
def roomy(draw: st.DrawFn) -> Problem:
    nodes = draw(st.integers(2, 9))
    edges = [(node, draw(st.integers(1, node - 1))) for node in range(2, nodes + 1)]
    row = st.lists(st.integers(0, 9), min_size=nodes, max_size=nodes)
    demand = draw(st.lists(row, min_size=1, max_size=4).filter(lambda rows: any(map(any, rows))))
    problem = problem_of(Topology(nodes, edges), demand, draw(st.integers(1, nodes)))
    capacity = draw(st.lists(st.integers(1, 3), min_size=nodes, max_size=nodes))
    return Problem(**{**vars_of(problem), "capacity": tuple(capacity)})


@settings(max_examples=examples(150))
@given(roomy(), st.sampled_from(["srl", "wrr", "random"]), st.integers(0, 5))
def test_plan_keeps_limits_and_lists_missing_replicas(problem: Problem, method: str, seed: int) -> None:
    plan = run_method(method, PlanningRequest(problem, possible_storages(problem), seed)).plan
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
