# ruff: noqa: F811  a test's arguments are the fixtures that this file imports

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.cluster.kafka_logs import SERVERS, log, opened, reopen, server, servers  # noqa: F401
from support.cluster.kafka_server import KafkaServer, connector_jars
from support.cluster.log_suite import REPORTS, DurableLogContract, LogContract, lines

from newsstand.cluster.log.contract import AppendResult
from newsstand.cluster.log.kafka import (
    KafkaLog,
    KafkaLogLimits,
    KeyedRecord,
    RecentKeys,
    decode_headers,
    encode_headers,
)
from newsstand.errors import BadInput, Busy

pytestmark = pytest.mark.slow


class TestKafkaLog(LogContract):
    pass


class TestKafkaLogReopened(DurableLogContract):
    pass


def begin(log: KafkaLog, key: str, count: int, places: list[int], publisher: str | None = None) -> None:
    """Leave a part of an append in the log, as a crash may."""
    producer = Producer({"bootstrap.servers": log.servers})
    for place in places:
        value = b'{"_at":1,"id":%d}' % place
        headers = encode_headers((publisher, key), place, count)
        producer.produce(log.prefix + "reports", value, headers=headers, partition=0)
    assert producer.flush(30) == 0


def ids(log: KafkaLog, dataset: str = "reports") -> list[int]:
    """Return the `id` of each record, whose numbers have no holes."""
    entries = list(log.read(dataset, 0))
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    return [json.loads(entry.line)["id"] for entry in entries]


def numbered(first: int, count: int) -> list[bytes]:
    return [b'{"id":%d}' % number for number in range(first, first + count)]


@pytest.mark.parametrize(
    ("there", "then"), [([0], [1, 2, 3]), ([0, 1, 2], [3]), ([0, 2], [1, 3]), ([3], [0, 1, 2])]
)
def test_repeated_append_adds_missing_records(
    log: KafkaLog,
    reopen: Callable[[], KafkaLog],
    there: list[int],
    then: list[int],
) -> None:
    log.append("reports", numbered(9, 1), 1)
    begin(log, "k", 4, there)
    log = reopen()
    assert log.append("reports", numbered(0, 4), 2, "k") == AppendResult(2, 5)
    assert ids(log) == [9, *there, *then]
    assert log.append("reports", numbered(0, 4), 3, "k") == AppendResult(2, 5, repeated=True)
    assert reopen().append("reports", numbered(0, 4), 3, "k") == AppendResult(2, 5, repeated=True)


def test_repeated_append_rejected_when_record_count_differs(
    log: KafkaLog,
    reopen: Callable[[], KafkaLog],
) -> None:
    log.append("reports", numbered(0, 1), 1)
    begin(log, "k", 3, [0])
    log = reopen()
    with pytest.raises(BadInput, match="'k': the interrupted append has 3 records, not 2"):
        log.append("reports", numbered(0, 2), 2, "k")
    assert log.append("reports", numbered(0, 3), 2, "k") == AppendResult(2, 4)


def test_partial_append_completed_only_by_its_publisher(log: KafkaLog, reopen: Callable[[], KafkaLog]) -> None:
    log.append("reports", numbered(9, 1), 1)
    begin(log, "k", 3, [0], "gate")
    log = reopen()
    assert log.append("reports", numbered(5, 2), 2, "k", "port") == AppendResult(3, 4)
    assert log.append("reports", numbered(0, 3), 2, "k", "gate") == AppendResult(2, 6)
    assert ids(log) == [9, 0, 5, 6, 1, 2]


def test_key_search_stops_at_limit(log: KafkaLog) -> None:
    log.append("reports", numbered(0, 1), 1, "old")
    log.append("reports", numbered(1, 4), 1, "cut")
    log.append("reports", numbered(5, 1), 1, "new")
    again = KafkaLog(log.servers, log.prefix, KafkaLogLimits(searched_records=3))
    try:
        assert again.append("reports", numbered(5, 1), 2, "new") == AppendResult(6, 6, repeated=True)
        assert again.append("reports", numbered(1, 4), 2, "cut") == AppendResult(2, 5, repeated=True)
        assert again.append("reports", numbered(0, 1), 2, "old") == AppendResult(7, 7)
    finally:
        again.close()


