"""Planning on Spark gives the plans of planning in this process."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from pyspark.sql import SparkSession

from newsstand.lab.planning import possible_on_spark
from newsstand.overlay.topology import Topology
from newsstand.planning.problem import Problem, ReplicationLimits, to_whole_units
from newsstand.planning.solvers.greedy import possible_storages


@pytest.mark.parametrize("publishing", [None, np.arange(40)])
def test_possible_storages_on_spark_agree(spark: SparkSession, publishing: np.ndarray | None) -> None:
    tree = nx.random_labeled_tree(40, seed=1)
    demand, unit = to_whole_units(np.random.default_rng(2).integers(0, 9, (5, 40)).tolist(), 40)
    topology = Topology(40, [(a + 1, b + 1) for a, b in tree.edges])
    limits = tuple(ReplicationLimits(k, k) for k in (1, 2, 3, 4, 5))
    problem = Problem(topology, tuple("abcde"), demand, unit, limits, (5,) * 40, publishing=publishing)
    assert np.array_equal(possible_on_spark(spark, problem), possible_storages(problem))
