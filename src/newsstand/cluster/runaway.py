"""Tasks that go on after their job was cancelled, because a regular expression does not come to an end."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession

_TASK = re.compile(r"Executor task launch worker for task \S+ in stage (\d+)\.\d+ ")
_EXPRESSION = "java.util.regex."


def end_runaway_expressions(spark: SparkSession) -> int:
    """End tasks of stages that are over if they match a regular expression; return how many are left.

    Neither cancellation nor interruption reaches a thread inside of Java's regular expressions, which hold nothing
    that others share: such a thread is stopped from outside. Java does so up to version 19. Tasks are found where
    they run in the driver's process; executors of a real cluster are ended by Spark (`spark.task.reaper`).
    """
    jvm: Any = spark.sparkContext._jvm
    tracker: Any = spark.sparkContext._jsc.sc().statusTracker()
    active = set(tracker.getActiveStageIds())
    left = 0
    for entry in jvm.java.lang.Thread.getAllStackTraces().entrySet():
        thread, trace = entry.getKey(), entry.getValue()
        task = _TASK.match(str(thread.getName()))
        if task is None or int(task[1]) in active:
            continue
        left += 1
        if any(str(line.getClassName()).startswith(_EXPRESSION) for line in list(trace)[:50]):
            thread.stop()
    return left
