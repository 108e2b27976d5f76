"""Work that Ctrl-C stops in order."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

from pyspark import SparkContext, inheritable_thread_target
from pyspark.sql import SparkSession

Result = TypeVar("Result")

LONGEST_WAIT = 30.0
"""Seconds that a task, asked to end, is given."""


def stoppable(spark: SparkSession, work: Callable[[], Result]) -> Result:
    """Do `work`; if it fails or Ctrl-C ends it, nothing that Spark does for it runs on when this is known.

    The work has a thread of its own. Ctrl-C is raised in the main one, and so never within a call of Spark's,
    which would leave the caller without a way to tell when the JVM is done. Whoever pressed it is told at once
    that it was heard.
    """
    context = spark.sparkContext
    group = f"newsstand-{uuid.uuid4()}"

    def grouped() -> Result:
        context.setJobGroup(group, "newsstand", interruptOnCancel=True)
        return work()

    with ThreadPoolExecutor(1) as pool:
        doing: Future[Result] = pool.submit(inheritable_thread_target(spark)(grouped))
        try:
            return doing.result()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):  # tasks may take their time to end
                print("newsstand: stopping, once Spark's tasks have ended", file=sys.stderr, flush=True)
            with suppress(Exception):  # of a JVM that is gone nothing runs on
                _cancel(context, group)
                wait([doing])
                _wait_for_tasks(context)
            raise


def _cancel(context: SparkContext, group: str) -> None:
    context.setLogLevel("OFF")  # what is cancelled would log that it is
    context._jsc.sc().cancelJobGroupAndFutureJobs(group)


def _wait_for_tasks(context: SparkContext) -> None:
    tracker = context._jsc.sc().statusTracker()
    deadline = time.monotonic() + LONGEST_WAIT
    while time.monotonic() < deadline and any(one.numRunningTasks() for one in tracker.getExecutorInfos()):
        time.sleep(0.1)
    context.setLogLevel("ERROR")
