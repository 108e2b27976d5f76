"""Executions of channels: match what is new with all subscriptions at once, and store what comes out exactly once.

A channel's position in its new dataset is stored together with its results. An execution always begins at that
position, whatever Spark or a crash has made of earlier attempts, so no publication is left out or matched twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from newsstand.cluster.body import Body
from newsstand.cluster.log import Log
from newsstand.cluster.matching import match
from newsstand.cluster.offenders import Search
from newsstand.cluster.results import Execution, Results, Stored
from newsstand.cluster.runaway import end_runaway_expressions
from newsstand.cluster.spark_errors import caused_by_data, first_line, root_cause
from newsstand.cluster.tables import Tables
from newsstand.cluster.value_risks import values_can_fail
from newsstand.model import Channel, Dataset

logger = logging.getLogger(__name__)

MOST_BROADCAST = 200_000
"""A batch of more publications than this is not sent to every executor whole."""


CANCEL_AGAIN_S = 0.2
"""Seconds between two cancellations of an execution, which may start another job after the first one."""


MOST_ERROR = 500
"""Characters of an error, or of values, that are kept and told."""


@dataclass(frozen=True)
class Batch:
    """Publications of one dataset that were read already: after < seq <= through."""

    frame: DataFrame
    after: int
    through: int


@dataclass(frozen=True)
class Failure:
    """Why a channel does not move on."""

    error: str
    since_ms: int
    attempts: int
    retry_at: float
    """Seconds of the monotonic clock."""


@dataclass(eq=False)
class Running:
    """A channel that is being executed, again and again."""

    channel: Channel
    body: Body
    datasets: Mapping[str, Dataset]
    """The datasets that its body reads."""
    failure: Failure | None = None
    seconds: float = 0.0
    """How long its last execution took."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    began: float | None = None
    """When the execution that is under way began, in seconds of the monotonic clock."""
    left: bool = False
    """Whether it is to be executed no more: it was dropped, or another definition has taken its place."""

    @property
    def definition(self) -> str:
        """What tells one definition of the channel from another: a digest of its query and parameters."""
        text = repr((self.channel.query, self.channel.new, self.channel.parameters))
        return blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def tag(self) -> str:
        """What the Spark jobs of its executions are tagged with."""
        return f"newsstand-channel-{self.channel.name}-{id(self)}"


