"""The ingest log in Kafka: a topic of one partition for each dataset, `<prefix><dataset>`.

A record is one message, and its number is its offset plus one. Offsets have no holes because nothing but records
is ever in such a topic: transactions would put Kafka's own markers between them, compaction would remove some. So
this log uses neither, and differs from the contract in one point: a crash in the middle of an append may leave a
part of it. Such an append was not acknowledged; if it is simply repeated, that part is there twice. With an
idempotency key it is not: a message has the key, its place in the append and the append's length in its headers,
so that a repetition adds only what is missing, under later numbers and perhaps with others' records between.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from newsstand.cluster.log import Appended, Entry, Log
from newsstand.cluster.log_kafka_topics import Topics
from newsstand.cluster.log_kafka_writer import Sender, Writer
from newsstand.cluster.records import is_name, line_frame, spark_schema
from newsstand.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from newsstand.model import Dataset

REMEMBERED_KEYS = 100_000
"""So many idempotency keys of each dataset are remembered."""
SEARCHED_RECORDS = 2_000_000
"""The keys are looked for in so many of a topic's newest records when it is opened."""
LARGEST_RECORD = 8 * 2**20
"""No record may have more bytes."""
TASK_RECORDS = 20_000
"""So many records are read by one task of Spark's."""
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""Spark's own Kafka source, in the newest version that is published."""

_AT = re.compile(rb'\{"_at":(-?\d+)')


class KafkaLog(Log):
    """The log of all datasets in the topics of some Kafka servers whose names begin with `prefix`.

    An append that is not acknowledged within `timeout_s` raises `Busy`.
    """

    def __init__(
        self,
        servers: str,
        prefix: str,
        *,
        timeout_s: float = 30.0,
        remembered_keys: int = REMEMBERED_KEYS,
        searched_records: int = SEARCHED_RECORDS,
    ) -> None:
        self.servers = servers
        self.prefix = prefix
        self._remembered_keys = remembered_keys
        self._searched_records = searched_records
        self._topics = Topics(servers, timeout_s, LARGEST_RECORD)
        self._sender = Sender(servers, timeout_s, LARGEST_RECORD)
        self._writers: dict[str, Writer] = {}
        self._opening = threading.Lock()
        self._closed = False

    def append(
        self,
        dataset: str,
        lines: Sequence[bytes],
        at_ms: int,
        key: str | None = None,
        publisher: str | None = None,
    ) -> Appended:
        """Add records, as the contract and the top of this file say; without records, tell where they would go."""
        if key is not None and not (0 < len(key) <= 256 and key.isprintable()):
            raise BadInput(f"idempotency key {key[:80]!r}: give 1 to 256 printable characters")
        values = [_value(place, line, at_ms) for place, line in enumerate(lines)]
        if not values:
            head = self.head(dataset)
            return Appended(head + 1, head)
        return self._writer(dataset).append(values, key, publisher)

    def head(self, dataset: str) -> int:
        topic = self._topic(dataset)
        writer = self._writers.get(dataset)
        return writer.head() if writer else self._topics.end(topic)

    def read(self, dataset: str, after: int, until: int | None = None) -> Iterator[Entry]:
        topic = self._topic(dataset)
        head = self.head(dataset)
        return self._read(topic, max(0, after), head if until is None else min(until, head))

    def frame(self, spark: SparkSession, dataset: Dataset, after: int, until: int) -> DataFrame:
        until = min(until, self.head(dataset.name))
        if after >= until:
            return spark.createDataFrame([], spark_schema(dataset))
        topic = self._topic(dataset.name)
        ends = {"startingOffsets": _offsets(topic, after), "endingOffsets": _offsets(topic, until)}
        return self._load(spark, dataset, ends, streaming=False)

    def stream(self, spark: SparkSession, dataset: Dataset, after: int, limit: int) -> DataFrame:
        topic = self._topic(dataset.name)
        self._topics.make(topic)  # Spark does not wait for a topic that does not exist yet
        options = {"startingOffsets": _offsets(topic, after), "maxOffsetsPerTrigger": str(limit)}
        return self._load(spark, dataset, options, streaming=True)

    def until(self, offset: str) -> int:
        try:
            (partitions,) = json.loads(offset).values()
            return int(partitions["0"])
        except (ValueError, TypeError, KeyError, AttributeError):
            raise BadInput(f"offset {offset[:80]!r}: not one of a Kafka topic of one partition") from None

    def verify(self) -> None:
        """Do nothing: the servers verify what they keep."""

    def close(self) -> None:
        """Let go of the connections; an append that is under way fails."""
        with self._opening:
            if not self._closed:
                self._closed = True
                self._sender.close()
                self._topics.close()

    # Within

    def _topic(self, dataset: str) -> str:
        if not is_name(dataset):
            raise BadInput(
                f"dataset {dataset[:80]!r}: a name is a lower-case letter, then a-z, 0-9 and _, at most 63"
            )
        if self._closed:
            raise BadInput(f"the log in Kafka at {self.servers} is closed")
        return self.prefix + dataset

    def _writer(self, dataset: str) -> Writer:
        topic = self._topic(dataset)
        with self._opening:
            if dataset not in self._writers:
                self._topics.make(topic)
                self._writers[dataset] = Writer(
                    topic, self._topics, self._sender, self._remembered_keys, self._searched_records
                )
            return self._writers[dataset]

    def _read(self, topic: str, after: int, until: int) -> Iterator[Entry]:
        for message in self._topics.messages(topic, after, until):
            line = message.value() or b""
            known = _AT.match(line)
            if known is None:
                raise BadInput(f"topic {topic}, offset {message.offset()}: not a record that Newsstand wrote")
            yield Entry((message.offset() or 0) + 1, int(known[1]), line)

    def _load(
        self, spark: SparkSession, dataset: Dataset, options: Mapping[str, str], *, streaming: bool
    ) -> DataFrame:
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        always = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self._topic(dataset.name),
            "maxRecordsPerPartition": str(TASK_RECORDS),
        }
        try:
            reader = spark.readStream if streaming else spark.read
            messages = reader.format("kafka").options(**always, **options).load()
        except AnalysisException as error:
            if "Failed to find data source" not in str(error) and "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            mend = f'"spark.jars.packages" = "{CONNECTOR}" in [spark] of newsstand.toml'
            raise BadInput(f"log: Spark has no Kafka connector; set {mend}") from error
        lines = messages.select(F.col("value").cast("string").alias("line"), (F.col("offset") + 1).alias("_seq"))
        return line_frame(lines, dataset)


def _value(place: int, line: bytes, at_ms: int) -> bytes:
    if line[:1] != b"{" or line[-1:] != b"}" or b"\n" in line:
        raise ValueError(f"not a JSON object on one line: {line[:80]!r}")
    if len(line) > LARGEST_RECORD:
        raise BadInput(f"record {place}: has {len(line)} bytes; a log in Kafka takes at most {LARGEST_RECORD}")
    return b'{"_at":%d%b%b' % (at_ms, b"," if len(line) > 2 else b"", line[1:])


def _offsets(topic: str, offset: int) -> str:
    return json.dumps({topic: {"0": offset}})
