"""Topics move between given storages: the cost, the gain, and whether it is worth it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.planning.small_problems import problem_of

from newsstand.errors import BadNetwork
from newsstand.overlay.topology import Topology
from newsstand.planning.methods import serial
from newsstand.planning.problem import Plan, Problem
from newsstand.planning.reassign import (
    Reassignment,
    ReplicaMoves,
    compare,
    read_plan,
    replica_moves,
    restrict_storages,
)
from newsstand.planning.solvers.greedy import possible_storages

LINE = Topology(6, [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)])
LEFT, RIGHT = [9, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 9]


def planned(problem: Problem) -> Plan:
    return serial(problem, possible_storages(problem))


def at_two(demand: list[list[int]]) -> Problem:
    return replace(problem_of(LINE, demand, 1), capacity=(1,) * 6, storages=2)


def after_a_swap() -> Reassignment:
    """Topic a was wanted on the left and b on the right, and now it is the other way round."""
    old = planned(at_two([LEFT, RIGHT]))
    now = at_two([RIGHT, LEFT])
    return compare(now, old, planned(restrict_storages(now, old.storages)), planned(now))


def test_reassignment_moves_topics_between_same_storages() -> None:
    assert planned(at_two([LEFT, RIGHT])).assignment == {"a": (1,), "b": (6,)}
    result = after_a_swap()
    assert result.plan.storages == (1, 6)
    assert result.plan.assignment == {"a": (6,), "b": (1,)}
    assert result.moved == {"a": ReplicaMoves((6,), (1,)), "b": ReplicaMoves((1,), (6,))}
    assert (result.copies, result.moved_demand) == (2, 1.0)
    assert result.after == result.replanned
    assert (result.before.traffic, result.after.traffic, result.gain) == (98, 2, 1 - 2 / 98)


def test_reassignment_is_worth_it_above_threshold() -> None:
    result = after_a_swap()
    assert result.worth_it()
    assert not result.worth_it(least_gain=result.gain + 0.01)
    assert result.worth_it(least_gain_per_copy=result.gain / 2)
    assert not result.worth_it(least_gain_per_copy=result.gain / 2 + 0.01)


def test_reassignment_is_empty_for_same_demand() -> None:
    problem = at_two([LEFT, RIGHT])
    old = planned(problem)
    result = compare(problem, old, planned(restrict_storages(problem, old.storages)), old)
    assert (result.moved, result.gain, result.copies, result.gain_per_copy) == ({}, 0.0, 0, 0.0)
    assert not result.worth_it(least_gain=0)


def test_reassignment_is_worth_it_for_new_topic() -> None:
    problem = at_two([LEFT, RIGHT])
    plan = planned(problem)
    result = compare(problem, Plan(plan.storages, {**plan.assignment, "b": ()}), plan, plan)
    assert result.new_topics == ("b",)
    assert result.worth_it(least_gain=1)


def test_replica_moves_list_copies_and_drops() -> None:
    assert replica_moves({"a": (1, 2), "b": (3,)}, {"a": (2, 4), "b": (3,)}) == {"a": ReplicaMoves((4,), (1,))}


def test_read_plan_reads_earlier_answer(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"storages": [2, 5], "assignment": {"a": [2]}, "traffic": 1}))
    assert read_plan(path, at_two([LEFT, RIGHT])) == Plan((2, 5), {"a": (2,), "b": ()})


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ({"storages": [2]}, "field 'assignment' is missing"),
        ({"storages": [], "assignment": {}}, "storages: 0 have room for topics, and 'a' needs 1 replicas"),
        ({"storages": [7], "assignment": {}}, "storages[0] is 7, which is above 6"),
        ({"storages": [2, 2], "assignment": {}}, "storages names a node twice"),
        ({"storages": [2], "assignment": {"z": [2]}}, "assignment.z: the network has no such topic"),
        ({"storages": [2], "assignment": {"a": [3]}}, "assignment.a: node 3 is not among the storages"),
        ({"storages": [2], "assignment": {"a": 2}}, "assignment.a is 2, not a list"),
    ],
)
def test_read_plan_mistake_is_one_line(tmp_path: Path, message: dict[str, object], line: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(message))
    with pytest.raises(BadNetwork) as refused:
        read_plan(path, at_two([LEFT, RIGHT]))
    assert str(refused.value) == f"{path}: {line}"


def test_restrict_storages_allows_only_old_storages() -> None:
    kept = restrict_storages(at_two([LEFT, RIGHT]), (6, 2))
    assert kept.capacity == (0, 1, 0, 0, 0, 1)
    assert kept.storages == 2
    assert np.array_equal(possible_storages(kept), possible_storages(at_two([LEFT, RIGHT])))


def test_read_plan_finds_brokers_by_name(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"storages": [1, 2], "assignment": {"a": [2]}, "brokers": ["north", "south"]}))
    names = {"east": 1, "north": 2, "south": 5}
    assert read_plan(path, at_two([LEFT, RIGHT]), names) == Plan((2, 5), {"a": (5,), "b": ()})
    with pytest.raises(BadNetwork, match="storages names node 1, which the network does not have"):
        read_plan(path, at_two([LEFT, RIGHT]), {"south": 2})


def test_read_plan_ignores_topics_without_demand(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"storages": [2, 5], "assignment": {"a": [2], "silent": [5]}}))
    assert read_plan(path, at_two([LEFT, RIGHT]), quiet=True) == Plan((2, 5), {"a": (2,), "b": ()})
    with pytest.raises(BadNetwork, match="the network has no such topic"):
        read_plan(path, at_two([LEFT, RIGHT]))
