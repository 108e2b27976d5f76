from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planning.small_networks import networks, trees
from support.planning.small_problems import best, fits, missing, problems
from support.profiles import examples

from newsstand.errors import BadOption
from newsstand.overlay.topology import Topology
from newsstand.planning.problem import Problem, ReplicationLimits, traffic
from newsstand.planning.replication import missing_replicas
from newsstand.planning.solvers.bounded_plans import exact, round_relaxation, without_limits
from newsstand.planning.solvers.tree_median import tree_median


@settings(max_examples=examples(60))
@given(problems())
def test_exact_agrees_with_brute_force(problem: Problem) -> None:
    optimum = best(problem)
    if optimum is None:
        with pytest.raises(BadOption, match="less than one for each"):
            exact(problem)
        return
    answer = exact(problem)
    assert (sum(answer.plan.short.values()), answer.traffic, answer.gap) == (*optimum, 0)
    assert traffic(problem, answer.plan.assignment) == answer.traffic
    assert missing_replicas(problem) == optimum[0]
    _keeps_the_rules(problem, answer.plan.assignment)


@settings(max_examples=examples(60))
@given(problems(least_capacity=1))
def test_relaxed_plan_is_feasible_within_bound(problem: Problem) -> None:
    optimum = best(problem)
    if optimum is None:
        with pytest.raises(BadOption, match="less than one for each"):
            round_relaxation(problem)
        return
    answer = round_relaxation(problem)
    assert sum(answer.plan.short.values()) == optimum[0]
    assert answer.bound - 1e-6 <= optimum[1] <= answer.traffic == traffic(problem, answer.plan.assignment)
    _keeps_the_rules(problem, answer.plan.assignment)


def _keeps_the_rules(problem: Problem, assignment: dict[str, tuple[int, ...]]) -> None:
    assert fits(problem, assignment)
    assert missing(problem, assignment) == missing_replicas(problem)
    for name, limits in zip(problem.topics, problem.replication, strict=True):
        assert 1 <= len(assignment[name]) <= limits.most


@settings(max_examples=examples(20))
@given(st.data())
def test_exact_agrees_with_tree_median_on_trees(data: st.DataObject) -> None:
    tree = data.draw(trees(most=25))
    demand = np.array(data.draw(st.lists(st.integers(0, 9), min_size=tree.nodes, max_size=tree.nodes)))
    demand[0] += 1
    count = data.draw(st.integers(1, tree.nodes))
    problem = _of_one_topic(tree, demand, count)
    assert exact(problem).traffic == tree_median(tree, demand, count).cost


@settings(max_examples=examples(20))
@given(st.data())
def test_exact_without_limits_optimizes_each_topic(data: st.DataObject) -> None:
    network = data.draw(networks())
    demand = np.array([[1, *([3] * (network.nodes - 1))], [2] * network.nodes])
    counts = [data.draw(st.integers(1, network.nodes)) for _ in range(2)]
    problem = Problem(
        network, ("a", "b"), demand, Fraction(1),
        tuple(ReplicationLimits(count, count) for count in counts), (1,) * network.nodes, 1,
    )  # fmt: skip
    alone = [exact(_of_one_topic(network, row, count)) for row, count in zip(demand, counts, strict=True)]
    answer = without_limits(problem, counts)
    assert answer.traffic == answer.bound == sum(one.traffic for one in alone)
    assert [len(answer.plan.assignment[name]) for name in "ab"] == counts


def test_exact_reports_bound_when_time_is_over() -> None:
    rng = np.random.default_rng(4)
    tree = Topology(40, [(int(rng.integers(1, node)), node) for node in range(2, 41)])
    problem = Problem(
        tree, tuple("abcd"), rng.integers(0, 9, (4, 40)), Fraction(1),
        (ReplicationLimits(3, 3),) * 4, (2,) * 40, 7,
    )  # fmt: skip
    optimum, single = exact(problem), sum(tree_median(tree, row, 3).cost for row in problem.demand)
    assert optimum.gap == 0
    for hurried in (exact(problem, time_limit_s=0), round_relaxation(problem, time_limit_s=0)):
        assert hurried.bound == single < optimum.traffic <= hurried.traffic
        assert hurried.gap == pytest.approx(1 - single / hurried.traffic)


def test_exact_ignores_nodes_without_capacity() -> None:
    path = Topology(4, ((1, 2), (2, 3), (3, 4)))
    problem = replace(_of_one_topic(path, np.array([9, 1, 1, 1]), 1), capacity=(0, 0, 1, 1))
    answer = exact(problem)
    assert answer.plan.assignment == {"a": (3,)}
    assert answer.traffic == 9 * 2 + 1 + 1


def test_exact_uses_fewest_storages_if_number_is_open() -> None:
    path = Topology(5, ((1, 2), (2, 3), (3, 4), (4, 5)))
    problem = replace(
        _of_one_topic(path, np.ones(5, np.int64), 2),
        topics=("a", "b", "c"),
        demand=np.ones((3, 5), np.int64),
        replication=(ReplicationLimits(2, 2),) * 3,
        capacity=(2,) * 5,
        storages=None,
    )
    assert len(exact(problem).plan.storages) == 3


def _of_one_topic(topology: Topology, demand: np.ndarray, count: int) -> Problem:
    return Problem(
        topology,
        ("a",),
        demand[None],
        Fraction(1),
        (ReplicationLimits(count, count),),
        (1,) * topology.nodes,
        count,
    )
