"""Storage planning in the lab: demand for topics, the modified greedy algorithm on Spark, and figures of plans.

A broker writes each request for the past of a topic into `topics.csv` of its access log, and sets full tables
aside in folders `until-…` beside it. The broker is the folder that holds the log, or, if that is called `access`,
the one above.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

import networkx as nx
import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from newsstand.errors import BadInput, BadOption
from newsstand.lab.reporting.figures import COLOURS, panels, require_drawable, save
from newsstand.lab.reporting.run_cache import run_on_spark
from newsstand.planning.problem import Ints, Plan, Problem
from newsstand.planning.replication import replicas
from newsstand.planning.solvers.greedy import possible_for, topology_arrays
from newsstand.spark import run_cancellable

TABLE = "topics.csv"
SCHEMA = "time_ms LONG, topic STRING, hops INT"
ASIDE = re.compile(r"until-\d+")


def broker_of(file: Path) -> str:
    """Return the name of the broker that wrote a table.

    >>> broker_of(Path("/logs/north/topics.csv")), broker_of(Path("/data/south/access/until-17/topics.csv"))
    ('north', 'south')
    """
    folder = file.parent
    if ASIDE.fullmatch(folder.name):
        folder = folder.parent
    return folder.parent.name if folder.name == "access" else folder.name


def tables_in(folders: Iterable[Path]) -> list[Path]:
    """Return all tables of requests in some folders, each once."""
    found: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise BadOption("no such folder", demand=folder)
        tables = {file.resolve() for file in folder.rglob(TABLE)}
        if not tables:
            raise BadOption(f"has no {TABLE}; name the data folders of brokers", demand=folder)
        found |= tables
    return sorted(found)


def count_requests(requests: DataFrame) -> DataFrame:
    """Count requests by file and topic, with the first and last time; rows that a crash cut off are left out."""
    complete = requests.where("time_ms IS NOT NULL AND topic IS NOT NULL AND hops IS NOT NULL")
    return complete.groupBy("file", "topic").agg(
        F.count("*").alias("requests"), F.min("time_ms").alias("first"), F.max("time_ms").alias("last")
    )


def demand_of(spark: SparkSession, folders: Sequence[Path], nodes: Mapping[str, int]) -> dict[str, list[float]]:
    """Return requests per second for each topic at each node: the field `topics` of a network file.

    `nodes` has the number of each broker. The time is that from the first to the last request in any log.
    """
    tables = tables_in(folders)
    for file in tables:
        if broker_of(file) not in nodes:
            raise BadInput(f"{file}: the network has no broker '{broker_of(file)}'")
    read = spark.read.csv([str(file) for file in tables], SCHEMA, header=True, escape='"')
    requests = read.withColumn("file", F.col("_metadata.file_path"))
    found = run_cancellable(spark, lambda: count_requests(requests).collect())
    if not found:
        raise BadOption("the logs have no requests; name others", demand=" ".join(map(str, folders)))
    span_ms = max(row["last"] for row in found) - min(row["first"] for row in found)
    demand: dict[str, list[float]] = {topic: [0.0] * len(nodes) for topic in sorted({r["topic"] for r in found})}
    for row in found:
        node = nodes[broker_of(Path(unquote(urlparse(row["file"]).path)))]
        demand[row["topic"]][node - 1] += row["requests"]
    seconds = max(span_ms, 1) / 1000
    return {topic: [one / seconds for one in row] for topic, row in demand.items()}


def possible_on_spark(spark: SparkSession, problem: Problem) -> Ints:
    """Return PS, a row a topic (Sourlas et al. 2011, section 5.2)."""
    network = topology_arrays(problem)
    nothing = np.zeros_like(problem.demand[0])
    possible_for(network, nothing, 1, problem.publishing)  # compiled here, found by workers
    sent = spark.sparkContext.broadcast((network, problem.publishing))
    tasks = [(row.tobytes(), wanted) for row, wanted in zip(problem.demand, replicas(problem), strict=True)]

    def possible(task: tuple[bytes, int]) -> bytes:
        row, wanted = task
        of_network, publishing = sent.value
        return possible_for(of_network, np.frombuffer(row, np.int64), wanted, publishing).tobytes()

    try:
        rows = run_on_spark(spark, tasks, possible)
    finally:
        sent.destroy()
    return np.array([np.frombuffer(row, np.int64) for row in rows])


MOST_NODES = 300
"""Figures of larger networks are not legible."""


def require_small(problem: Problem, path: Path) -> None:
    """Reject a figure that is not legible, before anything is computed for it."""
    require_drawable(path)
    if problem.topology.nodes > MOST_NODES:
        raise BadOption(f"only networks of up to {MOST_NODES} nodes are drawn", figure=path)


def draw_plan(problem: Problem, plan: Plan, path: Path, title: str) -> None:
    """Draw nodes as large as their demand, and storages in colour, with the topics that each keeps."""
    graph = nx.Graph(problem.topology.edges)
    graph.add_nodes_from(range(1, problem.topology.nodes + 1))
    places = nx.kamada_kawai_layout(graph) if len(graph) > 1 else {1: (0.0, 0.0)}
    figure, (axes,) = panels(1, width=7.4, height=5.6)
    axes.set_axis_off()
    axes.grid(visible=False)
    axes.margins(0.12)
    for a, b in problem.topology.edges:
        axes.plot(*zip(places[a], places[b], strict=True), color="#c0c0c0", lw=1, zorder=1)
    shares = problem.demand.sum(axis=0) / problem.demand.sum(axis=0).max()
    for node in sorted(graph):
        is_storage = node in plan.storages
        colour = COLOURS[1] if is_storage else COLOURS[0]
        x, y = places[node]
        axes.scatter(x, y, s=120 + 400 * shares[node - 1], color=colour, zorder=2)
        axes.annotate(str(node), places[node], ha="center", va="center", color="white", fontsize=7, zorder=3)
        stored = [name for name, keepers in plan.assignment.items() if node in keepers]
        if is_storage and stored:
            text = ", ".join(stored) if len(stored) < 9 else f"{len(stored)} topics"
            axes.annotate(
                text, places[node], (0, 14), textcoords="offset points", ha="center", fontsize=8, zorder=3
            )
    axes.set_title(title)
    save(figure, path, (path.suffix,))
