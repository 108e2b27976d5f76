"""When channels are executed: continuous ones as publications arrive, repetitive ones every period.

Continuous channels over one dataset share its micro-batches.
Repetitive channels with one dataset and period share a reading of the log. Periods are measured by the monotonic
clock, so that changes of the wall clock have no effect (docs/decisions/0011).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.storagelevel import StorageLevel

from newsstand.cluster.log.contract import Log
from newsstand.cluster.matching.executor import Executor, RunningChannel
from newsstand.cluster.matching.micro_batches import MicroBatches, MicroBatchLimits, PublicationBatch, read_batch
from newsstand.cluster.results.stores import ResultStores
from newsstand.errors import LogDamage
from newsstand.model import Dataset
from newsstand.spark.internals import first_line

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SchedulerLimits:
    """Limits and intervals of a scheduler."""

    tick_s: float = 0.05
    """Seconds between two checks of what is due."""
    concurrency: int = 64
    """Executions that run at the same time: a long one must leave room for the others."""
    patience_s: float = 1.0
    """Seconds that channels which share a micro-batch wait for one another."""
    reading_patience_s: float = 3.0
    """The same for a micro-batch that each of them would otherwise read from the log again."""
    micro_batches: MicroBatchLimits = MicroBatchLimits()  # noqa: RUF009


@dataclass(eq=False)
class PeriodicTask:
    """Work that is done beside executions, in a fixed interval."""

    work: Callable[[], object]
    seconds: float
    due: float


@dataclass(eq=False)
class Scheduler:
    """Executes the channels that were added, until it is stopped."""

    spark: SparkSession
    log: Log
    stores: ResultStores
    executor: Executor
    max_batch: int
    limits: SchedulerLimits = SchedulerLimits()

    def __post_init__(self) -> None:
        self._channels: dict[str, RunningChannel] = {}
        self._micro_batches: dict[str, MicroBatches] = {}
        self._due: dict[tuple[str, float], float] = {}
        self._behind: set[str] = set()
        """Continuous channels that may be behind the micro-batches, which do not wait for them."""
        self._executing: set[RunningChannel] = set()
        """Channels with an execution that is running, or that waits for a thread."""
        self._tasks: list[PeriodicTask] = []
        self._busy: dict[object, Future[None]] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(self.limits.concurrency, thread_name_prefix="cohort")
        """For cohorts of repetitive channels, and for channels that failed or are behind."""
        self._channel_pool = ThreadPoolExecutor(self.limits.concurrency, thread_name_prefix="execution")
        """For the executions of single channels, which may take long."""
        self._task_pool = ThreadPoolExecutor(2, thread_name_prefix="periodic-task")
        """For periodic tasks, which must neither wait for executions nor delay the clock."""
        self._timer = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def every(self, seconds: float, work: Callable[[], object]) -> None:
        """Add a periodic task."""
        self._tasks.append(PeriodicTask(work, seconds, time.monotonic() + seconds))

    def start(self) -> None:
        """Start executing, unless it has been stopped."""
        if not self._stopping.is_set():
            self._timer.start()

    def stop(self) -> None:
        """Stop; a running execution is either stored whole or not at all."""
        self._stopping.set()
        if self._timer.ident is not None:
            self._timer.join()
        self._task_pool.shutdown(cancel_futures=True)
        with self._lock:
            channels = list(self._channels.values())
        for running in channels:
            self.executor.remove(running)
        for one in self._micro_batches.values():
            one.stopping.set()
        for one in self._micro_batches.values():
            one.stop()
        self._pool.shutdown(cancel_futures=True)
        self._channel_pool.shutdown(cancel_futures=True)

    def add(self, running: RunningChannel) -> None:
        """Execute a channel from now on, in place of the one of its name."""
        with self._lock:
            self._channels[running.channel.name] = running
            if running.channel.period_s is None:
                self._behind.add(running.channel.name)

    def remove(self, name: str) -> None:
        """Stop executing a channel; cancel its execution and return when it has ended."""
        with self._lock:
            running = self._channels.pop(name, None)
        if running is not None:
            self.executor.remove(running)

    def channels(self) -> list[RunningChannel]:
        """Return all channels that are executed."""
        with self._lock:
            return list(self._channels.values())

    def running(self, name: str) -> RunningChannel | None:
        """Return the channel of that name, if it is being executed."""
        return self._channels.get(name)

    def cohort(self, name: str) -> list[str]:
        """Return the other channels that share each reading of the log with a channel."""
        with self._lock:
            running = self._channels.get(name)  # None while the channel is being changed
            key = running and (running.channel.new, running.channel.period_s)
            cohort = (one.channel for one in self._channels.values())
            return sorted(one.name for one in cohort if (one.new, one.period_s) == key and one.name != name)

    @property
    def executing(self) -> list[str]:
        """The channels with an execution that is running, or that waits for a thread."""
        with self._lock:
            return sorted(running.channel.name for running in self._executing)

    @property
    def behind(self) -> list[str]:
        """The continuous channels that catch up later, since micro-batches have left them out."""
        with self._lock:
            return sorted(self._behind)

    def problems(self) -> list[str]:
        """Return what prevents executions: datasets that cannot be read, and channels with a damaged log."""
        batches = list(self._micro_batches.items())
        found = [f"micro-batches of {name}: {one.error}" for name, one in batches if one.error]
        for running in list(self._channels.values()):
            failure = running.failure
            if failure is not None and failure.error.startswith("LogDamage"):
                found.append(f"channel {running.channel.name}: {failure.error}")
        return found

    # The clock

    def _run(self) -> None:
        while not self._stopping.wait(self.limits.tick_s):
            try:
                self._tick(time.monotonic())
            except Exception as error:
                logger.error("scheduler: %s", first_line(error))
                self._stopping.wait(1.0)

    def _tick(self, now: float) -> None:
        self._busy = {key: future for key, future in self._busy.items() if not future.done()}
        for task in self._tasks:
            if now >= task.due and self._submit(task, self._task_pool, task.work):
                task.due = now + task.seconds
        with self._lock:
            channels = list(self._channels.values())
        self._submit("micro-batches", self._task_pool, self._follow_datasets, channels)
        cohorts: dict[tuple[str, float], list[RunningChannel]] = {}
        for running in channels:
            if running.failure is not None or running.channel.name in self._behind:
                self._retry_if_due(running, now)
            elif running.channel.period_s is not None:
                cohorts.setdefault((running.channel.new, running.channel.period_s), []).append(running)
        self._due = {cohort: self._due.get(cohort, now + cohort[1]) for cohort in cohorts}
        for cohort, every in cohorts.items():
            members = [running for running in every if running not in self._executing]
            late_s = now - self._due[cohort]
            if members and late_s >= 0 and self._submit(cohort, self._pool, self._run_cohort, members):
                self._due[cohort] += (late_s // cohort[1] + 1) * cohort[1]

    def _retry_if_due(self, running: RunningChannel, now: float) -> None:
        name = running.channel.name
        if running in self._executing or (running.failure is not None and now < running.failure.retry_at):
            return
        with self._lock:  # before the execution begins, since micro-batches may leave it behind from then on
            if self._channels.get(name) is running:
                self._behind.discard(name)
        if not self._submit(("retry", name), self._pool, self._retry, running):
            with self._lock:
                self._behind.add(name)

    def _submit(
        self, key: object, pool: ThreadPoolExecutor, work: Callable[..., object], *arguments: object
    ) -> bool:
        """Run work in another thread, unless the last one of this key is still running."""
        if key in self._busy:
            return False
        self._busy[key] = pool.submit(_log_errors, work, *arguments)
        return True

    # Executions

    def _retry(self, running: RunningChannel) -> None:
        """Execute a channel that failed or is behind."""
        if not self._claim([running]):
            return
        failed = running.failure is not None
        self._execute(running, None, None)
        if failed and running.failure is None:
            # Micro-batches that arrived meanwhile have left it out.
            with self._lock:
                self._behind.add(running.channel.name)

    def _run_cohort(self, members: list[RunningChannel]) -> None:
        """Execute repetitive channels with one dataset and period on one reading of the log."""
        dataset = members[0].datasets[members[0].channel.new]
        through = self.log.head(dataset.name)
        positions = [self.stores.results.position(running.channel.name) for running in members]
        behind = [position for position in positions if position is not None and position < through]
        if not behind:
            return
        after, batch = min(behind), None
        if len(behind) > 1 and through - after <= self.max_batch:
            with suppress(LogDamage):  # each channel that reads it fails with it
                batch = read_batch(self.spark, self.log, dataset, after, through)
        self.advance(members, through, batch)

    def advance(self, members: Sequence[RunningChannel], through: int, batch: PublicationBatch | None) -> None:
        """Execute channels side by side on one reading of the log, and wait for all but the slow ones."""
        if self._stopping.is_set():
            return
        with self._lock:
            current = self._claim([one for one in members if self._channels.get(one.channel.name) is one])
        if not current:
            return
        several = batch is not None and batch.table is None and len(current) > 1
        shared = batch.frame if batch is not None and several else None
        if shared is not None:
            shared.persist(StorageLevel.MEMORY_AND_DISK_DESER)
        try:
            patience_s = self.limits.patience_s if shared is None else self.limits.reading_patience_s
            wait([self._start(one, through, batch) for one in current], patience_s)
        finally:
            if shared is not None:
                shared.unpersist()  # slow channels read the log

    def _claim(self, members: Sequence[RunningChannel]) -> list[RunningChannel]:
        """Mark and return those that are not being executed; the other continuous ones catch up later."""
        with self._lock:
            busy = self._executing.intersection(members)
            self._behind.update(one.channel.name for one in busy if one.channel.period_s is None)
            free = [one for one in members if one not in busy]
            self._executing.update(free)
            return free

    def _start(self, running: RunningChannel, through: int, batch: PublicationBatch | None) -> Future[None]:
        """Execute a claimed channel in a thread, as soon as one is free."""
        try:
            execution = self._channel_pool.submit(self._execute, running, through, batch)
        except RuntimeError:  # the scheduler has stopped
            self._release(running)
            raise
        execution.add_done_callback(lambda future: self._release(running) if future.cancelled() else None)
        return execution

    def _release(self, running: RunningChannel) -> None:
        with self._lock:
            self._executing.discard(running)

    def _execute(self, running: RunningChannel, through: int | None, batch: PublicationBatch | None) -> None:
        """Execute a claimed channel up to a publication, or up to the newest one."""
        try:
            end = self.log.head(running.channel.new) if through is None else through
            self.executor.advance(running, end, batch)
        except Exception as error:
            logger.error("channel %s: %s", running.channel.name, first_line(error))
        finally:
            self._release(running)

    # Micro-batches

    def _follow_datasets(self, channels: list[RunningChannel]) -> None:
        """Start the micro-batches that continuous channels need, and stop the others."""
        needed: Mapping[str, Dataset] = {
            running.channel.new: running.datasets[running.channel.new]
            for running in channels
            if running.channel.period_s is None
        }
        if self._stopping.is_set():
            return
        for name in [name for name, one in self._micro_batches.items() if needed.get(name) != one.dataset]:
            self._micro_batches.pop(name).stop()
        for name, dataset in needed.items():
            if name not in self._micro_batches:
                self._micro_batches[name] = self._follow(dataset)

    def _follow(self, dataset: Dataset) -> MicroBatches:
        name = dataset.name

        def position() -> int:
            """Return the earliest position of the channels that use the micro-batches."""
            positions = [self.stores.results.position(running.channel.name) for running in self.continuous(name)]
            return min((one for one in positions if one is not None), default=self.log.head(name))

        return MicroBatches(
            dataset,
            self.spark,
            self.log,
            self.max_batch,
            position,
            lambda batch: self.advance(self.continuous(name), batch.through, batch),
            self.limits.micro_batches,
        )

    def continuous(self, dataset: str) -> list[RunningChannel]:
        """Return the channels that use micro-batches of a dataset; those still being executed catch up later."""
        with self._lock:
            every = [
                running
                for running in self._channels.values()
                if running.channel.new == dataset and running.channel.period_s is None and running.failure is None
            ]
            self._behind.update(one.channel.name for one in every if one in self._executing)
            return [one for one in every if one not in self._executing]


def _log_errors(work: Callable[..., object], *arguments: object) -> None:
    try:
        work(*arguments)
    except Exception as error:
        logger.error("%s: %s", getattr(work, "__name__", work), first_line(error))
