"""Modified greedy on Spark: topics do not know of each other, so each of them is a task.

The network is sent to the executors once. What a topic comes to depends on nothing but the topic, so the answer is
that of `newsstand.planning.greedy.possible_storages`.
"""

from __future__ import annotations

import numpy as np
from pyspark.sql import SparkSession

from newsstand.planning.greedy import network_of, possible_for
from newsstand.planning.problem import Ints, Problem
from newsstand.planning.replication import replicas
from newsstand.spark import stoppable


def possible_on_spark(spark: SparkSession, problem: Problem) -> Ints:
    """PS, a row a topic (Sourlas et al. 2011, section 5.2)."""
    network = network_of(problem)
    possible_for(
        network, np.zeros_like(problem.demand[0]), 1, problem.publishing
    )  # compiled here, found by workers
    sent = spark.sparkContext.broadcast((network, problem.publishing))
    tasks = [(row.tobytes(), wanted) for row, wanted in zip(problem.demand, replicas(problem), strict=True)]

    def possible(task: tuple[bytes, int]) -> bytes:
        row, wanted = task
        of_network, publishing = sent.value
        return possible_for(of_network, np.frombuffer(row, np.int64), wanted, publishing).tobytes()

    try:
        listed = spark.sparkContext.parallelize(tasks, len(tasks))
        rows = stoppable(spark, lambda: listed.map(possible).collect())
    finally:
        sent.destroy()
    return np.array([np.frombuffer(row, np.int64) for row in rows])
