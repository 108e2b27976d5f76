"""Demand for topics out of brokers' access logs: what a planner needs to know, counted on Spark.

A broker writes each request for the past of a topic into `topics.csv` of its access log, and sets full tables
aside in folders `until-…` beside it. The broker is the folder that holds the log, or, if that is called `access`,
the one above.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from newsstand.errors import BadInput
from newsstand.spark import stoppable

TABLE = "topics.csv"
SCHEMA = "time_ms LONG, topic STRING, hops INT"
ASIDE = re.compile(r"until-\d+")


def broker_of(file: Path) -> str:
    """Whose log a table is in.

    >>> broker_of(Path("/logs/north/topics.csv")), broker_of(Path("/data/south/access/until-17/topics.csv"))
    ('north', 'south')
    """
    folder = file.parent
    if ASIDE.fullmatch(folder.name):
        folder = folder.parent
    return folder.parent.name if folder.name == "access" else folder.name


def tables_in(folders: Iterable[Path]) -> list[Path]:
    """All tables of requests in some folders, each once."""
    found: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise BadInput(f"--demand {folder}: no such folder")
        tables = {file.resolve() for file in folder.rglob(TABLE)}
        if not tables:
            raise BadInput(f"--demand {folder}: there is no {TABLE} in it")
        found |= tables
    return sorted(found)


def counted(requests: DataFrame) -> DataFrame:
    """Requests by file and topic, and between which times; rows that a crash has cut off are left out."""
    whole = requests.where("time_ms IS NOT NULL AND topic IS NOT NULL AND hops IS NOT NULL")
    return whole.groupBy("file", "topic").agg(
        F.count("*").alias("requests"), F.min("time_ms").alias("first"), F.max("time_ms").alias("last")
    )


def demand_of(spark: SparkSession, folders: Sequence[Path], nodes: Mapping[str, int]) -> dict[str, list[float]]:
    """Requests per second for each topic at each node: the field `topics` of a network file.

    `nodes` has the number of each broker. The time is that from the first to the last request in any log.
    """
    tables = tables_in(folders)
    for file in tables:
        if broker_of(file) not in nodes:
            raise BadInput(f"{file}: no broker of the network is called '{broker_of(file)}'")
    read = spark.read.csv([str(file) for file in tables], SCHEMA, header=True, escape='"')
    requests = read.withColumn("file", F.col("_metadata.file_path"))
    found = stoppable(spark, lambda: counted(requests).collect())
    if not found:
        raise BadInput(f"--demand {' '.join(map(str, folders))}: nobody has asked for anything")
    span_ms = max(row["last"] for row in found) - min(row["first"] for row in found)
    demand: dict[str, list[float]] = {topic: [0.0] * len(nodes) for topic in sorted({r["topic"] for r in found})}
    for row in found:
        node = nodes[broker_of(Path(unquote(urlparse(row["file"]).path)))]
        demand[row["topic"]][node - 1] += row["requests"]
    seconds = max(span_ms, 1) / 1000
    return {topic: [one / seconds for one in row] for topic, row in demand.items()}
