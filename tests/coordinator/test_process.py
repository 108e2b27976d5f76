"""The command in real processes: no subscriber is lost when a broker and the coordinator are killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.coordinator.api import OPERATOR, AsBrokers, subscriber_token
from support.coordinator.coordinators import SECRET

PATIENCE_S = 30.0
SUBSCRIBERS = [f"s{number}" for number in range(20)]


class Running:
    """`newsstand coordinator`, started."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "coordinator.log"
        options = ["--data", str(folder / "data"), "--port", "0", "--policy", "least-loaded", "--lease-s", "1.5"]
        with self.log.open("ab") as output:
            before = output.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "newsstand.cli.main", "coordinator", *options],
                stdout=output,
                stderr=output,
                env={**os.environ, "NEWSSTAND_COORDINATOR_SECRET": SECRET},
            )
        deadline = time.monotonic() + PATIENCE_S
        found = None
        while found is None:
            said = self.log.read_bytes()[before:].decode()
            assert self.process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.05)
            found = re.search(r"^newsstand: coordinator on (\S+)$", said, re.M)
        self.client = httpx.Client(
            base_url=found[1],
            auth=AsBrokers(),
            transport=httpx.HTTPTransport(retries=5, verify=False),
            timeout=10,
        )
        while self.client.get("/readyz").status_code != 200:
            time.sleep(0.05)

    def register(self, name: str) -> list[str]:
        answered = self.client.put(f"/brokers/{name}", json={"url": f"http://127.0.0.1:9/{name}"})
        return list(answered.raise_for_status().json()["subscribers"])

    def beat(self, name: str, adopted: dict[str, int] | None = None) -> list[str]:
        body = {"connections": 1, "subscribers": 1, "adopted": adopted or {}}
        answered = self.client.post(f"/brokers/{name}/heartbeat", json=body)
        if answered.status_code == 404:
            self.register(name)
            return []
        return list(answered.raise_for_status().json()["adopt"])

    def states(self) -> dict[str, tuple[str, int]]:
        headers = {"Authorization": f"Bearer {OPERATOR}"}
        listed = self.client.get("/brokers", headers=headers).raise_for_status().json()["brokers"]
        return {one["name"]: (one["state"], one["assigned"]) for one in listed}

    def stop(self, sign: signal.Signals) -> int:
        self.client.close()
        self.process.send_signal(sign)
        return self.process.wait(timeout=PATIENCE_S)


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    made = Running(folder)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.stop(signal.SIGKILL)


@pytest.mark.timeout(120)
def test_subscribers_survive_death_of_broker_and_coordinator(tmp_path: Path) -> None:
    with running(tmp_path) as coordinator:
        coordinator.register("north")
        for name in SUBSCRIBERS:
            body = {"name": name, "hash": "h", "broker": "north"}
            assert coordinator.client.post("/subscribers", json=body).status_code == 201
        changes = [
            {"op": "subscribe", "name": name, "id": "x", "channel": "near", "values": [1], "acked": 7}
            for name in SUBSCRIBERS
        ]
        assert coordinator.client.post("/brokers/north/changes", json=changes).json()["applied"] == 20
        coordinator.register("south")
        adopted: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        while not adopted and time.monotonic() < deadline:
            time.sleep(0.1)
            adopted = coordinator.beat("south")
        assert sorted(adopted) == sorted(SUBSCRIBERS), (
            "north was silent: south has to adopt all of its subscribers"
        )
        assert coordinator.stop(signal.SIGKILL) == -signal.SIGKILL

    with running(tmp_path) as coordinator:
        assert coordinator.states() == {"north": ("dead", 0), "south": ("up", 20)}
        assert sorted(coordinator.beat("south")) == sorted(SUBSCRIBERS), "it did not confirm"
        lookup = {"broker": "south", "names": SUBSCRIBERS, "take": True}
        found = coordinator.client.post("/subscribers/lookup", json=lookup).json()
        assert {one["subscriptions"]["x"]["acked"] for one in found["subscribers"].values()} == {7}
        assert coordinator.beat("south", found["handovers"]) == []
        token = {"Authorization": f"Bearer {subscriber_token('s3')}"}
        assert coordinator.client.get("/broker", headers=token).json()["broker"]["name"] == "south"
        assert coordinator.register("north") == []
        assert coordinator.stop(signal.SIGTERM) == 0, coordinator.log.read_text()[-2000:]

    with running(tmp_path) as coordinator:
        assert coordinator.stop(signal.SIGINT) == 0, coordinator.log.read_text()[-2000:]
    assert "Traceback" not in coordinator.log.read_text()
