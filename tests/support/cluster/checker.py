"""An independent check of a cluster after faults: each record of its log has its results exactly once.

It reads the files of the log as plain lines and recomputes what an equality channel must have produced, without
any code of the cluster.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import httpx


def logged(data: Path, dataset: str) -> list[dict[str, object]]:
    """Yield the records of a dataset's log in order, of complete appends only."""
    records: list[dict[str, object]] = []
    waiting: list[dict[str, object]] = []
    for segment in sorted((data / "log" / dataset).glob("*.ndjson")):
        for line in segment.read_bytes().split(b"\n")[:-1]:
            record = json.loads(line)
            waiting.append(record)
            if "_end" in record:
                records += waiting
                waiting = []
    return records


def expected(records: list[dict[str, object]], field: str) -> dict[str, list[object]]:
    """Return the expected ids of each stream: those of all records with its value, in order."""
    streams: dict[str, list[object]] = defaultdict(list)
    for record in records:
        streams[str(record[field])].append(record["id"])
    return streams


def stored(client: httpx.Client, subscription: str) -> list[dict[str, object]]:
    """Return all results of a subscription."""
    results: list[dict[str, object]] = []
    while True:
        after = results[-1]["position"] if results else 0
        page = client.get(f"/subscriptions/{subscription}/results", params={"after": str(after), "limit": "1000"})
        page.raise_for_status()
        more = page.json()["results"]
        if not more:
            return results
        results += more


def check(client: httpx.Client, data: Path, dataset: str, field: str, subscriptions: dict[str, str]) -> int:
    """Compare every stream (value → subscription id) with the log; return the number of results."""
    records = logged(data, dataset)
    assert [record["_seq"] for record in records] == list(range(1, len(records) + 1)), (
        "the numbers of the log are not consecutive"
    )
    wanted = expected(records, field)
    total = 0
    for value, subscription in subscriptions.items():
        results = stored(client, subscription)
        assert [one["position"] for one in results] == list(range(1, len(results) + 1)), f"{value}: holes"
        assert [one["payload"]["id"] for one in results] == wanted.get(value, []), (
            f"{value}: not what was published"
        )  # type: ignore[index]
        times = [one["at_ms"] for one in results]
        assert times == sorted(times), f"{value}: times go back"  # type: ignore[type-var]
        total += len(results)
    return total
