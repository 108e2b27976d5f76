"""A real cluster, one channel of which never comes to an end: the others go on, and it can be dropped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from running import RunningCluster, running

from newsstand.cluster.spark_settings import SHARED

APP = """
[datasets.reports]
fields = { id = "string", kind = "string" }

[channels.quick]
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"

[channels.pairs]
parameters = { kind = "string" }
query = '''
SELECT r.id, count(*) AS pairs FROM reports r JOIN explode(sequence(1, 1000000)) AS a(x)
JOIN explode(sequence(1, 1000000)) AS b(y) WHERE r.kind = :kind AND pow(a.x, b.y) + length(r.id) <> 3 GROUP BY r.id
'''

[channels.alike]
parameters = { pattern = "string" }
query = "SELECT r.id FROM reports r WHERE concat(repeat('a', 40), r.kind) RLIKE :pattern"
"""


def eventually(cluster: RunningCluster, true: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, cluster.log.read_text()[-3000:]
        time.sleep(0.1)


@pytest.mark.timeout(400)
def test_channels_that_never_end_hold_up_no_other_and_can_be_dropped(tmp_path: Path) -> None:
    (tmp_path / "newsstand.toml").write_text(APP)
    places = f"local[{SHARED * (os.cpu_count() or 1)},4]"
    with running(tmp_path, tmp_path / "data", options=("--master", places)) as cluster:

        def status(channel: str) -> dict[str, object]:
            return dict(cluster.client.get(f"/channels/{channel}").raise_for_status().json()["status"])

        def publish(name: str) -> None:
            cluster.client.post(
                "/datasets/reports/publications", json=[{"id": name, "kind": "flood"}]
            ).raise_for_status()

        cluster.client.put("/brokers/north", json={"callback": "http://127.0.0.1:9/"}).raise_for_status()
        wanted = [
            {"channel": "quick", "values": ["flood"]},
            {"channel": "pairs", "values": ["flood"]},
            {"channel": "alike", "values": [r"(a+)+\1c"]},
        ]
        answer = cluster.client.post("/brokers/north/subscriptions", json=wanted).raise_for_status()
        quick = answer.json()["ids"][0]

        def results() -> int:
            return len(cluster.client.get(f"/subscriptions/{quick}/results").raise_for_status().json()["results"])

        publish("first")
        for slow in ("pairs", "alike"):
            eventually(cluster, lambda slow=slow: status(slow)["executing_seconds"] is not None)
        for number in range(1, 6):
            eventually(cluster, lambda number=number: results() == number)
            assert status("pairs")["executing_seconds"] is not None
            assert status("alike")["executing_seconds"] is not None
            publish(f"after {number}")
        for slow in ("pairs", "alike"):
            cluster.client.delete(f"/channels/{slow}", timeout=60).raise_for_status()
        assert cluster.client.get("/readyz").json() == {"status": "ready"}
        eventually(cluster, lambda: results() == 6)
        # The regular expression, which Java would not end for years, was stopped from outside. The nested loops of
        # `pairs` may keep a core busy: Spark looks for a cancellation only between rows that a loop gives out.
        eventually(cluster, lambda: busy(cluster) < 1.5)


def busy(cluster: RunningCluster) -> float:
    """How many cores the process and its children use, measured over a second."""

    def used() -> int:
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == cluster.process.pid:  # its process group
                ticks += int(fields[11]) + int(fields[12])
        return ticks

    before, began = used(), time.monotonic()
    time.sleep(1.0)
    return (used() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
