"""`newsstand simulate`: a trace, some policies, capacities and betas; the counts of every combination."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from newsstand.caching.policy_file import PolicyFile
from newsstand.errors import BadTrace
from newsstand.lab.clustered import replay_clustered, shards
from newsstand.lab.replay import Job, Run, canonical, collect, prepare, report
from newsstand.lab.shuffled import replay_shuffled
from newsstand.workload.check import check
from newsstand.workload.trace import Trace


def plan(
    policies: Sequence[str],
    capacities: Sequence[str],
    betas: Sequence[float],
    policy_files: Sequence[PolicyFile] = (),
    *,
    per_proxy: bool = False,
    hourly: bool = False,
) -> tuple[list[Run], Job]:
    """The wanted runs, and the job that replays each distinct one once."""
    for file in policy_files:
        file.load()
    wanted = [Run(policy, capacity, beta) for policy in policies for capacity in capacities for beta in betas]
    distinct = tuple(dict.fromkeys(canonical(run) for run in wanted))
    return wanted, Job(distinct, tuple(policy_files), per_proxy, hourly)


def simulate(spark: SparkSession, trace: Trace, wanted: Sequence[Run], job: Job) -> list[dict[str, object]]:
    """Replay a trace: one object per wanted run, named as in the lab's contract."""
    prepare(job)
    parts = shards(trace.folder) if trace.folder is not None else None
    if parts is not None:
        check(trace, ("publications",))
        results = replay_clustered(spark, parts, job)
    else:
        check(trace)
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions", "4") or 4)
        results = replay_shuffled(trace, job, partitions)
    try:
        return report(job, wanted, collect(results))
    except BadTrace:
        check(trace)  # which tells the file and the row
        raise
