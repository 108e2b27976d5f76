"""Micro-batches: the new publications of one dataset, which all its continuous channels share.

A thread for each dataset waits at the log, and takes at a time what has arrived meanwhile. So the size of a
micro-batch follows the load, and a publication waits for one execution at most.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from newsstand.cluster.ingest.schema import arrow_schema, spark_schema
from newsstand.cluster.ingest.validator import item_type
from newsstand.cluster.log.contract import Log
from newsstand.concurrency.pacing import Backoff
from newsstand.model import Dataset
from newsstand.spark.internals import arrow_frame, first_line

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublicationBatch:
    """Publications of one dataset that were read already: after < seq <= through."""

    frame: DataFrame
    after: int
    through: int
    table: pa.Table | None = None
    """The same publications on the driver, if they are few."""

    def since(self, after: int) -> PublicationBatch:
        """Return the part after a later publication."""
        if after == self.after:
            return self
        if self.table is None:
            return PublicationBatch(self.frame.where(F.col("_seq") > after), after, self.through)
        table = self.table.filter(pc.greater(self.table["_seq"], after))
        frame = arrow_frame(self.frame.sparkSession, table, self.frame.schema)
        return PublicationBatch(frame, after, self.through, table)


def read_batch(spark: SparkSession, log: Log, dataset: Dataset, after: int, through: int) -> PublicationBatch:
    """Read the publications after < seq <= through."""
    table = log.table(dataset, after, through)
    if table is None:
        return PublicationBatch(log.frame(spark, dataset, after, through), after, through)
    return PublicationBatch(arrow_frame(spark, table, spark_schema(dataset)), after, through, table)


SAMPLE_RECORDS = 5
"""Publications of a sample."""

_EXAMPLES: Mapping[str, object] = {
    "string": "",
    "integer": 0,
    "double": 0.0,
    "boolean": False,
    "timestamp": datetime(1970, 1, 1, tzinfo=UTC),
}


def example_of(type: str) -> object:
    """Return a value of the type of a field or a parameter."""
    return [] if item_type(type) else _EXAMPLES[type]


def sample_batch(spark: SparkSession, log: Log, dataset: Dataset) -> PublicationBatch:
    """Return the newest publications of a dataset, or made-up ones where there are none."""
    head = log.head(dataset.name)
    if head:
        return read_batch(spark, log, dataset, max(0, head - SAMPLE_RECORDS), head)
    record = {field.name: example_of(field.type) for field in dataset.fields}
    made = [{**record, "_seq": seq, "_at": _EXAMPLES["timestamp"], "_page": None} for seq in range(SAMPLE_RECORDS)]
    table = pa.Table.from_pylist(made, arrow_schema(dataset))
    return PublicationBatch(arrow_frame(spark, table, spark_schema(dataset)), 0, SAMPLE_RECORDS, table)


@dataclass(frozen=True)
class MicroBatchLimits:
    """Intervals of micro-batches."""

    wait_s: float = 0.5
    """Seconds after which a thread that waits for publications checks whether it is to stop."""
    first_retry_s: float = 2.0
    """The longest pause after the first failure; it doubles each time."""
    longest_retry_s: float = 60.0


class MicroBatches:
    """The thread that executes the continuous channels of one dataset on new publications.

    `position` returns where to begin; `execute` is called with each micro-batch. After a failure the thread begins
    again after a pause, which grows.
    """

    def __init__(
        self,
        dataset: Dataset,
        spark: SparkSession,
        log: Log,
        max_batch: int,
        position: Callable[[], int],
        execute: Callable[[PublicationBatch], object],
        limits: MicroBatchLimits = MicroBatchLimits(),  # noqa: B008  it is frozen
    ) -> None:
        self.dataset = dataset
        self.error: str | None = None
        """Why publications cannot be read, until they can be."""
        self._spark = spark
        self._log = log
        self._max_batch = max_batch
        self._position = position
        self._execute = execute
        self._limits = limits
        self._backoff = Backoff(limits.first_retry_s, limits.longest_retry_s)
        self.stopping = threading.Event()
        """Set to end the thread after the present micro-batch."""
        self._thread = threading.Thread(target=self._run, name=f"micro-batches of {dataset.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and return when the present micro-batch has been executed."""
        self.stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._follow(self._position())
            except Exception as error:
                if self.stopping.is_set():
                    return
                self.error = first_line(error)
                logger.error("micro-batches of %s: %s", self.dataset.name, self.error)
                self.stopping.wait(self._backoff.next_s())

    def _follow(self, position: int) -> None:
        name = self.dataset.name
        while not self.stopping.is_set():
            head = self._log.wait(name, position, self._limits.wait_s)
            if head > position and not self.stopping.is_set():
                through = min(head, position + self._max_batch)
                self._execute(read_batch(self._spark, self._log, self.dataset, position, through))
                position = through
            self.error = None
            self._backoff.reset()
