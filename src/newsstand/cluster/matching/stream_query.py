"""The Structured Streaming query over one dataset, which all its continuous channels share.

Spark's checkpoint is scratch: a new one is begun at every start, from the positions that are stored with the
results (docs/decisions/0010).
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from newsstand.cluster.log.contract import Log
from newsstand.cluster.matching.executor import PublicationBatch
from newsstand.concurrency.pacing import Backoff
from newsstand.model import Dataset
from newsstand.spark.internals import batch_end_offset, first_line

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamQueryLimits:
    """Intervals of a streaming query."""

    stable_s: float = 30.0
    """Seconds after which a running query counts as healthy: its next failure is retried without a long pause."""
    first_retry_s: float = 2.0
    """The longest pause before the first restart; it doubles each time."""
    longest_retry_s: float = 60.0
    visible_s: float = 30.0
    """Seconds that the log may take to show the records of a micro-batch."""
    poll_s: float = 0.05
    """Seconds between two checks whether it shows them."""


@dataclass(eq=False)
class StreamQuery:
    """The streaming query of one dataset; after a failure it is restarted with growing pauses.

    `position` returns where to begin; `execute` is called with each batch.
    """

    dataset: Dataset
    spark: SparkSession
    log: Log
    scratch: Path
    max_batch: int
    position: Callable[[], int]
    execute: Callable[[PublicationBatch], object]
    limits: StreamQueryLimits = StreamQueryLimits()

    def __post_init__(self) -> None:
        self.error: str | None = None
        self._checkpoint: Path | None = None
        self._query: StreamingQuery | None = None
        self._started_at = 0.0
        self._retry_at = 0.0
        self._backoff = Backoff(self.limits.first_retry_s, self.limits.longest_retry_s)

    def keep_running(self, now: float) -> None:
        """Start the query if it does not run and its pause is over."""
        if self._query is not None and self._query.isActive:
            if now > self._started_at + self.limits.stable_s:
                self._backoff.reset()
                self.error = None
            return
        if now < self._retry_at:
            return
        if self._query is not None:
            broken = self._query.exception()
            self._failed(first_line(broken) if broken else "ended")
        self._started_at = now
        self._retry_at = now + self._backoff.next_s()
        self._remove_checkpoint()
        try:
            self._query = self._start()
        except Exception as error:
            self._failed(first_line(error))

    def stop(self) -> None:
        """Stop the query."""
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:  # Spark has stopped or takes too long; the next start does not depend on it
                logger.error("stream of %s: %s", self.dataset.name, first_line(error))
        self._remove_checkpoint()

    def _failed(self, error: str) -> None:
        self.error = error
        logger.error("stream of %s: %s", self.dataset.name, error)

    def _remove_checkpoint(self) -> None:
        if self._checkpoint is not None:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            self._checkpoint = None

    def _start(self) -> StreamingQuery:
        after = self.position()
        # An old checkpoint would begin at its own position, and not at those of the channels.
        checkpoint = self._checkpoint = Path(tempfile.mkdtemp(prefix=f"{self.dataset.name}-", dir=self.scratch))
        ends = {-1: after}

        def on_batch(_: DataFrame, number: int) -> None:
            end = ends[number] = self.log.until(batch_end_offset(checkpoint, number))
            begin = ends.pop(number - 1)
            # Read the log again: a channel may need the rows for longer than the micro-batch exists.
            self._wait_until_visible(end)
            frame = self.log.frame(self.spark, self.dataset, begin, end)
            self.execute(PublicationBatch(frame, begin, end))

        source = self.log.stream(self.spark, self.dataset, after, self.max_batch)
        return (
            source.writeStream.foreachBatch(on_batch)
            .option("checkpointLocation", str(checkpoint))
            .queryName(f"newsstand {checkpoint}")
            .trigger(processingTime="0 seconds")
            .start()
        )

    def _wait_until_visible(self, seq: int) -> None:
        """Wait until the log shows a publication that the stream has."""
        dataset = self.dataset.name
        deadline = time.monotonic() + self.limits.visible_s
        while self.log.head(dataset) < seq:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"dataset {dataset}: the stream has publication {seq}, and the log does not show it"
                )
            time.sleep(self.limits.poll_s)
