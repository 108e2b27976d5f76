"""A cluster with a channel whose execution never ends: the others continue, and it can be dropped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cluster.process import RunningCluster, running

from newsstand.spark.java import find_java
from newsstand.spark.session import EXECUTIONS_AT_ONCE

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
def test_endless_channels_delay_no_other_and_can_be_dropped(tmp_path: Path) -> None:
    (tmp_path / "newsstand.toml").write_text(APP)
    places = f"local[{EXECUTIONS_AT_ONCE * (os.cpu_count() or 1)},4]"
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
        executions = cluster.client.get("/executions").raise_for_status().json()["executions"]
        shown = [(one["channel"], one["phase"], one["after"], one["through"]) for one in executions]
        assert [one for one in shown if one[0] != "quick"] == [
            ("alike", "execution", 0, 1),
            ("pairs", "execution", 0, 1),
        ]
        assert task_seconds(cluster) > 0.0, "otherwise these threads are not the ones that are measured"
        for slow in ("pairs", "alike"):
            cluster.client.delete(f"/channels/{slow}", timeout=60).raise_for_status()
        eventually(cluster, lambda: results() == 6)
        if find_java().version < 20:
            # Neither would end for years, and neither looks whether it was cancelled.
            eventually(cluster, lambda: task_seconds(cluster) == 0.0)
            eventually(cluster, lambda: cluster.client.get("/readyz").json() == {"status": "ready"})
        else:
            degraded = {"status": "ready", "degraded": ["tasks of cancelled executions that continue to run: 2"]}
            eventually(cluster, lambda: cluster.client.get("/readyz").json() == degraded)


def task_seconds(cluster: RunningCluster) -> float:
    """Return the CPU time that threads of Spark's tasks use within a second."""

    def used() -> dict[str, int]:
        ticks = {}
        for stat in Path("/proc").glob("[0-9]*/task/*/stat"):
            try:
                name, fields = stat.read_text().split("(", 1)[1].rsplit(")", 1)
            except OSError:
                continue
            # Java gives the first 15 characters of a thread's name to the system.
            if name == "Executor task l" and int(fields.split()[2]) == cluster.process.pid:  # its process group
                ticks[stat.parent.name] = int(fields.split()[11]) + int(fields.split()[12])
        return ticks

    before = used()
    time.sleep(1.0)
    return sum(ticks - before.get(thread, 0) for thread, ticks in used().items()) / os.sysconf("SC_CLK_TCK")