@given(
    st.lists(
        st.tuples(st.text(min_size=1, max_size=3), st.integers(1, 5)), max_size=12, unique_by=lambda one: one[0]
    ),
    st.integers(1, 7),
)
def test_keys_read_backwards_equal_keys_read_forwards(appends: list[tuple[str, int]], window: int) -> None:
    records = [(("gate", key), place, count) for key, count in appends for place in range(count)]
    headers = [encode_headers(*one) for one in records]
    parts = [part for seq, one in enumerate(headers, 1) if (part := decode_headers(one, seq)) is not None]
    forwards, backwards = RecentKeys(100), RecentKeys(100)
    forwards.add(parts)
    high = len(parts)
    while high > 0:
        low = max(0, high - window)
        backwards.add_older(parts[low:high])
        high = low
    for key, _ in appends:
        assert backwards.find(("gate", key)) == forwards.find(("gate", key))
        assert not backwards.find(("gate", key)).missing  # type: ignore[union-attr]


def test_oldest_keys_are_forgotten_first() -> None:
    forwards, backwards = RecentKeys(2), RecentKeys(2)
    parts = [KeyedRecord((None, key), 0, 1, seq) for seq, key in enumerate("abc", 1)]
    forwards.add(parts)
    for part in reversed(parts):
        backwards.add_older([part])
    for keys in (forwards, backwards):
        assert keys.full
        assert [key for key in "abc" if keys.find((None, key))] == ["b", "c"]


def test_append_rejected_when_a_record_is_too_large(log: KafkaLog) -> None:
    fits = b'{"id":1,"kind":"%b"}' % (b"x" * (KafkaLogLimits().record_bytes - 50))
    assert log.append("reports", [fits], 1) == AppendResult(1, 1)
    with pytest.raises(BadInput, match="record 1: has"):
        log.append("reports", [b"{}", b'{"kind":"%b"}' % (b"x" * KafkaLogLimits().record_bytes)], 1)
    assert log.head("reports") == 1


@pytest.mark.parametrize(
    ("partitions", "config", "message"),
    [(2, {}, "reports: has 2 partitions"), (1, {"cleanup.policy": "compact"}, "cleanup.policy=compact")],
)
def test_topic_rejected_when_unsuitable(
    log: KafkaLog,
    partitions: int,
    config: dict[str, str],
    message: str,
) -> None:
    topic = log.prefix + "reports"
    administrator = AdminClient({"bootstrap.servers": log.servers})
    administrator.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result()
    with pytest.raises(BadInput, match=message):
        log.append("reports", numbered(0, 1), 1)


def test_read_rejects_foreign_messages(log: KafkaLog) -> None:
    log.append("reports", numbered(0, 1), 1)
    producer = Producer({"bootstrap.servers": log.servers})
    producer.produce(log.prefix + "reports", b"hello", partition=0)
    producer.flush(30)
    with pytest.raises(BadInput, match="offset 1: not a record"):
        list(KafkaLog(log.servers, log.prefix).read("reports", 0))


def test_unreachable_server_raises_busy() -> None:
    nowhere = KafkaLog("127.0.0.1:1", "x.", KafkaLogLimits(timeout_s=1))
    try:
        with pytest.raises(Busy, match=r"Kafka at 127\.0\.0\.1:1"):
            nowhere.append("reports", numbered(0, 1), 1)
        with pytest.raises(Busy, match=r"Kafka at 127\.0\.0\.1:1"):
            nowhere.head("reports")
    finally:
        nowhere.close()


def test_missing_package_is_reported() -> None:
    hidden = "import sys; sys.modules['confluent_kafka'] = None; import newsstand.cluster.log.kafka"
    ran = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)
    assert ran.stderr.endswith("needs the package confluent-kafka: pip install 'newsstand[kafka]'\n")
    assert "BadInput" in ran.stderr.splitlines()[-1]


