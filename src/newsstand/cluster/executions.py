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

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from newsstand.cluster.body import Body
from newsstand.cluster.log import Log
from newsstand.cluster.matching import match
from newsstand.cluster.results import Execution, Results, Stored
from newsstand.cluster.tables import Tables
from newsstand.model import Channel, Dataset

logger = logging.getLogger(__name__)

MOST_BROADCAST = 200_000
"""A batch of more publications than this is not sent to every executor whole."""


CANCEL_AGAIN_S = 0.2
"""Seconds between two cancellations of an execution, which may start another job after the first one."""


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


@dataclass
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

    def leave(self, running: Running) -> None:
        """Execute a channel no more: cancel the execution that is under way, and return when it has ended.

        A task that does not react to cancellation may keep a core busy until it ends by itself.
        """
        running.left = True
        while not running.lock.acquire(timeout=CANCEL_AGAIN_S):
            self._spark.sparkContext.cancelJobsWithTag(running.tag)
        running.lock.release()

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
                    with self._limited(running):
                        self._execute(running, position, until, batch)
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
                context.cancelJobsWithTag(tag)

        context.addJobTag(tag)
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

    def _execute(self, running: Running, after: int, through: int, batch: Batch | None) -> None:
        channel = running.channel
        began = time.monotonic()
        values = self._tables.values(channel)
        wanted = values.frame()
        matched = None
        if not values.empty:
            dataset = running.datasets[channel.new]
            new = self._new(dataset, after, through, batch)
            stored = {name: self._tables.stored(running.datasets[name]) for name in running.body.stored}
            matched = match(running.body, new, stored, wanted, broadcast_new=through - after <= MOST_BROADCAST)
        execution = Execution(channel.name, channel.new, after, through, self._now_ms())
        done = self._results.store(execution, matched)
        running.seconds = time.monotonic() - began
        self._stored(running, execution, done)

    def _new(self, dataset: Dataset, after: int, through: int, batch: Batch | None) -> DataFrame:
        if batch is None or after < batch.after:
            return self._log.frame(self._spark, dataset, after, through)
        if after == batch.after:
            return batch.frame
        return batch.frame.where(col("_seq") > after)

    def _failed(self, running: Running, error: Exception) -> Failure:
        before = running.failure
        if before is None:
            logger.warning("channel %s fails: %s", running.channel.name, first_line(error))
        self._has_failed(running)
        attempts = before.attempts + 1 if before else 1
        pause = min(60.0, 2.0 ** min(attempts, 6) / 2)
        since = before.since_ms if before else self._now_ms()
        return Failure(first_line(error), since, attempts, time.monotonic() + pause)


def first_line(error: Exception) -> str:
    """What an error of Spark's says, without the trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
