from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planning.small_networks import trees
from support.profiles import examples

from newsstand.errors import BadOption
from newsstand.geo.backbone import hop_matrix
from newsstand.overlay.topology import Topology
from newsstand.planning.solvers.tree_median import NEVER, Median, tree_median


@settings(max_examples=examples(200))
@given(st.data())
def test_tree_median_has_least_cost(data: st.DataObject) -> None:
    tree = data.draw(trees())
    demand = np.array(data.draw(st.lists(st.integers(0, 4), min_size=tree.nodes, max_size=tree.nodes)))
    replicas = data.draw(st.integers(1, tree.nodes))
    median = tree_median(tree, demand, replicas)
    hops = hop_matrix(tree)
    costs = {
        nodes: int(demand @ hops[np.array(nodes) - 1].min(axis=0))
        for nodes in combinations(range(1, tree.nodes + 1), replicas)
    }
    assert costs[median.nodes] == median.cost == min(costs.values())


def test_tree_median_divides_long_path_equally() -> None:
    path = Topology(300, [(node, node + 1) for node in range(1, 300)])
    assert tree_median(path, np.ones(300, np.int64), 4).cost == 4 * 2 * sum(range(38))


def test_tree_median_breaks_ties_by_lowest_numbers() -> None:
    star = Topology(5, ((1, 2), (1, 3), (1, 4), (1, 5)))
    assert tree_median(star, np.ones(5, np.int64), 3) == Median((1, 2, 3), 2)


def test_tree_median_does_not_overflow() -> None:
    path = Topology(3, ((1, 2), (2, 3)))
    large = NEVER // 2 // 2
    assert tree_median(path, np.array([large, 0, large]), 1).cost == 2 * large
    assert tree_median(path, np.array([large, 0, large]), 2).cost == 0


def test_tree_median_rejects_ring() -> None:
    with pytest.raises(BadOption, match="not a tree"):
        tree_median(Topology(3, ((1, 2), (2, 3), (1, 3))), np.ones(3, np.int64), 1)


def test_tree_median_rejects_more_replicas_than_nodes() -> None:
    with pytest.raises(BadOption, match="replication 3: must be"):
        tree_median(Topology(2, ((1, 2),)), np.ones(2, np.int64), 3)
