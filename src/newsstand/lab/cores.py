"""Independent tasks on all cores: compiled functions in threads, and others, which hold the lock, in processes."""

from __future__ import annotations

import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
Shared = TypeVar("Shared")


def on_all_cores(run: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
    """Yield the result of each task, in their order; no task begins after an error or the end of the caller.

    The process ends at once on Ctrl-C: a kernel cannot be interrupted, and its thread, unlike that of an
    executor, is not waited for.
    """
    waiting = deque((task, Future[Result]()) for task in tasks)
    futures = [future for _, future in waiting]

    def work() -> None:
        while True:
            try:
                task, future = waiting.popleft()
            except IndexError:
                return
            try:
                future.set_result(run(task))
            except BaseException as error:
                future.set_exception(error)

    for _ in range(min(len(waiting), os.cpu_count() or 1)):
        Thread(target=work, daemon=True).start()
    try:
        for future in futures:
            yield future.result()
    finally:
        waiting.clear()


@contextmanager
def in_processes(
    run: Callable[[Shared, Task], Result], shared: Shared, processes: int
) -> Iterator[Callable[[Iterable[Task]], Iterator[Result]]]:
    """Yield a function that yields the result of each task, in their order, from new processes.

    With one process, this one runs them. `run` is a function of a module, called with `shared` and a task. After
    an error or Ctrl-C the processes end at once.
    """
    if processes == 1:
        yield partial(map, partial(run, shared))
        return
    before = set(active_children())
    with TemporaryDirectory(prefix="newsstand-") as folder:
        # Each process reads it from a file: through a pipe, one process would start after the other.
        file = Path(folder) / "shared"
        with file.open("wb") as pickled:
            pickle.dump((run, shared), pickled, protocol=pickle.HIGHEST_PROTOCOL)
        # A process that is forked may wait for a lock that a thread of this one holds.
        pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (file,))

        def results(tasks: Iterable[Task]) -> Iterator[Result]:
            # The processes inherit the mask: on Ctrl-C a terminal signals them too, and this one ends them.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                futures = [pool.submit(_run, task) for task in tasks]
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for future in futures:
                yield future.result()

        try:
            yield results
        except BaseException:
            for process in set(active_children()) - before:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


_work: list[Callable[[Any], Any]] = []
"""What a process of `in_processes` runs."""


def _begin(file: Path) -> None:
    """Prepare a process for its tasks; it ends with its parent, however that ends."""
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    Thread(target=follow, daemon=True).start()
    with file.open("rb") as pickled:
        run, shared = pickle.load(pickled)
    _work.append(partial(run, shared))


def _run(task: Any) -> Any:
    return _work[0](task)
