"""Executions of channels: match new publications with all subscriptions, and store the results exactly once.

A channel's position in its new dataset is stored together with its results. An execution always begins at that
position, whatever Spark or a crash has left of earlier attempts, so no publication is left out or matched twice.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Literal, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from newsstand.cluster.log.contract import Log
from newsstand.cluster.matching.failing_values import failing_streams, values_can_fail
from newsstand.cluster.matching.matcher import SparkMatches, match
from newsstand.cluster.matching.micro_batches import PublicationBatch, example_of, read_batch, sample_batch
from newsstand.cluster.matching.prepared import PreparedChannel
from newsstand.cluster.matching.tables import TableParts, Tables, values_table
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.query.parser import Body
from newsstand.cluster.results.model import Execution, Matches, TooManyResults
from newsstand.cluster.results.stores import ResultStores
from newsstand.cluster.stages import ExecutionStages
from newsstand.concurrency.pacing import Backoff
from newsstand.model import ChannelDefinition, Dataset, Scalar
from newsstand.spark.cancellation import end_runaway_tasks
from newsstand.spark.internals import caused_by_data, first_line, root_cause

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExecutorLimits:
    """Limits and intervals of an executor."""

    timeout_s: float = 300.0
    """Seconds after which an execution is cancelled."""
    results: int = 10_000_000
    """Results of an execution at most."""
    cancel_interval_s: float = 0.2
    """Seconds between two cancellations of an execution, which may start another job after the first one."""
    close_s: float = 10.0
    """Seconds that cancelled tasks have to end when the executor is closed."""
    runaway_checks: int = 3
    """Checks at which a cancelled task must still run before a warning is logged."""
    first_retry_s: float = 1.0
    """The longest wait before the first repetition of an execution that failed; it doubles each time."""
    longest_retry_s: float = 60.0
    first_warm_round: int = 6
    """The first round of a warm-up may take this many times its time."""
    warm_rounds: int = 3
    """Rounds of a warm-up after which it ends if none of them was faster than an earlier one."""
    change_warm_up_s: float = 2.0
    """How long a channel that was added or changed is executed on samples."""
    prepared_bytes: int = 128 * 2**10
    """Size of publications up to which an execution uses the channel's prepared plan."""
    prepared_pause_s: float = 60.0
    """Seconds for which a channel makes a new plan for each execution, after its prepared plan has failed for
    another reason than the data."""
    prepared_results: int = 50_000
    """Results of an execution after which the next one makes a new plan: one task executes a prepared one."""
    broadcast_publications: int = 200_000
    """A batch of more publications is not broadcast to Spark's executors."""
    error_chars: int = 500
    """Characters of an error, or of values, that are stored and logged."""


@dataclass(frozen=True)
class ExecutionFailure:
    """Why a channel makes no progress."""

    error: str
    since_ms: int
    attempts: int
    retry_at: float
    """Seconds of the monotonic clock."""


Phase = Literal["warm-up", "execution", "search"]
"""What a channel is executed for: on samples, on new publications, or in search of failing values."""


@dataclass(frozen=True)
class RunningExecution:
    """An execution that is running, on the publications after < seq <= through; a warm-up has no range."""

    phase: Phase
    after: int | None = None
    through: int | None = None
    began: float = field(default_factory=time.monotonic)
    """Seconds of the monotonic clock."""


@dataclass(eq=False)
class RunningChannel:
    """A channel that is executed again and again, and the state of its executions."""

    channel: ChannelDefinition
    body: Body
    datasets: Mapping[str, Dataset]
    """The datasets that its body reads."""
    failure: ExecutionFailure | None = None
    seconds: float = 0.0
    """The duration of its last execution."""
    prepared_at: float = 0.0
    """When its prepared plan is used again after a failure, in seconds of the monotonic clock."""
    warm: bool = True
    """Whether it needs no warm-up: it had one, or is to be executed without."""
    many: bool = False
    """Whether its last execution had many results."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    execution: RunningExecution | None = None
    """The execution that is running."""
    prepared: PreparedChannel = field(init=False)
    removed: bool = False
    """Whether the channel was dropped or redefined, and is not to be executed again."""

    def __post_init__(self) -> None:
        self.prepared = PreparedChannel(self.body)

    @property
    def definition(self) -> str:
        """A digest of the channel's query and parameters."""
        text = repr((self.channel.query, self.channel.new, self.channel.parameters))
        return blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def tag(self) -> str:
        """The tag of the Spark jobs of its executions."""
        return f"newsstand-channel-{self.channel.name}-{id(self)}"


