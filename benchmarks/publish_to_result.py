"""From publishing to a stored result: 100 publications a second, 100,000 subscriptions.

    make bench-cluster

A cluster runs in a process of its own. Publications go in one by one over HTTP; a second connection to the store
of results, opened read-only, looks every 5 ms for what is new. Then the same query runs as a plain job of
Structured Streaming, with `foreachBatch` and no pause between batches, which gets the same publications from a
socket and writes to SQLite.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from newsstand.spark.java import cache_folder, find_java, wrap_java

APP = """
[datasets.reports]
fields = { id = "string", kind = "string", lat = "double", lon = "double", text = "string" }

[channels.of_kind]
parameters = { kind = "string" }
query = "SELECT r.id, r.kind, r.lat, r.lon, r.text FROM reports r WHERE r.kind = :kind"
"""

PEER = """
import sqlite3, sys
from pyspark.sql import SparkSession, functions as F

port, database, count = sys.argv[1:]
settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()
spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
rows = spark.range(int(count)).selectExpr("id AS stream", "concat('kind', id) AS p_kind")
values = rows.repartition(2).cache()
values.count()
lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
shape = "seq bigint, id string, kind string, lat double, lon double, text string"
reports = lines.select(F.from_json("value", shape).alias("r")).select("r.*")
store = sqlite3.connect(database, check_same_thread=False)

def on_batch(batch, number):
    payload = F.to_json(F.struct("id", "kind", "lat", "lon", "text"))
    matched = values.join(F.broadcast(batch), values.p_kind == batch.kind)
    found = matched.select("stream", "seq", payload.alias("payload")).collect()
    with store:
        store.executemany("INSERT INTO results (stream, publication, payload) VALUES (?, ?, ?)", map(tuple, found))

reports.writeStream.foreachBatch(on_batch).trigger(processingTime="0 seconds").start().awaitTermination()
"""
"""The job of Structured Streaming: as a user of Spark writes it, with the batch as the broadcast side."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=100.0, help="publications a second")
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds before anything counts")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--alone", action="store_true", help="without the job of Structured Streaming")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ours = run(Path(folder), options)
    if not options.alone:
        with tempfile.TemporaryDirectory() as folder:
            peer = run_peer(Path(folder), options)
        print(f"median of Structured Streaming / median of the cluster: {peer / ours:.1f}")


def run(folder: Path, options: argparse.Namespace) -> float:
    (folder / "newsstand.toml").write_text(APP)
    data = folder / "data"
    command = [sys.executable, "-m", "newsstand.cli.main", "cluster", str(folder), "--port", "0"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        client = connected(data)
        client.put("/brokers/edge", json={"callback": "http://127.0.0.1:9/"}).raise_for_status()
        wanted = [{"channel": "of_kind", "values": [f"kind{n}"]} for n in range(options.subscriptions)]
        began = time.perf_counter()
        client.post("/brokers/edge/subscriptions", json=wanted).raise_for_status()
        print(f"{options.subscriptions:,} subscriptions in one call: {time.perf_counter() - began:.1f} s")

        def publish(record: dict[str, object]) -> int:
            answer = client.post("/datasets/reports/publications", json=record)
            return int(answer.raise_for_status().json()["first"])

        return report("cluster", measure(publish, data / "results.sqlite", options), options)
    finally:
        process.terminate()
        process.wait(60)


def run_peer(folder: Path, options: argparse.Namespace) -> float:
    """Measure the job of Structured Streaming; return its median."""
    database = folder / "results.sqlite"
    with sqlite3.connect(database) as store:
        store.execute("PRAGMA journal_mode = WAL")
        store.execute("CREATE TABLE results (id INTEGER PRIMARY KEY, stream, publication, payload)")
    listening = socket.create_server(("127.0.0.1", 0))
    command = [
        sys.executable,
        "-c",
        PEER,
        str(listening.getsockname()[1]),
        str(database),
        str(options.subscriptions),
    ]
    with (folder / "log").open("wb") as log:
        java = str(wrap_java(find_java(), cache_folder()))
        environment = {**os.environ, "JAVA_HOME": java, "SPARK_LOCAL_IP": "127.0.0.1"}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        listening.settimeout(120)
        job, _ = listening.accept()
        numbers = itertools.count(1)

        def publish(record: dict[str, object]) -> int:
            number = next(numbers)
            job.sendall(json.dumps({**record, "seq": number}).encode() + b"\n")
            return number

        return report("Structured Streaming", measure(publish, database, options), options)
    finally:
        process.terminate()
        process.wait(60)


def report(name: str, latencies: Sequence[float], options: argparse.Namespace) -> float:
    """Print latencies; return their median."""
    ordered = sorted(latencies)
    median, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
    print(
        f"{name}: publish to result stored, {len(ordered):,} publications at {options.rate:g}/s, "
        f"{options.subscriptions:,} subscriptions: median {median * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, "
        f"longest {ordered[-1] * 1000:.0f} ms",
        flush=True,
    )
    return median


def connected(data: Path) -> httpx.Client:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            url = (data / "address").read_text().strip()
            token = (data / "admin.token").read_text().strip()
            if httpx.get(f"{url}/readyz").status_code == 200:
                return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=300)
        except (OSError, httpx.HTTPError):
            pass
        time.sleep(0.2)
    raise SystemExit("the cluster did not start")


def measure(
    publish: Callable[[dict[str, object]], int], database: Path, options: argparse.Namespace
) -> list[float]:
    published: dict[int, float] = {}
    seen: dict[int, float] = {}
    done = threading.Event()

    def watch() -> None:
        store = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        last = 0
        while not done.wait(0.005):
            rows = store.execute("SELECT id, publication FROM results WHERE id > ?", (last,)).fetchall()
            now = time.perf_counter()
            for last, publication in rows:  # noqa: B007
                seen[publication] = now

    watcher = threading.Thread(target=watch)
    watcher.start()
    chance = random.Random(1)
    begin = time.perf_counter()
    end = begin + options.warm_up + options.seconds
    due = begin
    while due < end:
        time.sleep(max(0.0, due - time.perf_counter()))
        kind = f"kind{chance.randrange(options.subscriptions)}"
        record = {"id": f"{due}", "kind": kind, "lat": 1.5, "lon": 2.5, "text": "x" * 300}
        # From when it was to be sent: a publisher that is held up must not hide it.
        number = publish(record)
        if due >= begin + options.warm_up:
            published[number] = due
        due += 1 / options.rate
    deadline = time.monotonic() + 30
    while len(seen.keys() & published.keys()) < len(published) and time.monotonic() < deadline:
        time.sleep(0.1)
    done.set()
    watcher.join()
    missing = len(published) - len(seen.keys() & published.keys())
    if missing:
        raise SystemExit(f"{missing} publications did not become results")
    return [seen[number] - sent for number, sent in published.items()]


if __name__ == "__main__":
    main()
