"""The ingest log in Kafka: a topic of one partition for each dataset, `<prefix><dataset>`.

A record is one message, and its number is its offset plus one. Offsets have no holes, because the topic has
records only: transactions would add Kafka's own markers, and compaction would remove messages. So this log uses
neither, and deviates from the contract in one point: a crash during an append may leave a part of it. Such an
append was not acknowledged. Repeated without an idempotency key, that part is in the log twice. With a key it is
not: the headers of a message have the key, the index of the record and the length of the append, so that a
repetition adds the missing records only; they get later numbers, and records of other appends may be between.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from newsstand.cluster.ingest.schema import arrow_table, line_frame, require_name, spark_schema
from newsstand.cluster.log.contract import AppendResult, Log, LogEntry, require_appendable
from newsstand.cluster.log.kafka_client import Headers, KafkaClient, PendingMessages
from newsstand.errors import BadInput, Busy

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark.sql import DataFrame, SparkSession

    from newsstand.model import Dataset

AppendKey = tuple[str | None, str]
"""A publisher, if it has a name, and its idempotency key."""

_KEY, _PLACE, _COUNT, _PUBLISHER = "key", "place", "count", "publisher"


@dataclass(frozen=True)
class KeyedRecord:
    """One record of an append with a key: its number, and its index among the `count` records of the append."""

    key: AppendKey
    index: int
    count: int
    seq: int


@dataclass
class PartialAppend:
    """The records of an append with a key, from `first` to `last`, and the indexes of missing ones."""

    count: int
    first: int
    last: int
    missing: set[int] = field(default_factory=set)


def encode_headers(key: AppendKey, index: int, count: int) -> Headers:
    """Return the headers of a message of an append with a key."""
    publisher, text = key
    headers: Headers = [(_KEY, text.encode()), (_PLACE, b"%d" % index), (_COUNT, b"%d" % count)]
    return headers if publisher is None else [*headers, (_PUBLISHER, publisher.encode())]


def decode_headers(headers: Headers | dict[str, str | bytes | None] | None, seq: int) -> KeyedRecord | None:
    """Return the record of an append that a message is; None if the append had no key."""
    found = dict(headers or ())
    key, index, count = found.get(_KEY), found.get(_PLACE), found.get(_COUNT)
    if not isinstance(key, bytes) or index is None or count is None:
        return None
    publisher = found.get(_PUBLISHER)
    by = publisher.decode() if isinstance(publisher, bytes) else None
    return KeyedRecord((by, key.decode()), int(index), int(count), seq)


class RecentKeys:
    """The newest keys of a dataset, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[AppendKey, PartialAppend] = OrderedDict()

    @property
    def full(self) -> bool:
        """Whether no older key can be remembered."""
        return len(self._known) >= self._limit

    def find(self, key: AppendKey) -> PartialAppend | None:
        """Return the append with a key, if it is remembered."""
        return self._known.get(key)

    def complete(self, key: AppendKey, count: int, first: int, last: int) -> PartialAppend:
        """Remember an append of which all records are present."""
        before = self._known.get(key, PartialAppend(count, first, last))
        keyed = PartialAppend(count, min(first, before.first), max(last, before.last))
        self._known[key] = keyed
        self._forget()
        return keyed

    def add(self, records: Iterable[KeyedRecord]) -> None:
        """Remember records that are newer than the known ones, in their order."""
        for record in records:
            self._add(record)
        self._forget()

    def add_older(self, records: Iterable[KeyedRecord]) -> None:
        """Remember records that are older than the known ones, in their order."""
        older = RecentKeys(self._limit)
        for record in records:
            older._add(record)
        for key in reversed(older._known):
            found, known = older._known[key], self._known.get(key)
            if known is None:
                self._known[key] = found
            else:
                known.missing &= found.missing
                known.first, known.last = min(known.first, found.first), max(known.last, found.last)
            self._known.move_to_end(key, last=False)
        self._forget()

    def end_search(self, before: int) -> None:
        """Treat an append that begins at or before record `before`, where the search ended, as complete."""
        for keyed in self._known.values():
            unseen = len(keyed.missing)
            if unseen and max(keyed.missing) == unseen - 1 and keyed.first - 1 <= before:
                keyed.first -= unseen
                keyed.missing.clear()

    def _add(self, record: KeyedRecord) -> None:
        known = self._known.get(record.key)
        if known is None:
            missing = set(range(record.count))
            known = self._known[record.key] = PartialAppend(record.count, record.seq, record.seq, missing)
        known.missing.discard(record.index)
        known.first, known.last = min(known.first, record.seq), max(known.last, record.seq)

    def _forget(self) -> None:
        while len(self._known) > self._limit:
            self._known.popitem(last=False)