class Executions:
    """Executes channels, one execution of a channel at a time. Methods may be called from several threads."""

    def __init__(
        self,
        spark: SparkSession,
        log: Log,
        results: Results,
        tables: Tables,
        now_ms: Callable[[], int],
        stored: Callable[[Running, Execution, Stored], None],
        limit: int,
        failed: Callable[[Running], None] = lambda running: None,
        timeout_s: float = 300.0,
        suspended: Callable[[Running], None] = lambda running: None,
    ) -> None:
        self._spark = spark
        self._log = log
        self._results = results
        self._tables = tables
        self._now_ms = now_ms
        self._stored = stored
        self._limit = limit
        self._has_failed = failed
        self._timeout_s = timeout_s
        self._has_suspended = suspended
        self._cancelled = threading.Event()
        """Whether executions were cancelled whose tasks may go on."""
        self._looks = 0
        """How often, one after the other, there were such tasks."""

    def leave(self, running: Running) -> None:
        """Execute a channel no more: cancel the execution that is under way, and return when it has ended."""
        running.left = True
        while not running.lock.acquire(timeout=CANCEL_AGAIN_S):
            self._cancel(running.tag)
        running.lock.release()

    def end_cancelled(self) -> None:
        """End the tasks of cancelled executions that do not end by themselves."""
        if not self._cancelled.is_set():
            return
        self._cancelled.clear()
        left = end_runaway_expressions(self._spark)
        self._looks = self._looks + 1 if left else 0
        if left:
            self._cancelled.set()
        if self._looks == 3:
            logger.warning("%d tasks of cancelled executions go on; each keeps a core busy", left)

    def _cancel(self, tag: str) -> None:
        self._spark.sparkContext.cancelJobsWithTag(tag)
        self._cancelled.set()

    def advance(self, running: Running, through: int, batch: Batch | None = None) -> None:
        """Execute a channel on all publications up to `through` that it has not seen, in slices if they are many.

        A failure is kept in `running` and tried again later; it never reaches the caller, nor other channels.
        """
        with running.lock:
            try:
                while not running.left:
                    position = self._results.position(running.channel.name)
                    if position is None or position >= through:
                        break
                    until = through if batch and batch.after <= position else min(through, position + self._limit)
                    self._execute_or_suspend(running, position, until, batch)
                running.failure = None
            except Exception as error:
                running.failure = self._failed(running, error)

    @contextmanager
    def _limited(self, running: Running) -> Iterator[None]:
        """Tag the Spark jobs of an execution, and cancel them when it takes longer than the limit.

        Tags, and not job groups: the group of a micro-batch belongs to its streaming query.
        """
        context, tag, timeout_s = self._spark.sparkContext, running.tag, self._timeout_s
        ended, overdue = threading.Event(), threading.Event()

        def cancel() -> None:
            while not ended.wait(CANCEL_AGAIN_S if overdue.is_set() else timeout_s):
                overdue.set()
                self._cancel(tag)

        context.addJobTag(tag)
        # Jobs of one pool take turns in the order in which they came, and pools share the cores.
        context.setLocalProperty("spark.scheduler.pool", running.channel.name)
        running.began = time.monotonic()
        threading.Thread(target=cancel, name=f"limit of {running.channel.name}", daemon=True).start()
        try:
            yield
        except Exception as error:
            if overdue.is_set():
                raise TimeoutError(
                    f"the execution was cancelled after {timeout_s:g} s; make the query cheaper, or raise "
                    "execution_timeout of [cluster]"
                ) from error
            raise
        finally:
            ended.set()
            running.began = None
            context.removeJobTag(tag)
            context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]

    def _execute_or_suspend(self, running: Running, after: int, through: int, batch: Batch | None) -> None:
        """Execute a channel; if it fails on values, suspend their streams and go on with the others."""
        while True:
            try:
                with self._limited(running):
                    return self._execute(running, after, through, batch)
            except Exception as error:
                if running.left or not caused_by_data(error):
                    raise
                with self._limited(running):
                    if not self._suspend(running, after, through, batch):
                        raise

    def _execute(self, running: Running, after: int, through: int, batch: Batch | None) -> None:
        channel = running.channel
        began = time.monotonic()
        values = self._tables.values(channel)
        wanted = values.frame()
        matched = None if values.empty else self._matching(running, after, through, batch)(wanted)
        execution = Execution(channel.name, channel.new, after, through, self._now_ms())
        done = self._results.store(execution, matched)
        running.seconds = time.monotonic() - began
        self._stored(running, execution, done)

    def _matching(
        self, running: Running, after: int, through: int, batch: Batch | None
    ) -> Callable[[DataFrame], DataFrame]:
        """What makes matches of values, over the publications after < seq <= through."""
        new = self._new(running.datasets[running.channel.new], after, through, batch)
        stored = {name: self._tables.stored(running.datasets[name]) for name in running.body.stored}
        small = through - after <= MOST_BROADCAST
        return lambda wanted: match(running.body, new, stored, wanted, broadcast_new=small)

    def _suspend(self, running: Running, after: int, through: int, batch: Batch | None) -> bool:
        """Find the streams whose values an execution fails on, and suspend them; False if there are none."""
        channel = running.channel
        matching = self._matching(running, after, through, batch)
        wanted = self._tables.values(channel).frame()
        if not values_can_fail(running.body, matching(wanted)):
            return False

        def fails(first: int, last: int) -> str | None:
            matched = matching(wanted.where(F.col("stream").between(first, last)))
            try:
                # Every column has a part in this, so that Spark computes them all.
                matched.agg(F.sum(F.octet_length("payload")), F.max("ordinal")).collect()
            except Exception as error:
                if not caused_by_data(error):
                    raise
                return root_cause(error)
            return None

        streams = sorted(self._results.active_streams(channel.name))
        values = dict(streams)
        found = 0
        for stream, error in Search(streams, fails).run():
            line = " ".join(error.split())[:MOST_ERROR]
            self._results.suspend(channel.name, stream, line, running.definition, self._now_ms())
            self._tables.suspended(channel, stream)
            given = repr(list(values[stream]))[:MOST_ERROR]
            logger.warning("channel %s: stream %d (%s) is suspended: %s", channel.name, stream, given, line)
            self._has_suspended(running)
            found += 1
        return found > 0

    def _new(self, dataset: Dataset, after: int, through: int, batch: Batch | None) -> DataFrame:
        if batch is None or after < batch.after:
            return self._log.frame(self._spark, dataset, after, through)
        if after == batch.after:
            return batch.frame
        return batch.frame.where(F.col("_seq") > after)

    def _failed(self, running: Running, error: Exception) -> Failure:
        before = running.failure
        if before is None:
            logger.warning("channel %s fails: %s", running.channel.name, first_line(error))
        self._has_failed(running)
        attempts = before.attempts + 1 if before else 1
        pause = min(60.0, 2.0 ** min(attempts, 6) / 2)
        since = before.since_ms if before else self._now_ms()
        return Failure(first_line(error), since, attempts, time.monotonic() + pause)
