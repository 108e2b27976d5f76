"""Cancelling work on Spark: on Ctrl-C or failure, and tasks that ignore their cancellation."""

from __future__ import annotations

import re
import sys
import time
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, TypeVar

from pyspark import SparkContext, inheritable_thread_target
from pyspark.sql import SparkSession

from newsstand.spark.internals import active_stages, cancel_group, executor_infos, jvm, long_array

Result = TypeVar("Result")

_TASK_THREAD = re.compile(r"Executor task launch worker for task \S+ in stage (\d+)\.\d+ ")
_EVALUATION = ("java.util.regex.", "org.apache.spark.sql.catalyst.expressions.")
"""Packages of regular expressions, and of Spark's expressions with the loops that Spark generates for them."""
_POOL_WORKER = "java.util.concurrent.ThreadPoolExecutor$Worker"
"""The lock that every thread of a pool holds while it works."""
_FIRST_JAVA_WITHOUT_STOP = 20
_KILL_DEPTH = "spark.executor.killOnFatalError.depth"
"""Unless this setting is 0, a task that is stopped ends Spark's process."""


def run_cancellable(spark: SparkSession, work: Callable[[], Result], patience_s: float = 30.0) -> Result:
    """Run `work`; on failure or Ctrl-C, cancel its Spark jobs, and give their tasks `patience_s` to end.

    The work runs in a thread of its own. Ctrl-C is raised in the main thread, and so never within a call to Spark,
    which would leave no way to know when the JVM is done. A message confirms Ctrl-C at once.
    """
    context = spark.sparkContext
    group = f"newsstand-{uuid.uuid4()}"

    def grouped() -> Result:
        context.setJobGroup(group, "newsstand", interruptOnCancel=True)
        return work()

    with ThreadPoolExecutor(1) as pool:
        running: Future[Result] = pool.submit(inheritable_thread_target(spark)(grouped))
        try:
            return running.result()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):  # tasks may take their time to end
                print("newsstand: stopping, once Spark's tasks have ended", file=sys.stderr, flush=True)
            with suppress(Exception):  # nothing runs in a JVM that has ended
                context.setLogLevel("OFF")  # cancelled jobs would log that they are
                cancel_group(context, group)
                wait([running])
                _wait_for_tasks(context, patience_s)
            raise


def _wait_for_tasks(context: SparkContext, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and any(one.numRunningTasks() for one in executor_infos(context)):
        time.sleep(0.1)
    context.setLogLevel("ERROR")


def end_runaway_tasks(spark: SparkSession, before: Collection[str] = ()) -> set[str]:
    """Return the tasks whose stage has ended, and stop those that the previous call returned too.

    One call is no proof: Spark reports active stages through a queue that can lag behind a new stage.

    Neither cancellation nor interruption reaches a regular expression that backtracks, nor a loop over a large
    join that yields no row. The thread of such a task is stopped from outside, which Java does up to version 19,
    and only where no other thread can notice: it evaluates expressions and holds no lock. Only tasks in the
    driver's process are found; Spark ends the executors of a real cluster (`spark.task.reaper`).
    """
    threads, names = {}, {}
    for thread in jvm(spark).java.lang.Thread.getAllStackTraces().keySet():
        name = str(thread.getName())
        if (task := _TASK_THREAD.match(name)) is not None:
            threads[thread.getId()] = thread, int(task[1])
            names[thread.getId()] = name
    # Read after the threads: a stage that has begun since then is none of theirs.
    active = active_stages(spark)
    runaway = {key: thread for key, (thread, stage) in threads.items() if stage not in active}
    can_stop = spark.sparkContext.getConf().get(_KILL_DEPTH) == "0"
    if runaway and can_stop and jvm(spark).java.lang.Runtime.version().feature() < _FIRST_JAVA_WITHOUT_STOP:
        # Stack and locks, all of one moment, of the threads that are still alive.
        bean = jvm(spark).java.lang.management.ManagementFactory.getThreadMXBean()
        for info in bean.getThreadInfo(long_array(spark, runaway), True, True):
            name = "" if info is None else str(info.getThreadName())
            # The thread may have taken another task meanwhile.
            if name in before and name == names[info.getThreadId()] and _is_isolated(info):
                runaway[info.getThreadId()].stop()
    return {name for key, name in names.items() if key in runaway}


def _is_isolated(info: Any) -> bool:
    """Return whether a thread evaluates expressions and no other thread depends on it."""
    frames = list(info.getStackTrace())
    return (
        any(str(frame.getClassName()).startswith(_EVALUATION) for frame in frames[:50])
        and all(str(frame.getMethodName()) != "<clinit>" for frame in frames)
        and not info.getLockedMonitors()
        and all(str(lock.getClassName()) == _POOL_WORKER for lock in info.getLockedSynchronizers())
    )
