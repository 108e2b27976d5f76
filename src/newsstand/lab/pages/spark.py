"""The Spark engine: replays of a trace of any size, in tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from newsstand.errors import BadTrace
from newsstand.lab.pages.clustered import replay_clustered, shards
from newsstand.lab.pages.replay import PolicyRun, ReplayJob, prepare, report
from newsstand.lab.pages.results import collect
from newsstand.lab.pages.sampling import checked_share
from newsstand.lab.pages.shuffled import PRESENT, events, replay_shuffled
from newsstand.workload.trace.folder import Trace, behind_one_proxy, check


def simulate(
    spark: SparkSession, trace: Trace, wanted: Sequence[PolicyRun], job: ReplayJob
) -> list[dict[str, object]]:
    """Replay a trace: one object per wanted run, with the fields of `simulate --json`."""
    prepare(job)
    replayed = behind_one_proxy(trace) if job.one_proxy else trace
    if job.sample != 1:
        job = replace(job, sample=_share(replayed, job))
    parts = shards(replayed.folder) if replayed.folder is not None else None
    if parts is not None:
        check(trace, ("publications",))
        results = replay_clustered(spark, parts, job)
    else:
        check(trace)
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions", "4") or 4)
        results = replay_shuffled(replayed, job, partitions)
    try:
        return report(job, wanted, collect(results))
    except BadTrace:
        check(trace)  # whose error names the file and the row
        raise


def _share(trace: Trace, job: ReplayJob) -> float:
    demanded = events(trace).where(F.col("kind") != PRESENT).select("proxy", "page").distinct()
    pages, proxies = demanded.agg(F.count(F.lit(1)), F.count_distinct("proxy")).first() or (0, 0)
    return checked_share(job.sample, pages, proxies)
