"""When channels are executed: continuous ones as publications arrive, repetitive ones every period.

Continuous channels over one dataset share one Structured Streaming query, whose micro-batches they all see.
Repetitive channels with one dataset and period share a reading of the log. Periods are measured by the monotonic
clock, so that a wall clock set back or forth moves nothing (docs/decisions/0011).

Spark's checkpoint is scratch: it is begun anew at every start, from the positions that stand with the results.
What it would remember is known better there, in the transaction that also holds the results
(docs/decisions/0010).
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.storagelevel import StorageLevel

from newsstand.cluster.executions import Batch, Executions, Running
from newsstand.cluster.log import Log
from newsstand.cluster.results import Results
from newsstand.cluster.spark_errors import first_line
from newsstand.errors import LogDamage
from newsstand.model import Dataset

logger = logging.getLogger(__name__)

TICK = 0.05
"""Seconds between looks at what is due."""


MOST_AT_ONCE = 64
"""Executions that are under way at once: one that takes long must leave room for the others."""

PATIENCE_S = 3.0
"""How long channels that share a reading of the log wait for one another."""

SHOWN_S = 30.0
"""How long the log may take to show what a micro-batch has."""


class Engine:
    """Executes the channels that it is given, until it is stopped."""

    def __init__(
        self, spark: SparkSession, log: Log, results: Results, executions: Executions, scratch: Path, limit: int
    ) -> None:
        self._spark = spark
        self._log = log
        self._results = results
        self._executions = executions
        self._scratch = scratch
        self._limit = limit
        self._channels: dict[str, Running] = {}
        self._streams: dict[str, _Stream] = {}
        self._due: dict[tuple[str, float], float] = {}
        self._checkpoints = 0
        self._behind: set[str] = set()
        """Continuous channels that may be behind their stream, which does not wait for them."""
        self._executing: set[Running] = set()
        """Channels with an execution that is under way, or that waits for a thread."""
        self._chores: list[_Chore] = []
        self._busy: dict[object, Future[None]] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="execution")
        self._shares = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="share")
        """For what `_pool` and the streams do for single channels, which may take long."""
        self._aside = ThreadPoolExecutor(2, thread_name_prefix="beside-executions")
        """For what must neither wait for executions nor hold up the clock: chores, starts and stops of streams."""
        self._timer = threading.Thread(target=self._tick_on, name="engine", daemon=True)

    def every(self, seconds: float, chore: Callable[[], object]) -> None:
        """Do something beside executions, every so often."""
        self._chores.append(_Chore(chore, seconds, time.monotonic() + seconds))

    def start(self) -> None:
        """Begin to execute."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True)
        self._timer.start()

    def stop(self) -> None:
        """Stop; an execution that is under way is either stored whole or not at all."""
        self._stopping.set()
        if self._timer.ident is not None:
            self._timer.join()
        self._aside.shutdown(cancel_futures=True)
        with self._lock:
            channels = list(self._channels.values())
        for running in channels:
            self._executions.leave(running)
        for stream in self._streams.values():
            stream.stop()
        self._pool.shutdown(cancel_futures=True)
        self._shares.shutdown(cancel_futures=True)

    def run(self, running: Running) -> None:
        """Execute a channel from now on, in place of what had its name."""
        with self._lock:
            self._channels[running.channel.name] = running
            if running.channel.period_s is None:
                self._behind.add(running.channel.name)

    def leave(self, name: str) -> None:
        """Execute a channel no more; cancel its execution and return when none is under way."""
        with self._lock:
            running = self._channels.pop(name, None)
        if running is not None:
            self._executions.leave(running)

    def running(self, name: str) -> Running | None:
        """A channel that is being executed."""
        return self._channels.get(name)

    def companions(self, name: str) -> list[str]:
        """The channels that share each reading of the log with this one."""
        with self._lock:
            running = self._channels.get(name)
            if running is None:  # it is just being changed
                return []
            this = running.channel
            return sorted(
                other.channel.name
                for other in self._channels.values()
                if (other.channel.new, other.channel.period_s) == (this.new, this.period_s)
                and other.channel is not this
            )

    def problems(self) -> list[str]:
        """What keeps executions from running at all."""
        streams = list(self._streams.items())
        found = [f"stream of {name}: {stream.error}" for name, stream in streams if stream.error]
        failures = [(one.channel.name, one.failure) for one in list(self._channels.values())]
        return found + [
            f"channel {name}: {failure.error}"
            for name, failure in failures
            if failure is not None and failure.error.startswith("LogDamage")
        ]

    def _tick_on(self) -> None:
        while not self._stopping.wait(TICK):
            try:
                self._tick(time.monotonic())
            except Exception as error:
                logger.error("engine: %s", first_line(error))
                self._stopping.wait(1.0)

    def _tick(self, now: float) -> None:
        self._busy = {what: doing for what, doing in self._busy.items() if not doing.done()}
        for chore in self._chores:
            if now >= chore.due and self._submit(chore, self._aside, chore.work):
                chore.due = now + chore.seconds
        with self._lock:
            channels = list(self._channels.values())
        self._submit("streams", self._aside, self._mind_streams, channels, now)
        groups: dict[tuple[str, float], list[Running]] = {}
        for running in channels:
            name = running.channel.name
            if running.failure is not None or name in self._behind:
                due = running.failure is None or now >= running.failure.retry_at
                if due and running not in self._executing:
                    with self._lock:  # before it begins, since micro-batches may leave it behind from then on
                        if self._channels.get(name) is running:
                            self._behind.discard(name)
                    if not self._submit(("again", name), self._pool, self._again, running):
                        with self._lock:
                            self._behind.add(name)
            elif running.channel.period_s is not None:
                groups.setdefault((running.channel.new, running.channel.period_s), []).append(running)
        self._due = {group: self._due.get(group, now + group[1]) for group in groups}
        for group, every in groups.items():
            members = [running for running in every if running not in self._executing]
            if members and now >= self._due[group] and self._submit(group, self._pool, self._together, members):
                missed = (now - self._due[group]) // group[1]
                self._due[group] += (missed + 1) * group[1]

    def _submit(
        self, what: object, where: ThreadPoolExecutor, work: Callable[..., object], *arguments: object
    ) -> bool:
        """Have it done in another thread, unless the last time is still under way."""
        if what in self._busy:
            return False
        self._busy[what] = where.submit(_told, work, *arguments)
        return True

    def _again(self, running: Running) -> None:
        if not self._claim([running]):
            return
        failed = running.failure is not None
        self._execute(running, None, None)
        if failed and running.failure is None:
            # Micro-batches that came meanwhile have left it out.
            with self._lock:
                self._behind.add(running.channel.name)

    def _together(self, members: list[Running]) -> None:
        """Execute repetitive channels with one dataset and period on one reading of the log."""
        dataset = members[0].datasets[members[0].channel.new]
        through = self._log.head(dataset.name)
        positions = [self._results.position(running.channel.name) for running in members]
        behind = [position for position in positions if position is not None and position < through]
        if not behind:
            return
        after = min(behind)
        if len(behind) == 1 or through - after > self._limit:
            self._advance(members, through, None)
            return
        try:
            frame = self._log.frame(self._spark, dataset, after, through)
        except LogDamage:  # each channel that reads it fails with it
            self._advance(members, through, None)
            return
        self._advance(members, through, Batch(frame, after, through))

    def _advance(self, members: Sequence[Running], through: int, batch: Batch | None) -> None:
        """Execute channels on one reading of the log, side by side. One that takes long goes on by itself."""
        if self._stopping.is_set():
            return
        with self._lock:
            current = self._claim([one for one in members if self._channels.get(one.channel.name) is one])
        if not current:
            return
        shared = batch is not None and len(current) > 1
        if batch is not None and shared:
            batch.frame.persist(StorageLevel.MEMORY_AND_DISK_DESER)
        try:
            wait([self._share(one, through, batch) for one in current], PATIENCE_S)
        finally:
            if batch is not None and shared:
                batch.frame.unpersist()  # who still needs it reads the log

    def _claim(self, members: Sequence[Running]) -> list[Running]:
        """Take those that nobody executes yet; the other continuous ones catch up later."""
        with self._lock:
            busy = self._executing.intersection(members)
            self._behind.update(one.channel.name for one in busy if one.channel.period_s is None)
            free = [one for one in members if one not in busy]
            self._executing.update(free)
            return free

    def _share(self, running: Running, through: int, batch: Batch | None) -> Future[None]:
        """Have a channel that was claimed executed by a thread, as soon as one is free."""
        try:
            execution = self._shares.submit(self._execute, running, through, batch)
        except RuntimeError:  # the engine has stopped
            self._release(running)
            raise
        execution.add_done_callback(lambda done: self._release(running) if done.cancelled() else None)
        return execution

    def _release(self, running: Running) -> None:
        with self._lock:
            self._executing.discard(running)

    def _execute(self, running: Running, through: int | None, batch: Batch | None) -> None:
        """Execute a channel that was claimed, up to a publication, or up to the newest one."""
        try:
            end = self._log.head(running.channel.new) if through is None else through
            self._executions.advance(running, end, batch)
        except Exception as error:
            logger.error("channel %s: %s", running.channel.name, first_line(error))
        finally:
            self._release(running)

    def _continuous(self, dataset: str) -> list[Running]:
        """The channels that go with the stream of a dataset; those that are still executed catch up later."""
        with self._lock:
            every = [
                running
                for running in self._channels.values()
                if running.channel.new == dataset and running.channel.period_s is None and running.failure is None
            ]
            self._behind.update(one.channel.name for one in every if one in self._executing)
            return [one for one in every if one not in self._executing]

    def _mind_streams(self, channels: list[Running], now: float) -> None:
        """Start the streams that continuous channels need, start again those that broke, stop the others."""
        needed: Mapping[str, Dataset] = {
            running.channel.new: running.datasets[running.channel.new]
            for running in channels
            if running.channel.period_s is None
        }
        if self._stopping.is_set():
            return
        for name in set(self._streams) - set(needed):
            self._streams.pop(name).stop()
        for name, dataset in needed.items():
            stream = self._streams.get(name)
            if stream is None or stream.dataset != dataset:
                if stream is not None:
                    stream.stop()
                stream = self._streams[name] = _Stream(dataset)
            stream.mind(self._begin, now)

    def _begin(self, stream: _Stream) -> StreamingQuery:
        """A streaming query over a dataset, from the earliest position that one of its channels is at."""
        name = stream.dataset.name
        positions = [self._results.position(running.channel.name) for running in self._continuous(name)]
        known = [position for position in positions if position is not None]
        after = min(known, default=self._log.head(name))
        self._checkpoints += 1  # an old one would begin where it left off, and not where the channels are
        checkpoint = stream.checkpoint = self._scratch / f"{name}-{self._checkpoints}"
        source = self._log.stream(self._spark, stream.dataset, after, self._limit)
        ends = {-1: after}

        def on_batch(_: DataFrame, batch: int) -> None:
            ends[batch] = self._log.until(_offset(checkpoint, batch))
            began = ends.pop(batch - 1)
            # From the log again: what the micro-batch has is gone when it ends, and a channel may take longer.
            self._wait_for(name, ends[batch])
            frame = self._log.frame(self._spark, stream.dataset, began, ends[batch])
            self._advance(self._continuous(name), ends[batch], Batch(frame, began, ends[batch]))

        return (
            source.writeStream.foreachBatch(on_batch)
            .option("checkpointLocation", str(checkpoint))
            .queryName(f"newsstand {checkpoint}")
            .trigger(processingTime="0 seconds")
            .start()
        )

    def _wait_for(self, dataset: str, seq: int) -> None:
        """Wait until the log shows a publication that a stream has shown already."""
        deadline = time.monotonic() + SHOWN_S
        while self._log.head(dataset) < seq:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the log of {dataset} shows publication {seq} to its stream and not to the cluster"
                )
            time.sleep(TICK)


