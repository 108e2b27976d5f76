"""Matching: publications against up to a million subscriptions, through the log, Spark and the store of results.

    make bench-cluster

Every figure is of whole executions: publications are read from the log, matched, numbered and stored in SQLite. A
batch counts from when the engine is asked to go on until its transaction is durable.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from newsstand.cluster.ingest.latest_records import LatestRecords
from newsstand.cluster.ingest.schema import parse_dataset
from newsstand.cluster.log.files.log import FileLog
from newsstand.cluster.matching.executor import Executor, RunningChannel
from newsstand.cluster.matching.matcher import match
from newsstand.cluster.matching.tables import Tables
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.query.parser import parse_body, parse_channel
from newsstand.cluster.results.database_sqlite import SqliteResultDatabase
from newsstand.cluster.results.stores import ResultStores
from newsstand.model import Broker, ChannelDefinition, Values
from newsstand.spark import open_session
from newsstand.spark.session import cluster_settings

REPORTS = parse_dataset(
    "reports", {"fields": {"id": "string", "kind": "string", "lat": "double", "lon": "double", "text": "string"}}
)
DATASETS = {"reports": REPORTS}
EQUALITY = parse_channel(
    "of_kind",
    {
        "parameters": {"kind": "string"},
        "query": "SELECT r.id, r.kind, r.lat, r.lon, r.text FROM reports r WHERE r.kind = :kind",
    },
    DATASETS,
    {},
)
SPATIAL = parse_channel(
    "near",
    {
        "parameters": {"lat": "double", "lon": "double"},
        "query": "SELECT r.id, r.kind FROM reports r WHERE distance_km(r.lat, r.lon, :lat, :lon) < 5",
    },
    DATASETS,
    {},
)


class Bench:
    """A log, a store and executions of one channel, in a folder of its own."""

    def __init__(self, spark: SparkSession, folder: Path, channel: ChannelDefinition) -> None:
        self.spark = spark
        self.log = FileLog(folder / "log")
        self.stores = ResultStores(SqliteResultDatabase(folder / "results.sqlite"))
        self.keyed = LatestRecords(folder / "keyed.sqlite", self.log)
        self.tables = Tables(spark, self.log, self.keyed, self.stores)
        self.stores.results.add_channel(channel.name, 0)
        self.running = RunningChannel(channel, parse_body(channel, DATASETS), DATASETS)
        self.metrics = Metrics()
        self.executor = Executor(
            spark, self.log, self.stores, self.tables, lambda: 0, self.metrics, max_batch=1_000_000
        )

    @property
    def stored(self) -> int:
        """Results stored so far."""
        name = self.running.channel.name
        return int(self.metrics.registry.get_sample_value("newsstand_results_total", {"channel": name}) or 0)

    def subscribe(self, brokers: int, values: list[Values]) -> None:
        wanted = dict.fromkeys(values, 1)
        for number in range(brokers):
            self.stores.outbox.put_broker(Broker(f"b{number}", "http://127.0.0.1:9/", "s"))
            self.stores.subscriptions.subscribe(f"b{number}", {self.running.channel.name: wanted})
        self.tables.values(self.running.channel).frame()

    def publish(self, lines: list[bytes]) -> int:
        for start in range(0, len(lines), 10_000):
            self.log.append("reports", lines[start : start + 10_000], at_ms=0)
        return self.log.head("reports")

    def execute(self, lines: list[bytes]) -> float:
        """Seconds from when the publications lie in the log until their results are stored."""
        through = self.publish(lines)
        began = time.perf_counter()
        self.executor.advance(self.running, through)
        if self.running.failure is not None:
            raise SystemExit(self.running.failure.error)
        return time.perf_counter() - began

    def match_last(self, publications: int) -> float:
        """Seconds to read the last publications from the log and match them; results are made and thrown away."""
        head = self.log.head("reports")
        began = time.perf_counter()
        new = self.log.frame(self.spark, REPORTS, head - publications, head)
        found = match(self.running.body, new, {}, self.tables.values(self.running.channel).frame())
        found.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    def close(self) -> None:
        self.tables.forget_channel(self.running.channel.name)
        self.keyed.close()
        self.stores.close()
        self.log.close()


@contextmanager
def bench(spark: SparkSession, channel: ChannelDefinition) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as folder:
        made = Bench(spark, Path(folder), channel)
        try:
            yield made
        finally:
            made.close()


def report(number: int, kind: str, chance: Random) -> bytes:
    lat, lon = chance.uniform(-60, 60), chance.uniform(-180, 180)
    return f'{{"id":"{number}","kind":"{kind}","lat":{lat:.5f},"lon":{lon:.5f},"text":"{"x" * 100}"}}'.encode()


def equality(spark: SparkSession) -> None:
    """A million subscriptions, 100,000 distinct values, ten brokers."""
    chance = Random(1)
    with bench(spark, EQUALITY) as made:
        made.subscribe(10, [(f"kind{n}",) for n in range(100_000)])
        seconds = []
        for _ in range(6):
            lines = [report(n, f"kind{chance.randrange(100_000)}", chance) for n in range(100_000)]
            seconds.append(made.execute(lines))
        rate = 100_000 / statistics.median(seconds[2:])
        matched = 100_000 / statistics.median([made.match_last(100_000) for _ in range(6)][2:])
        print(
            f"equality, 1,000,000 subscriptions on 100,000 values, batches of 100,000: "
            f"{matched:,.0f} publications/s matched (target: 50,000), {rate:,.0f} with storing all "
            f"{made.stored:,} results"
        )


def spatial(spark: SparkSession) -> None:
    """100,000 subscriptions to places, all over the world."""
    chance = Random(2)
    with bench(spark, SPATIAL) as made:
        places = [(round(chance.uniform(-60, 60), 4), round(chance.uniform(-180, 180), 4)) for _ in range(100_000)]
        made.subscribe(1, [(lat, lon) for lat, lon in places])
        for size in (1_000, 10_000):
            before = made.stored
            seconds = [made.execute([report(n, "flood", chance) for n in range(size)]) for _ in range(6)]
            rate = size / statistics.median(seconds[2:])
            print(
                f"spatial, 100,000 subscriptions, batches of {size:,}: {rate:,.0f} publications/s, "
                f"{made.stored - before:,} results (target: 500)"
            )


def growth(spark: SparkSession) -> None:
    """From 10 thousand to a million subscriptions, 1,000 publications of which each matches one."""
    chance = Random(3)
    medians = []
    for subscriptions in (10_000, 100_000, 1_000_000):
        with bench(spark, EQUALITY) as made:
            made.subscribe(1, [(f"kind{n}",) for n in range(subscriptions)])
            seconds = [
                made.execute([report(n, f"kind{chance.randrange(10_000)}", chance) for n in range(1_000)])
                for _ in range(25)
            ]
            medians.append(statistics.median(seconds[10:]))
            print(f"growth, {subscriptions:,} subscriptions, 1,000 publications: {medians[-1] * 1000:.0f} ms")
    print(
        f"growth, from 10,000 to 1,000,000 subscriptions: {medians[-1] / medians[0]:.2f} times (target: at most 2)"
    )


def one_by_one(spark: SparkSession) -> None:
    """1,000 values, evaluated together, and the obvious way: one query for each value."""
    chance = Random(4)
    with bench(spark, EQUALITY) as made:
        made.subscribe(1, [(f"kind{n}",) for n in range(1_000)])
        batches = [[report(n, f"kind{chance.randrange(1_000)}", chance) for n in range(1_000)] for _ in range(12)]
        together = statistics.median([made.execute(lines) for lines in batches][4:])
        head = made.log.head("reports")
        frame = made.log.frame(spark, REPORTS, head - 1_000, head).persist()
        frame.createOrReplaceTempView("reports")
        query = EQUALITY.query
        for number in range(50):
            spark.sql(query, {"kind": f"kind{number}"}).toArrow()
        began = time.perf_counter()
        found = sum(spark.sql(query, {"kind": f"kind{number}"}).toArrow().num_rows for number in range(1_000))
        apart = time.perf_counter() - began
        frame.unpersist()
        if found != 1_000:
            raise SystemExit(f"one by one found {found} of 1,000")
        print(
            f"1,000 values, 1,000 publications: together {together * 1000:.0f} ms with storing, one query a value "
            f"{apart:.1f} s without: {apart / together:.0f} times (target: 50)"
        )


PARTS = {"equality": equality, "spatial": spatial, "growth": growth, "one-by-one": one_by_one}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="default: all")
    options = parser.parse_args()
    with open_session(None, (), "benchmark", kind=cluster_settings({})) as spark:
        for name in options.part or PARTS:
            PARTS[name](spark)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
