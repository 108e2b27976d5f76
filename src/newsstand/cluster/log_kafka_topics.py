"""The topics of a log in Kafka: made, measured and read."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from newsstand.errors import BadInput, Busy

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]
except ImportError as error:
    raise BadInput("a log in Kafka needs the package confluent-kafka: pip install 'newsstand[kafka]'") from error

_FETCHED = 10_000
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class Topics:
    """The topics of some Kafka servers. Methods may be called from several threads."""

    def __init__(self, servers: str, timeout_s: float, largest: int) -> None:
        self._servers = servers
        self._timeout_s = timeout_s
        self._largest = largest
        self._asking = threading.Lock()
        self._consumer = self._new_consumer()
        self._made: set[str] = set()

    def make(self, topic: str) -> None:
        """Make a topic of one partition that keeps everything, or see that the one that is there is fit."""
        with self._asking:
            if topic in self._made:
                return
            try:
                administrator = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
                partitions = self._partitions(topic)
                if not partitions:
                    self._create(administrator, topic)
                elif partitions != 1:
                    raise BadInput(f"topic {topic}: has {partitions} partitions; make it again with one")
                else:
                    self._require_no_compaction(administrator, topic)
            except KafkaException as error:
                raise self.trouble(error) from error
            self._made.add(topic)

    def end(self, topic: str) -> int:
        """How many records a topic has had; 0 if it does not exist."""
        with self._asking:
            try:
                if not self._partitions(topic):
                    return 0
                place = TopicPartition(topic, 0)
                found = self._consumer.get_watermark_offsets(place, timeout=self._timeout_s)
            except KafkaException as error:
                if error.args[0].code() in _UNKNOWN:
                    return 0
                raise self.trouble(error) from error
        if found is None:
            raise Busy(f"Kafka at {self._servers} does not answer", 5.0)
        return int(found[1])

    def messages(self, topic: str, begin: int, end: int) -> Iterator[Message]:
        """The messages from offset `begin` to before `end`, in order."""
        if begin >= end:
            return
        consumer = self._new_consumer()
        try:
            consumer.assign([TopicPartition(topic, 0, begin)])
            while begin < end:
                fetched = consumer.consume(min(_FETCHED, end - begin), timeout=self._timeout_s)
                if not fetched:
                    raise Busy(f"Kafka at {self._servers} does not answer", 5.0)
                for message in fetched:
                    self._require_next(topic, message, begin)
                    yield message
                    begin += 1
        finally:
            consumer.close()

    def close(self) -> None:
        """Let go of the connections."""
        with self._asking:
            self._consumer.close()

    def trouble(self, error: KafkaException) -> Busy:
        """What to raise when the servers do not do what they are asked."""
        return Busy(f"Kafka at {self._servers}: {error.args[0].str()}", 5.0)

    def _new_consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "newsstand",  # the client wants one; places are assigned and never committed
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,  # what goes wrong is raised
            }
        )

    def _partitions(self, topic: str) -> int:
        told = self._consumer.list_topics(topic, timeout=self._timeout_s).topics[topic]
        if told.error is not None and told.error.code() not in _UNKNOWN:
            raise KafkaException(told.error)
        return len(told.partitions)

    def _create(self, administrator: AdminClient, topic: str) -> None:
        config = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "max.message.bytes": str(self._largest + 2**16),
        }
        wanted = NewTopic(topic, num_partitions=1, replication_factor=-1, config=config)
        made = administrator.create_topics([wanted], request_timeout=self._timeout_s)
        try:
            made[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _require_no_compaction(self, administrator: AdminClient, topic: str) -> None:
        asked = ConfigResource(ResourceType.TOPIC, topic)
        told = administrator.describe_configs([asked], request_timeout=self._timeout_s)[asked].result()
        policy = told["cleanup.policy"].value
        if "compact" in policy:
            raise BadInput(f"topic {topic}: cleanup.policy={policy} would remove records; set it to delete")

    def _require_next(self, topic: str, message: Message, offset: int) -> None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise BadInput(f"topic {topic}: record {offset + 1} is gone; set retention.ms and .bytes to -1")
            raise self.trouble(KafkaException(error))
        if message.offset() != offset:
            raise BadInput(
                f"topic {topic}: no record at offset {offset}; a topic of the log has neither transactions nor "
                f"compaction"
            )