def _is_settled(rounds: Sequence[float], latest: int) -> bool:
    """Return whether the latest rounds were hardly faster than the fastest before them."""
    return len(rounds) > latest and min(rounds[-latest:]) > 0.9 * min(rounds[:-latest])


@dataclass(eq=False)
class Executor:
    """Executes channels, one execution of a channel at a time. Methods may be called from several threads."""

    spark: SparkSession
    log: Log
    stores: ResultStores
    tables: Tables
    now_ms: Callable[[], int]
    metrics: Metrics
    max_batch: int
    notify: Callable[[], object] = lambda: None
    """Called when the outboxes of brokers may have new entries."""
    limits: ExecutorLimits = ExecutorLimits()
    warms_up: bool = False
    """Whether channels that are added or changed are executed on samples first."""

    def __post_init__(self) -> None:
        self._backoff = Backoff(self.limits.first_retry_s, self.limits.longest_retry_s)
        self._cancelled = threading.Event()
        """Set while tasks of cancelled executions may be running."""
        self._has_cancelled = False
        self._runaway: set[str] = set()
        """Such tasks that the last check found."""
        self._checks = 0
        """Successive checks that found such tasks."""

    def remove(self, running: RunningChannel) -> None:
        """Stop executing a channel: cancel its present execution, and return when it has ended."""
        running.removed = True
        cancelled = False
        while not running.lock.acquire(timeout=self.limits.cancel_interval_s):
            self._cancel(running.tag)
            cancelled = True
        running.prepared.clear()
        running.lock.release()
        if cancelled:
            self._cancelled.set()  # again: at an earlier check its stage may not have ended

    def end_cancelled(self) -> None:
        """End the tasks of cancelled executions that do not end by themselves."""
        if not self._cancelled.is_set():
            return
        self._cancelled.clear()
        try:
            self._runaway = end_runaway_tasks(self.spark, self._runaway)
        except Exception:
            self._cancelled.set()
            raise
        self._checks = self._checks + 1 if self._runaway else 0
        if self._runaway:
            self._cancelled.set()
        if self._checks == self.limits.runaway_checks:
            logger.warning(
                "tasks of cancelled executions that continue to run: %d; each occupies a core until it ends",
                self.runaway_tasks,
            )

    def close(self) -> None:
        """Stop the tasks of cancelled executions, which would occupy cores of the session; give up in time."""
        limits, quiet_checks = self.limits, 0
        deadline = time.monotonic() + limits.close_s
        while self._has_cancelled and quiet_checks < limits.runaway_checks and time.monotonic() < deadline:
            self._cancelled.set()
            self.end_cancelled()
            quiet_checks = 0 if self._runaway else quiet_checks + 1
            time.sleep(limits.cancel_interval_s)

    @property
    def runaway_tasks(self) -> int:
        """The number of tasks of cancelled executions that several successive checks found running."""
        return len(self._runaway) if self._checks >= self.limits.runaway_checks else 0

    def _cancel(self, tag: str) -> None:
        self.spark.sparkContext.cancelJobsWithTag(tag)
        self._has_cancelled = True
        self._cancelled.set()

    def advance(self, running: RunningChannel, through: int, batch: PublicationBatch | None = None) -> None:
        """Execute a channel on all publications up to `through` that it has not seen, in slices if they are many.

        A failure is stored in `running` and retried later; it never reaches the caller or other channels.
        """
        if self.warms_up and not running.warm:
            self.warm_up([running], self.limits.change_warm_up_s, threading.Event())
        with running.lock:
            try:
                while not running.removed:
                    position = self.stores.results.position(running.channel.name)
                    if position is None or position >= through:
                        break
                    whole = batch is not None and batch.after <= position
                    until = through if whole else min(through, position + self.max_batch)
                    self._execute_or_suspend(running, position, until, batch)
                running.failure = None
            except Exception as error:
                if not running.removed:  # a removed channel was cancelled: it does not fail
                    running.failure = self._failure(running, error)

    @contextmanager
    def _limited(
        self, running: RunningChannel, execution: RunningExecution, timeout_s: float | None = None
    ) -> Iterator[None]:
        """Tag the Spark jobs of an execution, and cancel them when it takes longer than the limit.

        Tags, and not job groups: a broadcast runs its job under a group of its own.
        """
        context, tag = self.spark.sparkContext, running.tag
        timeout_s = self.limits.timeout_s if timeout_s is None else timeout_s
        ended, overdue = threading.Event(), threading.Event()

        def cancel() -> None:
            while not ended.wait(self.limits.cancel_interval_s if overdue.is_set() else timeout_s):
                overdue.set()
                self._cancel(tag)

        context.addJobTag(tag)
        # Jobs of one pool run in the order of submission, and pools share the cores.
        context.setLocalProperty("spark.scheduler.pool", running.channel.name)
        running.execution = execution
        threading.Thread(target=cancel, name=f"limit of {running.channel.name}", daemon=True).start()
        try:
            yield
        except Exception as error:
            if isinstance(error, TooManyResults):
                self._cancel(tag)  # Spark computes the next partition in advance
            if overdue.is_set():
                raise TimeoutError(
                    f"the execution was cancelled after {timeout_s:g} s; make the query cheaper, or raise "
                    "execution_timeout of [cluster]"
                ) from error
            raise
        finally:
            ended.set()
            if overdue.is_set():
                self._cancelled.set()  # again: at an earlier check its stage may not have ended
            running.execution = None
            context.removeJobTag(tag)
            context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]

    def _execute_or_suspend(
        self, running: RunningChannel, after: int, through: int, batch: PublicationBatch | None
    ) -> None:
        """Execute a channel; if it fails on values, suspend their streams and go on with the others."""
        while True:
            try:
                with self._limited(running, RunningExecution("execution", after, through)):
                    return self._execute(running, after, through, batch)
            except Exception as error:
                if running.removed or not caused_by_data(error):
                    raise
                with self._limited(running, RunningExecution("search", after, through)):
                    if not self._suspend(running, after, through, batch):
                        raise

    def _execute(self, running: RunningChannel, after: int, through: int, batch: PublicationBatch | None) -> None:
        channel = running.channel
        began = time.monotonic()
        stages = self.metrics.stages.begin(channel.name, channel.new, after, through)
        matches = self._matches(running, after, through, batch, stages)
        execution = Execution(channel.name, channel.new, after, through, self.now_ms())
        stored = self.stores.results.store(execution, matches, self.now_ms, self.limits.results)
        if not stored.repeated:
            stages.stored(stored.execution)
        running.seconds = time.monotonic() - began
        running.many = stored.results > self.limits.prepared_results
        self.metrics.executed(channel.name, running.seconds, stored.results)
        if stored.streams:
            self.notify()

    def _matches(
        self,
        running: RunningChannel,
        after: int,
        through: int,
        batch: PublicationBatch | None,
        stages: ExecutionStages,
    ) -> Matches:
        """Return the results of an execution."""
        values = self.tables.values(running.channel)
        parts = values.parts()
        if not parts.base_rows and not parts.has_changed:
            return ()
        publications = self._publications(running, after, through, batch)
        few = publications.table is not None and publications.table.nbytes <= self.limits.prepared_bytes
        if few and not running.many and time.monotonic() >= running.prepared_at:
            try:
                found = self._prepared(running, publications, parts, lambda: stages.end("planned"))
            except Exception as error:
                running.prepared.clear()
                # An execution that is cancelled fails here and goes on below, where it is cancelled again.
                logger.debug("channel %s: prepared plan: %s", running.channel.name, first_line(error))
                if not caused_by_data(error):
                    running.prepared_at = time.monotonic() + self.limits.prepared_pause_s
                elif parts.stale_keys:  # the base may have values that were suspended since
                    values.reload()
            else:
                if found is not None:
                    stages.end("executed")
                    batches: Matches = found.to_batches()
                    return batches
        frame = self._matching(running, publications)(values.frame())
        stages.end("planned")
        return SparkMatches(frame, lambda: stages.end("executed"), self.limits.results)

    def _prepared(
        self,
        running: RunningChannel,
        publications: PublicationBatch,
        values: TableParts,
        on_planned: Callable[[], object] = lambda: None,
    ) -> pa.Table | None:
        """Return the results of few publications by the channel's prepared plan; None if it has none."""
        stored = self._all_stored(running)
        try:
            return running.prepared.match(publications.frame, values, stored, on_planned, self.limits.results)
        except Exception:
            running.prepared.clear_broadcasts()
            raise

    def warm_up(self, channels: Sequence[RunningChannel], seconds: float, stopping: threading.Event) -> None:
        """Execute channels on samples, and store nothing, until they get no faster or the time is over.

        Java compiles what is executed often. Until then an execution takes up to ten times as long. The first
        round, in which every channel gets its plan, may take longer, but no execution of it.
        """
        began = time.monotonic()
        rounds: list[float] = []
        samples: dict[RunningChannel, tuple[PublicationBatch, DataFrame]] = {}
        working = list(channels)
        with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="warm-up") as pool:
            while working and not _is_settled(rounds, self.limits.warm_rounds):
                started = time.monotonic()
                deadline = began + (seconds if rounds else seconds * self.limits.first_warm_round)
                if stopping.is_set() or started >= deadline:
                    return

                def warm(running: RunningChannel, deadline: float = deadline) -> bool:
                    left_s = deadline - time.monotonic()
                    if stopping.is_set() or left_s <= 0:
                        return True
                    # A cancelled execution leaves no broadcasts: one that was fast before may end later.
                    timeout_s = left_s + seconds if rounds else min(left_s, seconds)
                    return self._execute_on_sample(running, samples, timeout_s, first=not rounds)

                done = list(pool.map(warm, working))
                working = [one for one, is_done in zip(working, done, strict=True) if is_done]
                rounds.append(time.monotonic() - started)

    def _execute_on_sample(
        self,
        running: RunningChannel,
        samples: dict[RunningChannel, tuple[PublicationBatch, DataFrame]],
        timeout_s: float,
        first: bool,
    ) -> bool:
        """Execute a channel for a warm-up; return whether it can be executed again."""
        try:
            with running.lock, self._limited(running, RunningExecution("warm-up"), timeout_s):
                if running.removed:
                    return False
                samples[running] = samples.get(running) or self._sample(running)
                self._warm_up(running, *samples[running], first)
        except Exception as error:  # its executions fail and report it
            logger.debug("channel %s: warm-up: %s", running.channel.name, first_line(error))
            return False
        return True

    def _sample(self, running: RunningChannel) -> tuple[PublicationBatch, DataFrame]:
        """Return publications, and one list of values, for a warm-up."""
        channel = running.channel
        values = tuple(cast("Scalar", example_of(one.type)) for one in channel.parameters)
        publications = sample_batch(self.spark, self.log, running.datasets[channel.new])
        return publications, self.spark.createDataFrame(values_table(channel, [(0, values)]))

    def _warm_up(
        self, running: RunningChannel, publications: PublicationBatch, example: DataFrame, first: bool
    ) -> None:
        running.warm = True
        values = self.tables.values(running.channel).parts()
        if values.base_rows and self._prepared(running, publications, values) is None:
            self._execute_new_plan(running, publications, values.frame())
        if first or not values.base_rows:
            self._warm_up_changes(running, publications, values, example)

    def _warm_up_changes(
        self, running: RunningChannel, publications: PublicationBatch, values: TableParts, example: DataFrame
    ) -> None:
        """Make the plan for the values of new subscriptions."""
        changes = replace(values, base_rows=0, changed=example, has_changed=True)
        try:
            found = running.prepared.match(publications.frame, changes, self._all_stored(running))
            if found is None and not values.base_rows:
                self._execute_new_plan(running, publications, example)
        except Exception:
            running.prepared.clear_broadcasts(of_base=False)
            if not values.base_rows:
                raise
            # The query may fail on the example, and not on the values of the subscriptions.

    def _execute_new_plan(
        self, running: RunningChannel, publications: PublicationBatch, values: DataFrame
    ) -> None:
        SparkMatches(self._matching(running, publications)(values), most=self.limits.results).collect()

    def _publications(
        self, running: RunningChannel, after: int, through: int, batch: PublicationBatch | None
    ) -> PublicationBatch:
        """Return the publications after < seq <= through."""
        if batch is not None and after >= batch.after:
            return batch.since(after)
        return read_batch(self.spark, self.log, running.datasets[running.channel.new], after, through)

    def _all_stored(self, running: RunningChannel) -> Mapping[str, DataFrame | TableParts]:
        datasets = {name: running.datasets[name] for name in running.body.stored}
        return {name: self.tables.stored_parts(one) or self.tables.stored(one) for name, one in datasets.items()}

    def _matching(
        self, running: RunningChannel, publications: PublicationBatch
    ) -> Callable[[DataFrame], DataFrame]:
        """Return a function that matches values with publications."""
        stored = {name: self.tables.stored(running.datasets[name]) for name in running.body.stored}
        small = publications.through - publications.after <= self.limits.broadcast_publications
        return lambda streams: match(running.body, publications.frame, stored, streams, "new" if small else None)

    def _suspend(self, running: RunningChannel, after: int, through: int, batch: PublicationBatch | None) -> bool:
        """Find the streams whose values an execution fails on, and suspend them; False if there are none."""
        channel = running.channel
        matching = self._matching(running, self._publications(running, after, through, batch))
        subscribed = self.tables.values(channel).frame()
        if not values_can_fail(running.body, matching(subscribed)):
            return False

        def error_of(first: int, last: int) -> str | None:
            matched = matching(subscribed.where(F.col("stream").between(first, last)))
            try:
                # Every column has a part in this, so that Spark computes them all.
                matched.agg(F.sum(F.octet_length("payload")), F.max("ordinal")).collect()
            except Exception as error:
                if not caused_by_data(error):
                    raise
                return root_cause(error)
            return None

        streams = sorted(self.stores.subscriptions.active_streams(channel.name))
        values = dict(streams)
        found = 0
        for stream, error in failing_streams(streams, error_of):
            line = " ".join(error.split())[: self.limits.error_chars]
            self.stores.subscriptions.suspend(channel.name, stream, line, running.definition, self.now_ms())
            self.tables.refresh(channel, [stream])
            given = repr(list(values[stream]))[: self.limits.error_chars]
            logger.warning("channel %s: stream %d (%s) is suspended: %s", channel.name, stream, given, line)
            self.notify()
            found += 1
        return found > 0

    def _failure(self, running: RunningChannel, error: Exception) -> ExecutionFailure:
        before, line = running.failure, first_line(error)
        if before is None:
            logger.warning("channel %s fails: %s", running.channel.name, line)
        self.metrics.failed(running.channel.name)
        attempts = before.attempts + 1 if before else 1
        since_ms = before.since_ms if before else self.now_ms()
        return ExecutionFailure(line, since_ms, attempts, time.monotonic() + self._backoff.wait_s(attempts - 1))
