"""Compiled greedy picks what three plain loops pick, ties and all."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_greedy import plain_picks, plain_possible

from newsstand.overlay.topology import Topology
from newsstand.planning.greedy import greedy_picks, possible_storages
from newsstand.planning.problem import Limits, Problem, whole


def problem_of(
    topology: Topology, demand: list[list[int]], k: int, publishing: list[int] | None = None
) -> Problem:
    rows, unit = whole(demand, topology.nodes)
    return Problem(
        topology,
        tuple("abcdefgh"[: len(demand)]),
        rows,
        unit,
        (Limits(k, k),) * len(demand),
        (len(demand),) * topology.nodes,
        publishing=None if publishing is None else np.array(publishing),
    )


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    """A tree, or a tree with some links more."""
    nodes = draw(st.integers(2, 14))
    names = draw(st.permutations(range(1, nodes + 1)))
    parents = [draw(st.integers(0, node - 1)) for node in range(1, nodes)]
    edges = {(names[node], names[parent]) for node, parent in enumerate(parents, 1)}
    if draw(st.booleans()):
        pair = st.tuples(st.integers(1, nodes), st.integers(1, nodes)).filter(lambda two: two[0] != two[1])
        edges |= draw(st.sets(pair, max_size=6))
    return Topology(nodes, edges)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    topology = draw(networks())
    row = st.lists(st.integers(0, 3), min_size=topology.nodes, max_size=topology.nodes)
    demand = draw(st.lists(row, min_size=1, max_size=2).filter(lambda rows: any(map(any, rows))))
    publishing = draw(st.none() | row)
    return problem_of(topology, demand, draw(st.integers(1, topology.nodes)), publishing)


@settings(max_examples=300, deadline=None)
@given(problems())
def test_compiled_greedy_counts_what_plain_loops_count(problem: Problem) -> None:
    assert possible_storages(problem).tolist() == plain_possible(problem)


@settings(max_examples=100, deadline=None)
@given(problems(), st.data())
def test_compiled_greedy_picks_in_the_order_of_plain_loops(problem: Problem, data: st.DataObject) -> None:
    server = data.draw(st.integers(1, problem.topology.nodes))
    wanted = data.draw(st.integers(1, problem.topology.nodes))
    assert greedy_picks(problem, 0, server, wanted) == plain_picks(problem, 0, server, wanted)


@pytest.mark.parametrize(
    "graph",
    [
        nx.path_graph(60),
        nx.star_graph(40),
        nx.balanced_tree(3, 3),
        nx.random_labeled_tree(60, seed=4),
        nx.grid_2d_graph(6, 7),
        nx.barabasi_albert_graph(50, 2, seed=3),
    ],
    ids=["path", "star", "balanced", "random", "grid", "scale-free"],
)
@pytest.mark.parametrize("largest", [1, 50])
def test_on_larger_networks_too(graph: nx.Graph, largest: int) -> None:
    graph = nx.convert_node_labels_to_integers(graph, 1)
    demand = np.random.default_rng(5).integers(0, largest + 1, (2, len(graph))).tolist()
    problem = problem_of(Topology(len(graph), graph.edges), demand, 5)
    assert possible_storages(problem).tolist() == plain_possible(problem)


def test_a_server_is_a_replica_and_never_picked() -> None:
    line = problem_of(Topology(3, [(1, 2), (2, 3)]), [[9, 0, 1]], 3)
    assert greedy_picks(line, 0, 1, 3) == (3, 2)
    assert greedy_picks(line, 0, 3, 1) == (1,)


def test_a_publisher_that_is_likelier_counts_more() -> None:
    line = problem_of(Topology(3, [(1, 2), (2, 3)]), [[9, 0, 1]], 1, [5, 0, 2])
    assert possible_storages(line).tolist() == [[2, 0, 5]]
