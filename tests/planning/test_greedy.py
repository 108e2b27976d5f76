"""Compiled greedy picks what three plain loops pick, including ties."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planning.plain_greedy import plain_picks, plain_possible
from support.planning.small_problems import problem_of
from support.profiles import examples

from newsstand.overlay.topology import Topology
from newsstand.planning.problem import Problem
from newsstand.planning.solvers.greedy import possible_for, possible_storages, topology_arrays


def greedy_picks(problem: Problem, topic: int, server: int, wanted: int) -> tuple[int, ...]:
    """Picks for one assumed server in their order: more of them begin with fewer."""
    only = np.eye(problem.topology.nodes, dtype=np.int64)[server - 1]
    picks: list[int] = []
    for number in range(1, wanted + 1):
        counts = possible_for(topology_arrays(problem), problem.demand[topic], number, only)
        added = set((np.flatnonzero(counts) + 1).tolist()) - set(picks)
        assert len(added) == (number < problem.topology.nodes)
        picks += added
    return tuple(picks)


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


@settings(max_examples=examples(300))
@given(problems())
def test_greedy_counts_agree_with_plain_loops(problem: Problem) -> None:
    assert possible_storages(problem).tolist() == plain_possible(problem)


@settings(max_examples=examples(100))
@given(problems(), st.data())
def test_greedy_picks_agree_with_plain_loops(problem: Problem, data: st.DataObject) -> None:
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
def test_greedy_agrees_with_plain_loops_on_larger_networks(graph: nx.Graph, largest: int) -> None:
    graph = nx.convert_node_labels_to_integers(graph, 1)
    demand = np.random.default_rng(5).integers(0, largest + 1, (2, len(graph))).tolist()
    problem = problem_of(Topology(len(graph), graph.edges), demand, 5)
    assert possible_storages(problem).tolist() == plain_possible(problem)


def test_greedy_never_picks_server() -> None:
    line = problem_of(Topology(3, [(1, 2), (2, 3)]), [[9, 0, 1]], 3)
    assert greedy_picks(line, 0, 1, 3) == (3, 2)
    assert greedy_picks(line, 0, 3, 1) == (1,)


def test_greedy_weights_likely_publishers() -> None:
    line = problem_of(Topology(3, [(1, 2), (2, 3)]), [[9, 0, 1]], 1, [5, 0, 2])
    assert possible_storages(line).tolist() == [[2, 0, 5]]
