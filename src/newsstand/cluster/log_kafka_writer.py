"""Appending to a log in Kafka: one producer for all topics, and for each topic a writer that knows its keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from newsstand.cluster.log import Appended
from newsstand.cluster.log_kafka_keys import Headers, KeyOf, Keys, Part, decode_headers, encode_headers
from newsstand.cluster.log_kafka_topics import Topics
from newsstand.errors import BadInput, Busy

_WINDOW = 50_000
"""So many records are looked at together when keys are searched from the end of a topic."""


class Sent:
    """Messages that were handed to the producer: what became of them."""

    def __init__(self, count: int) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.failure: str | None = None
        self.fatal = False
        self._open = count
        self._done = threading.Event()
        self._telling = threading.Lock()

    def told(self, error: KafkaError | None, message: Message) -> None:
        """The producer's word on one message."""
        with self._telling:
            if error is not None:
                self.failure = error.str()
                self.fatal |= error.fatal()
            else:
                offset = message.offset()
                self.first = offset if self.first is None else self.first
                self.last = offset
            self._settle(1)

    def give_up(self, failure: str, fatal: bool, count: int) -> None:
        """The last so many messages are not handed over."""
        with self._telling:
            self.failure = failure
            self.fatal |= fatal
            self._settle(count)

    def _settle(self, count: int) -> None:
        self._open -= count
        if self._open == 0:
            self._done.set()

    def wait(self) -> None:
        """Wait until all are acknowledged or have failed, which the producer sees to in time."""
        self._done.wait()


class Sender:
    """A producer with a thread that listens to the acknowledgements."""

    def __init__(self, servers: str, timeout_s: float, largest: int) -> None:
        self.servers = servers
        self._timeout_s = timeout_s
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 1,
            "message.max.bytes": largest + 2**16,
            "delivery.timeout.ms": int(timeout_s * 1000),
            "queue.buffering.max.messages": 100_000,
            "queue.buffering.max.kbytes": 2**17,
            "log_level": 0,  # what goes wrong is raised
        }
        self._closed = threading.Event()
        self._sending = threading.Lock()
        self._producer = Producer(self._settings)
        self._listener = threading.Thread(target=self._listen, name="kafka acknowledgements", daemon=True)
        self._listener.start()

    def send(self, topic: str, messages: Sequence[tuple[bytes, Headers | None]]) -> Sent:
        """Hand over messages, one after another and no others between; wait where the producer's queue is full."""
        sent = Sent(len(messages))
        patience = time.monotonic() + self._timeout_s
        with self._sending:
            for place, (value, headers) in enumerate(messages):
                try:
                    self._hand_over(topic, value, headers, sent, patience)
                except BufferError:
                    sent.give_up("its queue stays full", False, len(messages) - place)
                    break
                except KafkaException as error:
                    sent.give_up(error.args[0].str(), error.args[0].fatal(), len(messages) - place)
                    break
        return sent

    def _hand_over(self, topic: str, value: bytes, headers: Headers | None, sent: Sent, patience: float) -> None:
        while not self._closed.is_set():
            try:
                self._producer.produce(topic, value, headers=headers, partition=0, on_delivery=sent.told)
                return
            except BufferError:
                if time.monotonic() > patience:
                    raise
                self._closed.wait(0.002)
        raise BufferError

    def renew(self) -> None:
        """Take a new producer after a fatal error; the old one fails what it still has."""
        with self._sending:
            old, self._producer = self._producer, Producer(self._settings)
        old.purge()
        old.flush(5)

    def close(self) -> None:
        """Let go of the connections; what is not acknowledged by now fails."""
        self._closed.set()
        self._listener.join()
        with self._sending:
            self._producer.purge()
            self._producer.flush(5)

    def _listen(self) -> None:
        while not self._closed.is_set():
            self._producer.poll(0.1)


class Writer:
    """Appends to one topic. Several threads' appends are under way together; each is whole and in one piece."""

    def __init__(self, topic: str, topics: Topics, sender: Sender, remembered: int, searched: int) -> None:
        self._topic = topic
        self._topics = topics
        self._sender = sender
        self._remembered = remembered
        self._searched = searched
        self._changed = threading.Condition()
        self._under_way: set[KeyOf] = set()
        self._head = 0
        self._doubtful_from: int | None = 0
        """After which record the topic may have others than are known here, as after a failure."""
        self._keys: Keys | None = None

    def head(self) -> int:
        """The number of the newest record that is acknowledged, or is there nevertheless."""
        with self._changed:
            self._refresh()
            return self._head

    def append(self, values: Sequence[bytes], given: str | None, publisher: str | None = None) -> Appended:
        """Add records, of a key that was seen before those that are missing; return when they are acknowledged."""
        key = None if given is None else (publisher, given)
        with self._changed:
            self._changed.wait_for(lambda: key not in self._under_way)
            self._refresh()
            if key is not None and self._remember().find((None, key[1])) is not None:
                key = (None, key[1])  # an append of an older version, which does not say whose key it is
            places: Sequence[int] = range(len(values))
            if key is not None:
                known = self._remember().find(key)
                if known is not None and not known.missing:
                    return Appended(known.first, known.last, repeated=True)
                if known is not None:
                    if known.count != len(values):
                        raise BadInput(
                            f"idempotency key {key[1]!r}: its append was begun with {known.count} records, "
                            f"not {len(values)}; repeat it as it was"
                        )
                    places = sorted(known.missing)
                self._under_way.add(key)
            count = len(values)
            messages = [(values[at], encode_headers(key, at, count) if key is not None else None) for at in places]
            before = self._head
            sent = self._sender.send(self._topic, messages)
        sent.wait()
        with self._changed:
            if key is not None:
                self._under_way.discard(key)
                self._changed.notify_all()
            return self._settle(sent, key, count, before)

    def _settle(self, sent: Sent, key: KeyOf | None, count: int, before: int) -> Appended:
        if sent.failure is not None or sent.first is None or sent.last is None:
            self._doubtful_from = min(before, self._doubtful_from if self._doubtful_from is not None else before)
            if sent.fatal:
                self._sender.renew()
            mend = "repeat it with its idempotency key" if key else "a part of it may be there"
            raise Busy(f"Kafka at {self._sender.servers} took no append ({sent.failure}); {mend}", 5.0)
        first, last = sent.first + 1, sent.last + 1
        self._head = max(self._head, last)
        if key is not None:
            keyed = self._remember().whole(key, count, first, last)
            first, last = keyed.first, keyed.last
        return Appended(first, last)

    def _refresh(self) -> None:
        if self._doubtful_from is None:
            return
        end = self._topics.end(self._topic)
        if self._keys is not None:
            found = self._topics.messages(self._topic, self._doubtful_from, end)
            self._keys.learn(filter(None, map(_part, found)))
        self._head = max(self._head, end)
        self._doubtful_from = None

    def _remember(self) -> Keys:
        """The keys of this topic's newest records, searched from its end at first use."""
        if self._keys is None:
            keys = Keys(self._remembered)
            low, limit = self._head, max(0, self._head - self._searched)
            while low > limit and not keys.full:
                high, low = low, max(limit, low - _WINDOW)
                keys.learn_older(filter(None, map(_part, self._topics.messages(self._topic, low, high))))
            keys.end_search(low)
            self._keys = keys
        return self._keys


def _part(message: Message) -> Part | None:
    return decode_headers(message.headers(), (message.offset() or 0) + 1)
