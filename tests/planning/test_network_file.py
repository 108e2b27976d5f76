"""Network files: their meaning, and mistakes in one line with the file and the field."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from newsstand.errors import BadNetwork
from newsstand.planning.problem import ReplicationLimits, read_network
from newsstand.planning.replication import as_many_as_needed, least_storages, relative_weights, replicas

LINE = {
    "nodes": 3,
    "edges": [[1, 2], [2, 3]],
    "topics": {"x": [1, 0.5, 0], "y": [0, 0, 4.5]},
    "replication": 2,
    "storage_capacity": 1,
}


def written(folder: Path, **changes: object) -> Path:
    path = folder / "network.json"
    path.write_text(json.dumps({**LINE, **changes}))
    return path


def test_demand_is_scaled_to_whole_units(tmp_path: Path) -> None:
    problem = read_network(written(tmp_path))
    assert problem.demand.tolist() == [[2, 1, 0], [0, 0, 9]]
    assert problem.unit == Fraction(1, 2)
    assert problem.weights == (Fraction(1, 4), Fraction(3, 4))
    assert problem.hops.tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    assert (problem.capacity, problem.storages, problem.publishing) == ((1, 1, 1), None, None)


def test_replication_may_differ_by_topic(tmp_path: Path) -> None:
    problem = read_network(written(tmp_path, replication={"y": [1, 3], "x": 2}, storages=2))
    assert problem.replication == (ReplicationLimits(2, 2), ReplicationLimits(1, 3))


def test_capacity_and_publishing_may_differ_by_node(tmp_path: Path) -> None:
    problem = read_network(written(tmp_path, storage_capacity=[0, 2, 2], publishing=[0.5, 0, 1], storages=None))
    assert problem.capacity == (0, 2, 2)
    assert problem.publishing is not None
    assert problem.publishing.tolist() == [1, 0, 2]


def test_values_given_instead_override_file(tmp_path: Path) -> None:
    problem = read_network(written(tmp_path, storages=2), {"storages": 3, "replication": [1, 2]})
    assert (problem.storages, problem.replication[0]) == (3, ReplicationLimits(1, 2))
    with pytest.raises(BadNetwork, match=r"^storages is 4, and there are 3 nodes$"):
        read_network(written(tmp_path), {"storages": 4})


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"nodes": 0}, "nodes is 0, which is below 1"),
        ({"nodes": 40_000}, "nodes is 40000, which is above 32767"),
        ({"nodes": 2.0}, "nodes is 2.0, not a whole number"),
        ({"nodes": True}, "nodes is true, not a whole number"),
        ({"edges": {}}, "edges is an object, not a list"),
        ({"edges": [[1, 2, 3]]}, "edges[0] has 3 values, not 2"),
        ({"edges": [[1, 2], [2, "3"]]}, "edges[1][1] is '3', not a whole number"),
        ({"edges": [[1, 2], [2, 4]]}, "edges[1]: node 4 is outside 1 … 3"),
        ({"edges": [[1, 1]]}, "edges[0]: node 1 is linked to itself"),
        ({"edges": [[1, 2]]}, "edges: the network is not connected: no way leads from node 1 to node 3"),
        ({"topics": {}}, "topics is empty: there must be at least one topic"),
        ({"topics": [1, 2, 3]}, "topics is a list, not an object"),
        ({"topics": {"x": [1, 2]}}, "topics.x has 2 values, not 3"),
        ({"topics": {"x": [1, None, 2]}}, "topics.x[1] is null, not a number"),
        ({"topics": {"x": [1, -2, 2]}}, "topics.x[1] is -2, which is negative"),
        ({"topics": {"x": [0, 0, 0]}}, "demand: all requests are 0; at least one must be above"),
        ({"replication": 0}, "replication is 0, which is below 1"),
        ({"replication": 4}, "replication is 4, and there are 3 nodes that can be one"),
        ({"replication": 3, "storages": 2}, "replication is 3, and there are 2 storages"),
        ({"replication": [3, 2]}, "replication is at least 3 and at most 2"),
        ({"replication": [1, 2, 3]}, "replication has 3 values, not 2"),
        ({"replication": {"x": 1, "y": 1, "z": 1}}, "replication names 'z', which is not among the topics"),
        ({"replication": {"x": 1}}, "replication has no number of replicas for 'y'"),
        ({"replication": {"x": 1, "y": "2"}}, "replication.y is '2', not a whole number"),
        ({"storage_capacity": 0}, "storage_capacity is 0, which is below 1"),
        ({"storage_capacity": [1, 1]}, "storage_capacity has 2 values, not 3"),
        ({"storage_capacity": [0, 0, 0]}, "storage_capacity is 0 everywhere: at least one node must have room"),
        ({"storages": 4}, "storages is 4, and there are 3 nodes"),
        (
            {"storages": 3, "storage_capacity": [1, 1, 0]},
            "storages is 3, and 2 nodes have a storage_capacity above 0",
        ),
        ({"publishing": [0, 0, 0]}, "publishing is 0 everywhere: at least one broker must publish"),
        ({"publishing": [1, 2]}, "publishing has 2 values, not 3"),
        ({"names": ["a", "b"]}, "names has 2 values, not 3"),
        ({"names": ["a", "b", "a"]}, "names has 'a' twice"),
        ({"names": ["a", "b", 3]}, "names[2] is 3, not a name"),
        (
            {"storage": 3},
            "unknown field 'storage'; there are nodes, edges, topics, replication, storage_capacity, storages, "
            "publishing, names",
        ),
    ],
)
def test_network_file_mistake_is_one_line(tmp_path: Path, changes: dict[str, object], line: str) -> None:
    path = written(tmp_path, **changes)
    with pytest.raises(BadNetwork) as refused:
        read_network(path)
    assert str(refused.value) == f"{path}: {line}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "line 1: not JSON (Expecting value)"),
        ("{\n]", "line 2: not JSON (Expecting property name enclosed in double quotes)"),
        ("[]", "holds a list, not an object"),
        ('{"nodes": 1, "nodes": 2}', "'nodes' occurs twice"),
        ('{"topics": {"a": [1], "a": [2]}}', "'a' occurs twice"),
        ('{"topics": {"a": [NaN]}}', "NaN is not a number"),
        ('{"topics": {"a": [-Infinity]}}', "-Infinity is not a number"),
        ("{}", "field 'nodes' is missing"),
    ],
)
def test_network_file_rejects_other_json(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "network.json"
    path.write_text(text)
    with pytest.raises(BadNetwork, match=f"^{re.escape(f'{path}: {line}')}$"):
        read_network(path)


def test_demand_of_any_size_is_scaled(tmp_path: Path) -> None:
    small = read_network(written(tmp_path, topics={"x": [1e-300, 0, 2e-300]}))
    assert small.demand[0, 2] == 2 * small.demand[0, 0] > 0
    large = read_network(written(tmp_path, topics={"x": [1e300, 0, 5e299]}))
    assert large.demand[0, 0] == 2 * large.demand[0, 2] > 0
    uneven = read_network(written(tmp_path, topics={"x": [1e15 + 1, 0, 1e-15]}))
    assert uneven.demand[0].tolist()[1:] == [0, 0]
    assert float(int(uneven.demand[0, 0]) * uneven.unit) == 1e15 + 1
    (tmp_path / "huge.json").write_text(json.dumps(LINE).replace("4.5", "1e999"))
    with pytest.raises(BadNetwork, match=r"topics\.y\[2\] is too large"):
        read_network(tmp_path / "huge.json")


def test_network_file_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadNetwork, match="no such file"):
        read_network(tmp_path / "nowhere.json")


def test_replicas_follow_weight_within_limits(tmp_path: Path) -> None:
    ten = {"nodes": 20, "edges": [[1, node] for node in range(2, 21)]}
    topics = {f"t{rank}": [2520 / rank] + [0] * 19 for rank in range(1, 11)}
    problem = read_network(written(tmp_path, **ten, topics=topics, replication=[1, 8], storage_capacity=5))
    assert relative_weights(problem) == (10, 5, 3, 3, 2, 2, 1, 1, 1, 1)
    assert replicas(problem) == (8, 5, 3, 3, 2, 2, 1, 1, 1, 1)
    assert least_storages(problem) == 8
    assert as_many_as_needed(problem, range(20, 0, -1)) == tuple(range(20, 12, -1))


def test_replicas_are_reduced_by_demand(tmp_path: Path) -> None:
    problem = read_network(
        written(tmp_path, topics={"x": [6, 0, 0], "y": [2, 0, 0], "z": [2, 0, 0]}, replication=[1, 3], storages=3)
    )
    assert relative_weights(problem) == (3, 1, 1)
    assert replicas(problem) == (1, 1, 1)
    problem = read_network(
        written(
            tmp_path, topics={"x": [6, 0, 0], "y": [4, 0, 0]}, replication=[2, 3], storages=2, storage_capacity=2
        )
    )
    assert replicas(problem) == (2, 2)


def test_least_storages_hold_all_replicas(tmp_path: Path) -> None:
    problem = read_network(written(tmp_path, replication={"x": 1, "y": 2}))
    assert least_storages(problem) == 3
    problem = read_network(written(tmp_path, replication=1, storage_capacity=[1, 0, 2]))
    assert least_storages(problem) == 1
    assert as_many_as_needed(problem, (1, 2, 3)) == (1, 3)
