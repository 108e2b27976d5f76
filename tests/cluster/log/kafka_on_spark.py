"""Tests of the log in Kafka on a Spark that has the connector: `test_kafka.py` runs them in their own process."""

# ruff: noqa: F811  a test's arguments are the fixtures that this file imports

from __future__ import annotations

from pyspark.sql import SparkSession
from support.cluster.kafka_logs import log, opened, server, servers  # noqa: F401
from support.cluster.log_suite import REPORTS, SparkLogContract

from newsstand.cluster.ingest.schema import parse_dataset
from newsstand.cluster.ingest.validator import RecordValidator
from newsstand.cluster.log import kafka as log_kafka
from newsstand.cluster.log.contract import Log
from newsstand.model import SCALARS


class TestKafkaLogOnSpark(SparkLogContract):
    pass


def test_large_range_read_by_several_tasks(log: Log, spark: SparkSession) -> None:
    count = log_kafka.KafkaLogLimits().task_records + 10
    log.append("reports", [b'{"id":%d,"kind":"x"}' % number for number in range(1, count + 1)], 5)
    frame = log.frame(spark, REPORTS, 0, count)
    assert frame.rdd.getNumPartitions() == 2
    assert frame.where("id = _seq").count() == count


def test_records_of_all_types_are_read_unchanged(log: Log, spark: SparkSession) -> None:
    fields = {f"one_{type}": type for type in SCALARS} | {f"many_{type}": f"array<{type}>" for type in SCALARS}
    everything = parse_dataset("everything", {"fields": fields})
    body = (
        b'{"one_string":"a\\u0001\\"\xc3\xa9","one_integer":-9223372036854775808,"one_double":1e-300,'
        b'"one_boolean":true,"many_string":["",""],"many_integer":[9223372036854775807],"many_double":[0.5],'
        b'"many_boolean":[],"one_timestamp":"1970-01-01T02:00:00.001+02:00",'
        b'"many_timestamp":["1969-12-31T23:59:59Z"]}'
    )
    records = RecordValidator(everything).validate(body)
    assert not records.rejected
    log.append("everything", records.lines, 5)
    times = (
        "unix_millis(one_timestamp) one_timestamp",
        "transform(many_timestamp, t -> unix_millis(t)) many_timestamp",
    )
    others = [name for name in fields if "timestamp" not in name]
    (row,) = (
        log.frame(spark, everything, 0, 1)
        .selectExpr(*others, *times, "unix_millis(_at)", "_seq", "_page")
        .collect()
    )
    assert tuple(row) == (
        *('a\x01"é', -(2**63), 1e-300, True),
        *(["", ""], [2**63 - 1], [0.5], []),
        *(1, [-1000], 5, 1, None),
    )
