"""What a long command shows on a terminal while it works: on standard error, and only there."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
errors = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """A line for the user, not for programs."""
    errors.print(text, markup=False, soft_wrap=True)


def each(items: Iterable[Item], total: int, text: str) -> Iterator[Item]:
    """The items, with a bar that follows them."""
    if not sys.stderr.isatty():
        yield from items
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        yield from bar.track(items, total=total, description=text)


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


@contextmanager
def advancing(text: str) -> Iterator[Callable[[int], Callable[[int], object]]]:
    """A bar for work of a size that becomes known later: call what this gives with it, and what that gives with
    each piece that is done."""
    if not sys.stderr.isatty():
        yield lambda total: lambda piece: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:

        def begin(total: int) -> Callable[[int], object]:
            task = bar.add_task(text, total=total)
            return lambda piece: bar.advance(task, piece)

        yield begin
