"""The client of a log in Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from newsstand.errors import BadInput, Busy

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]
except ImportError as error:
    raise BadInput("a log in Kafka needs the package confluent-kafka: pip install 'newsstand[kafka]'") from error

Headers = list[tuple[str, str | bytes | None]]
"""Headers of a message."""

_FETCHED = 10_000
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class PendingMessages:
    """Messages that were handed to the producer, and their acknowledgements."""

    def __init__(self, count: int) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.failure: str | None = None
        self.fatal = False
        self.settled = threading.Event()
        """Set when all are acknowledged or have failed; the producer limits the time."""
        self._open = count
        self._lock = threading.Lock()

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """Record the acknowledgement or the failure of one message."""
        with self._lock:
            if error is not None:
                self._fail(error.str(), error.fatal())
            else:
                self.last = message.offset()
                self.first = self.last if self.first is None else self.first
            self._settle(1)

    def fail(self, failure: str, fatal: bool, count: int) -> None:
        """Record that the last `count` messages were not handed over."""
        with self._lock:
            self._fail(failure, fatal)
            self._settle(count)

    def _fail(self, failure: str, fatal: bool) -> None:
        self.failure = failure
        self.fatal |= fatal

    def _settle(self, count: int) -> None:
        self._open -= count
        if self._open == 0:
            self.settled.set()


class KafkaClient:
    """The topics of Kafka servers: creates, reads and writes them. Thread-safe."""

    def __init__(self, servers: str, timeout_s: float, record_bytes: int) -> None:
        self.servers = servers
        self._timeout_s = timeout_s
        self._message_bytes = record_bytes + 2**16
        """Maximum size of a message, with its headers."""
        self._lock = threading.Lock()
        self._consumer = self._new_consumer()
        self._ready: set[str] = set()
        self._sending = threading.Lock()
        self._producer = self._new_producer()
        self._closed = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="kafka acknowledgements", daemon=True)
        self._poller.start()

    def create(self, topic: str) -> None:
        """Create a topic of one partition without retention limits, or verify an existing one."""
        with self._lock:
            if topic in self._ready:
                return
            try:
                administrator = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
                partitions = self._partitions(topic)
                if not partitions:
                    self._create_topic(administrator, topic)
                elif partitions != 1:
                    raise BadInput(f"topic {topic}: has {partitions} partitions; create it again with one")
                else:
                    self._require_no_compaction(administrator, topic)
            except KafkaException as error:
                raise self._busy(error) from error
            self._ready.add(topic)

    def end(self, topic: str) -> int:
        """Return the end offset of a topic; 0 if it does not exist."""
        with self._lock:
            try:
                if not self._partitions(topic):
                    return 0
                partition = TopicPartition(topic, 0)
                offsets = self._consumer.get_watermark_offsets(partition, timeout=self._timeout_s)
            except KafkaException as error:
                if error.args[0].code() in _UNKNOWN:
                    return 0
                raise self._busy(error) from error
        if offsets is None:
            raise Busy(f"Kafka at {self.servers} does not answer", 5.0)
        return int(offsets[1])

    def messages(self, topic: str, begin: int, end: int) -> Iterator[Message]:
        """Yield the messages from offset `begin` to before `end`, in order."""
        if begin >= end:
            return
        consumer = self._new_consumer()
        try:
            consumer.assign([TopicPartition(topic, 0, begin)])
            while begin < end:
                fetched = consumer.consume(min(_FETCHED, end - begin), timeout=self._timeout_s)
                if not fetched:
                    raise Busy(f"Kafka at {self.servers} does not answer", 5.0)
                for message in fetched:
                    self._require_next(topic, message, begin)
                    yield message
                    begin += 1
        finally:
            consumer.close()

    def send(self, topic: str, messages: Sequence[tuple[bytes, Headers | None]]) -> PendingMessages:
        """Hand over messages contiguously; wait while the queue of the producer is full."""
        pending = PendingMessages(len(messages))
        deadline = time.monotonic() + self._timeout_s
        with self._sending:
            for index, (value, headers) in enumerate(messages):
                try:
                    self._hand_over(topic, value, headers, pending, deadline)
                except BufferError:
                    pending.fail("its queue is full", False, len(messages) - index)
                    break
                except KafkaException as error:
                    pending.fail(error.args[0].str(), error.args[0].fatal(), len(messages) - index)
                    break
        return pending

    def renew(self) -> None:
        """Replace the producer after a fatal error; the old one fails its queued messages."""
        with self._sending:
            old, self._producer = self._producer, self._new_producer()
        old.purge()
        old.flush(5)

    def close(self) -> None:
        """Close the connections; messages without an acknowledgement fail."""
        if not self._closed.is_set():
            self._closed.set()
            self._poller.join()
            with self._sending:
                self._producer.purge()
                self._producer.flush(5)
            with self._lock:
                self._consumer.close()

    def _new_producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.servers,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 1,
                "message.max.bytes": self._message_bytes,
                "delivery.timeout.ms": int(self._timeout_s * 1000),
                "queue.buffering.max.messages": 100_000,
                "queue.buffering.max.kbytes": 2**17,
                "log_level": 0,  # errors are raised
            }
        )

    def _new_consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "newsstand",  # the client requires one; offsets are assigned and never committed
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,  # errors are raised
            }
        )

    def _partitions(self, topic: str) -> int:
        metadata = self._consumer.list_topics(topic, timeout=self._timeout_s).topics[topic]
        if metadata.error is not None and metadata.error.code() not in _UNKNOWN:
            raise KafkaException(metadata.error)
        return len(metadata.partitions)

    def _create_topic(self, administrator: AdminClient, topic: str) -> None:
        config = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "max.message.bytes": str(self._message_bytes),
        }
        new = NewTopic(topic, num_partitions=1, replication_factor=-1, config=config)
        created = administrator.create_topics([new], request_timeout=self._timeout_s)
        try:
            created[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _require_no_compaction(self, administrator: AdminClient, topic: str) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        described = administrator.describe_configs([resource], request_timeout=self._timeout_s)
        policy = described[resource].result()["cleanup.policy"].value
        if "compact" in policy:
            raise BadInput(f"topic {topic}: cleanup.policy={policy} would remove records; set it to delete")

    def _require_next(self, topic: str, message: Message, offset: int) -> None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise BadInput(
                    f"topic {topic}: record {offset + 1} was deleted; set retention.ms and .bytes to -1"
                )
            raise self._busy(KafkaException(error))
        if message.offset() != offset:
            raise BadInput(
                f"topic {topic}: no record at offset {offset}; a topic of the log has neither transactions nor "
                f"compaction"
            )

    def _hand_over(
        self, topic: str, value: bytes, headers: Headers | None, pending: PendingMessages, deadline: float
    ) -> None:
        while not self._closed.is_set():
            try:
                self._producer.produce(topic, value, headers=headers, partition=0, on_delivery=pending.on_delivery)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise
                self._closed.wait(0.002)
        raise BufferError

    def _busy(self, error: KafkaException) -> Busy:
        return Busy(f"Kafka at {self.servers}: {error.args[0].str()}", 5.0)

    def _poll(self) -> None:
        while not self._closed.is_set():
            self._producer.poll(0.1)
