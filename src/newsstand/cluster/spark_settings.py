"""Settings of Spark that suit a data cluster: many small executions, and now and then a large one."""

from __future__ import annotations

import os
from collections.abc import Mapping

SHARED = 4
"""Executions that can use all cores of a machine and leave some to the next."""

_LOCAL_FILES = {
    # Hadoop otherwise starts processes (chmod, readlink) for each file of a checkpoint: twice the time of a batch.
    # What these weaken, recovery from a checkpoint, is not used: positions stand with the results.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    # Hadoop does not ask the process for its umask. Scratch files and tables hold publications.
    "spark.hadoop.fs.permissions.umask-mode": "077",
}


def cluster_settings(configured: Mapping[str, str]) -> dict[str, str]:
    """Settings for executing channels, with those that an app configures on top."""
    return {
        # A task that fails is tried again, as on a real cluster. More tasks run at a time than there are cores, so
        # that one execution cannot take all places: the operating system shares the cores out.
        "spark.master": f"local[{SHARED * (os.cpu_count() or 1)},4]",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.pollingDelay": "20ms",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.stopTimeout": "10s",
        # Rows that are part of a plan are hashed and compared with it for each execution: not more than this.
        "spark.sql.execution.arrow.localRelationThreshold": "256KB",
        "spark.sql.runSQLOnFiles": "false",  # a channel's query reads datasets and nothing else
        "spark.scheduler.mode": "FAIR",  # a long execution does not hold up a short one
        # An expression that recurses too deeply, such as a regular expression, ends its task and not Spark.
        "spark.executor.killOnFatalError.depth": "0",
        **_LOCAL_FILES,
        **configured,
    }