class _Stream:
    """The streaming query of one dataset, started again with growing pauses when it breaks."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.starts = 0
        self.error: str | None = None
        self.checkpoint: Path | None = None
        self._query: StreamingQuery | None = None
        self._begun = 0.0
        self._next = 0.0
        self._failures = 0

    def mind(self, begin: Callable[[_Stream], StreamingQuery], now: float) -> None:
        if self._query is not None and self._query.isActive:
            if now > self._begun + 30:
                self._failures = 0
                self.error = None
            return
        if now < self._next:
            return
        if self._query is not None:
            broken = self._query.exception()
            self.error = first_line(broken) if broken else "ended"
            logger.error("stream of %s: %s", self.dataset.name, self.error)
        self.starts += 1
        self._failures += 1
        self._begun = now
        self._next = now + min(60.0, 2.0 ** min(self._failures, 6))
        self._forget_checkpoint()
        try:
            self._query = begin(self)
        except Exception as error:
            self.error = first_line(error)
            logger.error("stream of %s: %s", self.dataset.name, self.error)

    def stop(self) -> None:
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:  # of a Spark that is gone, or takes too long: nothing is lost by it
                logger.error("stream of %s: %s", self.dataset.name, first_line(error))
        self._forget_checkpoint()

    def _forget_checkpoint(self) -> None:
        if self.checkpoint is not None:
            shutil.rmtree(self.checkpoint, ignore_errors=True)
            self.checkpoint = None


class _Chore:
    def __init__(self, work: Callable[[], object], seconds: float, due: float) -> None:
        self.work = work
        self.seconds = seconds
        self.due = due


def _offset(checkpoint: Path, batch: int) -> str:
    """The end of a micro-batch, which Spark writes down before it begins: a version, metadata, and one offset."""
    return (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]


def _told(work: Callable[..., object], *arguments: object) -> None:
    try:
        work(*arguments)
    except Exception as error:
        logger.error("%s: %s", getattr(work, "__name__", work), first_line(error))