def test_missing_connector_is_reported(log: KafkaLog, spark: SparkSession) -> None:
    log.append("reports", lines(1, 1), 1)
    with pytest.raises(BadInput, match=r"no Kafka connector; set .spark\.jars\.packages"):
        log.frame(spark, REPORTS, 0, 1)


def test_log_on_spark_with_connector(servers: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        str(Path(__file__).with_name("kafka_on_spark.py")),
    ]
    settings = {"NEWSSTAND_SPARK_CONF": f"spark.driver.extraClassPath={connector_jars()}/*", SERVERS: servers}
    ran = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, timeout=250, check=False
    )
    assert ran.returncode == 0, ran.stdout[-5000:]


_WRITER = """
import sys
from newsstand.cluster.log.kafka import KafkaLog
log = KafkaLog(sys.argv[1], sys.argv[2])
for turn in range(1000):
    records = [b'{"id":%d}' % (turn * 20_000 + place) for place in range(20_000)]
    print("begun", turn, flush=True)
    log.append("reports", records, 1, f"key {turn}")
    print("done", turn, flush=True)
"""


def test_repeated_append_completes_it_after_sigkill(log: KafkaLog) -> None:
    command = [sys.executable, "-c", _WRITER, log.servers, log.prefix]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if line == "begun 2\n":
                time.sleep(0.12)
                os.kill(writer.pid, signal.SIGKILL)
                break
        last = [*line.splitlines(), *writer.stdout.read().splitlines()][-1]
    time.sleep(0.5)  # what was under way when it died may still arrive
    turns = int(last.split()[1]) + 1
    for turn in range(turns):
        answer = log.append("reports", numbered(turn * 20_000, 20_000), 2, f"key {turn}")
        if turn < turns - 1:
            assert answer == AppendResult(turn * 20_000 + 1, (turn + 1) * 20_000, repeated=True)
    assert sorted(ids(log)) == list(range(turns * 20_000))


def test_unacknowledged_append_is_not_duplicated_when_repeated(server: KafkaServer) -> None:
    late = KafkaLog(server.servers, f"late{time.time_ns()}.", KafkaLogLimits(timeout_s=2))
    late.append("reports", numbered(0, 1), 1, "a")
    server.pause()
    try:
        with pytest.raises(Busy, match="accepted no append"):
            late.append("reports", numbered(1, 3), 1, "b")
    finally:
        server.resume()
    witness = KafkaLog(server.servers, late.prefix)
    patience = time.monotonic() + 30
    while witness.head("reports") < 4:
        assert time.monotonic() < patience
    assert late.append("reports", numbered(1, 3), 1, "b") == AppendResult(2, 4, repeated=True)
    assert ids(late) == [0, 1, 2, 3]
    late.close()
    witness.close()


def test_restarted_server_has_each_record_once(server: KafkaServer) -> None:
    shaken = KafkaLog(server.servers, f"killed{time.time_ns()}.", KafkaLogLimits(timeout_s=2))
    accepted: list[int] = []
    rejected: Counter[str] = Counter()
    enough = threading.Event()

    def work(worker: int) -> None:
        turn = 0
        while not enough.is_set() or turn < 5:
            first = worker * 1_000_000 + turn * 3
            while True:
                try:
                    shaken.append("reports", numbered(first, 3), 1, f"{worker}/{turn}")
                    break
                except Busy as error:
                    rejected[str(error)[:40]] += 1
                    time.sleep(0.1)
            accepted.extend(range(first, first + 3))
            turn += 1

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(1)
        server.kill()
        time.sleep(4)  # longer than an append waits
        assert rejected
    finally:
        server.start()
        time.sleep(2)
        enough.set()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(ids(shaken)) == sorted(accepted)
    assert shaken.head("reports") == len(accepted)
    shaken.close()
