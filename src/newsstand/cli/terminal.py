"""Output on a terminal: tables on standard output, notes and progress on standard error."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
errors = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """Print a line for the user, not for programs."""
    errors.print(text, markup=False, soft_wrap=True)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], left: Collection[str]) -> None:
    """Print rows under titles of columns: those in `left` aligned to the left, the others to the right."""
    columns = [
        [cell.ljust(width) if title in left else cell.rjust(width) for cell in (title, *cells)]
        for title, *cells in zip(titles, *rows, strict=True)
        for width in [max(map(len, (title, *cells)))]
    ]
    for row in zip(*columns, strict=True):
        print("  ".join(row).rstrip())


def progress_bar() -> Progress:
    """Return a progress bar, which disappears at the end, and shows nothing without a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, console=errors, transient=True, disable=not sys.stderr.isatty())


def each(items: Iterable[Item], total: int, text: str) -> Iterator[Item]:
    """Yield the items, with a bar that follows them."""
    with progress_bar() as bar:
        yield from bar.track(items, total=total, description=text)


@contextmanager
def progress(spark: SparkSession, text: str) -> Iterator[None]:
    """Show a bar that follows the tasks of the stage that Spark is in."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    with progress_bar() as bar:
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
    """Yield a function that takes the size of the work and returns one that takes each piece that is done."""
    with progress_bar() as bar:

        def begin(total: int) -> Callable[[int], object]:
            task = bar.add_task(text, total=total)
            return lambda piece: bar.advance(task, piece)

        yield begin