@dataclass(frozen=True)
class KafkaLogLimits:
    """Limits of a log in Kafka."""

    timeout_s: float = 30.0
    """Duration after which a request or an append that is not acknowledged raises `Busy`."""
    remembered_keys: int = 100_000
    """Idempotency keys that are remembered for each dataset."""
    searched_records: int = 2_000_000
    """Newest records of a topic that are searched for keys when it is opened."""
    window_records: int = 50_000
    """Records that are read at a time when keys are searched from the end of a topic."""
    driver_records: int = 1_000
    """Records up to which a range is read on the driver, which is faster than starting tasks."""
    driver_bytes: int = 4 * 2**20
    """Size up to which a range is read on the driver."""
    task_records: int = 20_000
    """Records that one Spark task reads."""
    record_bytes: int = 8 * 2**20
    """Maximum size of a record."""


@dataclass(eq=False)
class KafkaLogWriter:
    """The writer of one topic. Concurrent appends are in flight together; the messages of each are contiguous."""

    topic: str
    client: KafkaClient
    limits: KafkaLogLimits

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._in_flight: set[AppendKey] = set()
        self._head = 0
        self._unknown_after: int | None = 0
        """Record after which the topic may differ from what is known here, as after a failure."""
        self._keys: RecentKeys | None = None

    def head(self) -> int:
        """Return the number of the newest record in the topic."""
        with self._changed:
            self._refresh()
            return self._head

    def append(
        self, values: Sequence[bytes], idempotency_key: str | None, publisher: str | None = None
    ) -> AppendResult:
        """Add records, or the missing ones of a known key; return when they are acknowledged."""
        key = None if idempotency_key is None else (publisher, idempotency_key)
        with self._changed:
            self._changed.wait_for(lambda: key not in self._in_flight)
            self._refresh()
            count = len(values)
            missing: Sequence[int] = range(count)
            if key is not None:
                known = self._recent_keys().find(key)
                if known is not None and not known.missing:
                    return AppendResult(known.first, known.last, repeated=True)
                if known is not None and known.count != count:
                    raise BadInput(
                        f"idempotency key {key[1]!r}: the interrupted append has {known.count} records, "
                        f"not {count}; repeat it unchanged"
                    )
                missing = missing if known is None else sorted(known.missing)
                self._in_flight.add(key)
            headers = [None if key is None else encode_headers(key, index, count) for index in missing]
            messages = [(values[index], header) for index, header in zip(missing, headers, strict=True)]
            before = self._head
            pending = self.client.send(self.topic, messages)
        pending.settled.wait()
        with self._changed:
            if key is not None:
                self._in_flight.discard(key)
                self._changed.notify_all()
            return self._result(pending, key, count, before)

    def _result(self, pending: PendingMessages, key: AppendKey | None, count: int, before: int) -> AppendResult:
        if pending.failure is not None or pending.first is None or pending.last is None:
            self._unknown_after = min(before, self._unknown_after if self._unknown_after is not None else before)
            if pending.fatal:
                self.client.renew()
            advice = "repeat it with its idempotency key" if key else "a part of it may be in the log"
            raise Busy(f"Kafka at {self.client.servers} accepted no append ({pending.failure}); {advice}", 5.0)
        first, last = pending.first + 1, pending.last + 1
        self._head = max(self._head, last)
        if key is not None:
            keyed = self._recent_keys().complete(key, count, first, last)
            first, last = keyed.first, keyed.last
        return AppendResult(first, last)

    def _refresh(self) -> None:
        if self._unknown_after is None:
            return
        end = self.client.end(self.topic)
        if self._keys is not None:
            found = self.client.messages(self.topic, self._unknown_after, end)
            self._keys.add(filter(None, map(_keyed_record, found)))
        self._head = max(self._head, end)
        self._unknown_after = None

    def _recent_keys(self) -> RecentKeys:
        """Return the keys of the newest records of the topic; search them from its end at first use."""
        if self._keys is None:
            keys = RecentKeys(self.limits.remembered_keys)
            low, limit = self._head, max(0, self._head - self.limits.searched_records)
            while low > limit and not keys.full:
                high, low = low, max(limit, low - self.limits.window_records)
                keys.add_older(filter(None, map(_keyed_record, self.client.messages(self.topic, low, high))))
            keys.end_search(low)
            self._keys = keys
        return self._keys


def _keyed_record(message: Message) -> KeyedRecord | None:
    return decode_headers(message.headers(), (message.offset() or 0) + 1)


CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""Spark's Kafka source."""

_AT = re.compile(rb'\{"_at":(-?\d+)')


LIMITS = KafkaLogLimits()


