"""The trace of a publication through a whole platform in real processes, with Spark."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.broker.up import Up
from support.cluster.process import FAST_JVM
from support.waiting import eventually

from newsstand.cli.main import run
from newsstand.client import SyncClient

APP = """
[cluster]
open_metrics = true

[datasets.reports]
fields = { id = "string", kind = "string" }

[channels.of_kind]
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"

[[brokers]]
name = "edge"
open_metrics = true
"""
AT_BROKER = ("notified", "pulled", "signalled", "read", "acknowledged")
STAGES = ("received", "durable", "queued", "planned", "executed", "stored", *AT_BROKER)


class Platform:
    """A platform with one broker, and its cluster's API for operators."""

    def __init__(self, folder: Path) -> None:
        self.app = folder / "app"
        self.app.mkdir()
        (self.app / "newsstand.toml").write_text(APP)
        words = (sys.executable, "-m", "newsstand.cli.main", "up", self.app, "--base-port", 0, "--json")
        spark = ("--master", "local[1]", "--conf", FAST_JVM, "--conf", "spark.driver.memory=1g")
        self.up = Up(folder, command=(*words, *spark))
        where: Any = self.up.addresses()
        self.coordinator, self.broker = where["coordinator"]["url"], where["brokers"][0]["url"]
        token = (self.app / "data" / "admin.token").read_text().strip()
        self.cluster = httpx.Client(
            base_url=where["cluster"]["url"], headers={"Authorization": f"Bearer {token}"}, timeout=30
        )

    def publish(self, **record: str) -> int:
        answer = self.cluster.post("/datasets/reports/publications", json=record)
        return int(answer.raise_for_status().json()["first"])

    def trace(self, number: int) -> dict[str, Any]:
        answer = self.cluster.get(f"/datasets/reports/publications/{number}/trace")
        return dict(answer.raise_for_status().json())

    def printed(self, number: int) -> str:
        with redirect_stdout(StringIO()) as said:
            assert run(["trace", str(self.app), "reports", str(number)]) == 0
        return said.getvalue()

    def reported(self, number: int) -> dict[str, Any]:
        """What the broker reports of a publication with one result."""
        ((broker,),) = [channel["brokers"] for channel in self.trace(number)["channels"]]
        return dict(broker)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    one = Platform(tmp_path_factory.mktemp("traced"))
    yield one
    one.cluster.close()
    one.up.sweep()


def counted(metrics: str, family: str) -> dict[str, float]:
    """The observations of each stage of the channel."""
    found = re.findall(rf'^{family}_count{{channel="of_kind",stage="(\w+)"}} (\S+)$', metrics, re.M)
    found += re.findall(rf'^{family}_count{{stage="(\w+)",channel="of_kind"}} (\S+)$', metrics, re.M)
    return {stage: float(count) for stage, count in found}


def test_trace_shows_every_stage_in_order_to_acknowledgement(platform: Platform) -> None:
    with SyncClient(platform.coordinator, "ann", "a good password", register=True) as client:
        subscription = client.subscribe("of_kind", kind="flood")
        number = platform.publish(id="r1", kind="flood")
        for result in client.results(subscription):
            assert result.payload == {"id": "r1"}
            client.acknowledge(result)
            break
        eventually(lambda: platform.reported(number)["deliveries"][0]["acknowledged"] is not None)
    trace = platform.trace(number)
    (channel,) = trace["channels"]
    (broker,) = channel["brokers"]
    (delivery,) = broker["deliveries"]
    assert (broker["broker"], broker["unknown"], broker["error"]) == ("edge", 0, None)
    assert {key: delivery[key] for key in ("stream", "position", "connections", "subscribers")} == {
        "stream": channel["streams"][0]["stream"],
        "position": 1,
        "connections": 1,
        "subscribers": 1,
    }
    times = [*trace["stages"].values(), *channel["stages"].values(), *(delivery[stage] for stage in AT_BROKER)]
    assert all(isinstance(one, int) for one in times)
    assert all(one <= other for one, other in itertools.pairwise(times))
    assert (*trace["stages"], *channel["stages"]) == STAGES[:6]
    assert trace["stages"]["received"] <= trace["accepted_at_ms"] <= channel["at_ms"]
    assert delivery["last_acknowledged"] == delivery["acknowledged"]

    rows = [line.split() for line in platform.printed(number).splitlines()]
    table = rows[[row[0] for row in rows].index("stage") + 1 :]
    assert [row[0] for row in table] == list(STAGES)
    assert [row[1] for row in table] == ["cluster"] * 6 + ["edge"] * 5
    since = [int(row[2].replace(",", "")) for row in table]
    assert since[0] == 0
    assert since == sorted(since)
    assert table[8][4:] == ["1", "connection"]
    assert table[10][4:] == ["1", "subscriber"]

    cluster = counted(platform.cluster.get("/metrics").text, "newsstand_stage_seconds")
    assert cluster == dict.fromkeys(("durable", "queued", "planned", "executed", "stored"), 1.0)
    broker_metrics = counted(httpx.get(f"{platform.broker}/metrics").text, "newsstand_broker_stage_seconds")
    assert broker_metrics == dict.fromkeys(AT_BROKER, 1.0)


def test_trace_says_which_results_nobody_has_read(platform: Platform) -> None:
    with SyncClient(platform.coordinator, "bob", "a good password", register=True) as client:
        client.subscribe("of_kind", kind="snow")
    number = platform.publish(id="r2", kind="snow")
    eventually(lambda: bool(platform.trace(number)["channels"][0].get("brokers")))
    eventually(lambda: bool(platform.reported(number)["deliveries"]))
    eventually(lambda: platform.reported(number)["deliveries"][0]["signalled"] is not None)
    (delivery,) = platform.reported(number)["deliveries"]
    assert (delivery["connections"], delivery["read"], delivery["acknowledged"]) == (0, None, None)
    assert re.search(r"^read +edge +not yet +not yet$", platform.printed(number), re.M)


def test_trace_says_that_broker_does_not_answer_and_what_it_forgot(platform: Platform) -> None:
    with SyncClient(platform.coordinator, "eve", "a good password", register=True) as client:
        client.subscribe("of_kind", kind="hail")
    number = platform.publish(id="r3", kind="hail")
    eventually(lambda: bool(platform.trace(number)["channels"][0].get("brokers")))
    eventually(lambda: bool(platform.reported(number)["deliveries"]))
    pid = platform.up.process_of(" broker ")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert platform.reported(number)["error"] == "does not answer: no response within 2 s"
        assert re.search(r"^broker edge does not answer: no response within 2 s$", platform.printed(number), re.M)
    finally:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: platform.reported(number)["error"] is None)
    reported = platform.reported(number)
    assert (reported["deliveries"], reported["unknown"]) == ([], 1)
    printed = platform.printed(number)
    assert re.search(r"^acknowledged +edge +unknown +unknown$", printed, re.M)
    assert "broker edge has no record of 1 result\n" in printed
