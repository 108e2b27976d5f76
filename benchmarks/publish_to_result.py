"""From publishing to a stored result, on a real cluster: 100 publications a second, 100,000 subscriptions.

    make bench-cluster

A cluster runs in a process of its own. Publications go in one by one over HTTP; a second connection to the store
of results, opened read-only, looks every 5 ms for what is new.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx

APP = """
[datasets.reports]
fields = { id = "string", kind = "string", lat = "double", lon = "double", text = "string" }

[channels.of_kind]
parameters = { kind = "string" }
query = "SELECT r.id, r.kind, r.lat, r.lon, r.text FROM reports r WHERE r.kind = :kind"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=100.0, help="publications a second")
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds before anything counts")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), options)


def run(folder: Path, options: argparse.Namespace) -> None:
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
        latencies = sorted(measure(client, data, options))
        median = statistics.median(latencies)
        p99 = latencies[int(len(latencies) * 0.99)]
        print(
            f"publish to result stored, {len(latencies):,} publications at {options.rate:g}/s, "
            f"{options.subscriptions:,} subscriptions: median {median * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, "
            f"longest {latencies[-1] * 1000:.0f} ms (targets: 600 and 2000)"
        )
    finally:
        process.terminate()
        process.wait(60)


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


def measure(client: httpx.Client, data: Path, options: argparse.Namespace) -> list[float]:
    published: dict[int, float] = {}
    seen: dict[int, float] = {}
    done = threading.Event()

    def watch() -> None:
        store = sqlite3.connect(f"file:{data / 'results.sqlite'}?mode=ro", uri=True)
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
        answer = client.post("/datasets/reports/publications", json=record).raise_for_status().json()
        if due >= begin + options.warm_up:
            published[answer["first"]] = due
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