class KafkaLog(Log):
    """The log of all datasets, in the topics of Kafka servers whose names begin with `prefix`."""

    def __init__(self, servers: str, prefix: str, limits: KafkaLogLimits = LIMITS) -> None:
        self.servers = servers
        self.prefix = prefix
        self._limits = limits
        self._client = KafkaClient(servers, limits.timeout_s, limits.record_bytes)
        self._writers: dict[str, KafkaLogWriter] = {}
        self._opening = threading.Lock()
        self._closed = False

    def append(
        self,
        dataset: str,
        lines: Sequence[bytes],
        at_ms: int,
        key: str | None = None,
        publisher: str | None = None,
    ) -> AppendResult:
        """Add records; see the contract, and the deviation from it in the docstring of this module."""
        require_appendable(lines, key)
        most = self._limits.record_bytes
        for index, line in enumerate(lines):
            if len(line) > most:
                raise BadInput(f"record {index}: has {len(line)} bytes; a log in Kafka accepts at most {most}")
        values = [b'{"_at":%d%b%b' % (at_ms, b"," * (len(line) > 2), line[1:]) for line in lines]
        if not values:
            head = self.head(dataset)
            return AppendResult(head + 1, head)
        return self._writer(dataset).append(values, key, publisher)

    def head(self, dataset: str) -> int:
        topic = self._topic(dataset)
        writer = self._writers.get(dataset)
        return writer.head() if writer else self._client.end(topic)

    def read(self, dataset: str, after: int, until: int | None = None) -> Iterator[LogEntry]:
        topic = self._topic(dataset)
        head = self.head(dataset)
        return self._read(topic, max(0, after), head if until is None else min(until, head))

    def frame(self, spark: SparkSession, dataset: Dataset, after: int, until: int) -> DataFrame:
        until = min(until, self.head(dataset.name))
        if after >= until:
            return spark.createDataFrame([], spark_schema(dataset))
        topic = self._topic(dataset.name)
        offsets = {"startingOffsets": _offsets(topic, after), "endingOffsets": _offsets(topic, until)}
        return self._load(spark, dataset, offsets)

    def table(self, dataset: Dataset, after: int, until: int) -> pa.Table | None:
        if until - after > self._limits.driver_records:
            return None
        records, size = [], 0
        try:
            for entry in self.read(dataset.name, after, until):
                size += len(entry.line)
                if size > self._limits.driver_bytes:
                    return None
                records.append((entry.seq, entry.at_ms, entry.line))
            return arrow_table(dataset, records)
        except (BadInput, pa.ArrowInvalid):
            return None  # Spark reads messages that are not of Newsstand as rows of nulls

    def wait(self, dataset: str, after: int, timeout_s: float) -> int:
        self._writer(dataset)  # it knows the head without a request
        return super().wait(dataset, after, timeout_s)

    def verify(self) -> None:
        """Do nothing: the servers verify their data."""

    def close(self) -> None:
        """Close the connections; an append in flight fails."""
        with self._opening:
            self._closed = True
            self._client.close()

    def _topic(self, dataset: str) -> str:
        require_name(f"dataset {dataset[:80]!r}", dataset, BadInput)
        if self._closed:
            raise BadInput(f"the log in Kafka at {self.servers} is closed")
        return self.prefix + dataset

    def _writer(self, dataset: str) -> KafkaLogWriter:
        topic = self._topic(dataset)
        with self._opening:
            if dataset not in self._writers:
                self._client.create(topic)
                self._writers[dataset] = KafkaLogWriter(topic, self._client, self._limits)
            return self._writers[dataset]

    def _read(self, topic: str, after: int, until: int) -> Iterator[LogEntry]:
        for message in self._client.messages(topic, after, until):
            line = message.value() or b""
            match = _AT.match(line)
            if match is None:
                raise BadInput(f"topic {topic}, offset {message.offset()}: not a record of Newsstand")
            yield LogEntry((message.offset() or 0) + 1, int(match[1]), line)

    def _load(self, spark: SparkSession, dataset: Dataset, options: Mapping[str, str]) -> DataFrame:
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        always = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self._topic(dataset.name),
            "maxRecordsPerPartition": str(self._limits.task_records),
        }
        try:
            messages = spark.read.format("kafka").options(**always, **options).load()
        except AnalysisException as error:
            if "Failed to find data source" not in str(error) and "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            advice = f'"spark.jars.packages" = "{CONNECTOR}" in [spark] of newsstand.toml'
            raise BadInput(f"log: Spark has no Kafka connector; set {advice}") from error
        lines = messages.select(F.col("value").cast("string").alias("line"), (F.col("offset") + 1).alias("_seq"))
        return line_frame(lines, dataset)


def _offsets(topic: str, offset: int) -> str:
    return json.dumps({topic: {"0": offset}})
