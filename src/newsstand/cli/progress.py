"""What a long command shows on a terminal while it works: on standard error, and only there."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

errors = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """A line for the user, not for programs."""
    errors.print(text, markup=False, soft_wrap=True)


@contextmanager
def progress(spark: SparkSession, text: str) -> Iterator[None]:
    """A bar that follows the tasks of the stage that Spark is in."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(text, total=None)

        def follow() -> None:
            tracker = spark.sparkContext.statusTracker()
            while not done.wait(0.3):
                for stage in tracker.getActiveStageIds():
                    if info := tracker.getStageInfo(stage):
                        bar.update(task, total=info.numTasks, completed=info.numCompletedTasks)

        watcher = threading.Thread(target=follow, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
