"""Planning on Spark comes to what planning in this process comes to."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from pyspark.sql import SparkSession

from newsstand.lab.plan_on_spark import possible_on_spark
from newsstand.overlay.topology import Topology
from newsstand.planning.greedy import possible_storages
from newsstand.planning.problem import Limits, Problem, whole


@pytest.mark.parametrize("publishing", [None, np.arange(40)])
def test_spark_counts_the_same(spark: SparkSession, publishing: np.ndarray | None) -> None:
    tree = nx.random_labeled_tree(40, seed=1)
    demand, unit = whole(np.random.default_rng(2).integers(0, 9, (5, 40)).tolist(), 40)
    topology = Topology(40, [(a + 1, b + 1) for a, b in tree.edges])
    limits = tuple(Limits(k, k) for k in (1, 2, 3, 4, 5))
    problem = Problem(topology, tuple("abcde"), demand, unit, limits, (5,) * 40, publishing=publishing)
    assert np.array_equal(possible_on_spark(spark, problem), possible_storages(problem))
