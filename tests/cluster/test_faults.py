"""A cluster under faults: killed under load, with a full disk, a failing query, a clock that is set back."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest
from support.cluster.checker import check, logged, stored
from support.cluster.process import RunningCluster, running, start
from support.cluster.webhooks import receiving
from support.waiting import eventually

APP = """
[datasets.reports]
fields = { id = "string", kind = "string", size = "integer?" }

[channels.of_kind]
parameters = { kind = "string" }
query = "SELECT r.id, r.kind FROM reports r WHERE r.kind = :kind"

[channels.now_and_then]
period = "1s"
parameters = { kind = "string" }
query = "SELECT r.id, r.kind FROM reports r WHERE r.kind = :kind"
"""

BROKEN = """
[channels.broken]
parameters = { kind = "string" }
query = "SELECT r.id, 1 / r.size AS share FROM reports r WHERE r.kind = :kind"
"""

KINDS = [f"kind{number}" for number in range(20)]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "newsstand.toml").write_text(APP)
    return folder


def subscribed(cluster: RunningCluster, callback: str, channel: str = "of_kind") -> tuple[dict[str, str], str]:
    """Subscribe a broker to all kinds; return the ids by kind, and the secret of its webhook."""
    registered = cluster.client.put("/brokers/edge", json={"callback": callback}).raise_for_status().json()
    wanted = [{"channel": channel, "values": {"kind": kind}} for kind in KINDS]
    ids = cluster.client.post("/brokers/edge/subscriptions", json=wanted).raise_for_status().json()["ids"]
    return dict(zip(KINDS, ids, strict=True)), registered.get("secret", "")


def lag(cluster: RunningCluster, channel: str = "of_kind") -> int:
    answer = cluster.client.get(f"/channels/{channel}").raise_for_status().json()
    return int(answer["status"]["lag"])


class Publisher(threading.Thread):
    """A publisher of batches, each with an idempotency key, which repeats a batch without an answer."""

    def __init__(self, data: Path, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.data = data
        self.chance = chance
        self.acknowledged: list[str] = []
        self.done = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.done.is_set():
            records = [{"id": f"{number}-{i}", "kind": self.chance.choice(KINDS)} for i in range(25)]
            while not self.done.is_set():
                try:
                    token = (self.data / "admin.token").read_text().strip()
                    url = (self.data / "address").read_text().strip()
                    answer = httpx.post(
                        f"{url}/datasets/reports/publications",
                        json=records,
                        headers={"Authorization": f"Bearer {token}", "Idempotency-Key": f"batch-{number}"},
                        timeout=10,
                    )
                    answer.raise_for_status()
                    assert answer.json()["accepted"] == 25
                    self.acknowledged += [str(record["id"]) for record in records]
                    break
                except (httpx.HTTPError, OSError):
                    time.sleep(0.05)
            number += 1
            time.sleep(0.01)


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(1500)])])
def test_kill_under_load_loses_and_repeats_nothing(app: Path, tmp_path: Path, kills: int) -> None:
    data = tmp_path / "data"
    chance = random.Random(kills)
    with receiving() as receiver:
        cluster = start(app, data)
        streams, receiver.secret = subscribed(cluster, receiver.url)
        often, _ = subscribed(cluster, receiver.url, "now_and_then")
        publisher = Publisher(data, chance)
        publisher.start()
        for attempt in range(kills):
            time.sleep(chance.uniform(0.3, 4.0))
            if attempt % 2:
                cluster.kill()
            else:
                cluster.process.kill()  # Spark's own process is left to find out
                cluster.process.wait()
            cluster = start(app, data)
        publisher.done.set()
        publisher.join()
        eventually(lambda: lag(cluster) == 0 and lag(cluster, "now_and_then") == 0)
        records = logged(data, "reports")
        ids = [str(record["id"]) for record in records]
        assert len(ids) == len(set(ids)), "a publication is in the log twice"
        assert set(publisher.acknowledged) <= set(ids), "an acknowledged publication is lost"
        assert check(cluster.client, data, "reports", "kind", streams) == len(records)
        assert check(cluster.client, data, "reports", "kind", often) == len(records)
        heads = {
            subscription: len(stored(cluster.client, subscription))
            for subscription in [*streams.values(), *often.values()]
        }
        eventually(lambda: receiver.positions == {name: head for name, head in heads.items() if head})
        assert not receiver.regressions
        for path in (data, *data.rglob("*")):
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
        assert cluster.terminate() == 0


@pytest.mark.slow
def test_failing_query_stops_only_its_channel(app: Path, tmp_path: Path) -> None:
    (app / "newsstand.toml").write_text(APP + BROKEN)
    with receiving() as receiver, running(app, tmp_path / "data") as cluster:
        streams, receiver.secret = subscribed(cluster, receiver.url)
        subscribed(cluster, receiver.url, "broken")
        good = {"id": "a", "kind": "kind1", "size": 4}
        bad = {"id": "b", "kind": "kind1", "size": 0}
        cluster.client.post("/datasets/reports/publications", json=[good, bad]).raise_for_status()
        eventually(lambda: len(stored(cluster.client, streams["kind1"])) == 2)
        eventually(lambda: cluster.client.get("/channels/broken").json()["status"]["failing"] is not None)
        error = cluster.client.get("/channels/broken").json()["status"]["failing"]["error"]
        assert "DIVIDE_BY_ZERO" in error
        trace = cluster.client.get("/datasets/reports/publications/2/trace").json()
        states = {one["channel"]: one["state"] for one in trace["channels"]}
        assert states["of_kind"] == "evaluated"
        assert states["broken"] == "failing"
        mended = cluster.client.get("/channels/broken").json()
        del mended["name"], mended["status"]
        mended["query"] = mended["query"].replace("1 / r.size", "try_divide(1, r.size)")
        cluster.client.put("/channels/broken", json=mended).raise_for_status()
        eventually(lambda: lag(cluster, "broken") == 0)
        trace = cluster.client.get("/datasets/reports/publications/2/trace").json()
        assert {one["channel"]: one.get("reached") for one in trace["channels"]}["broken"] == 1


@pytest.mark.slow
def test_misbehaving_broker_notified_eventually(app: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(app, data) as cluster, receiving(broker="other") as good:
        with receiving() as bad:
            streams, bad.secret = subscribed(cluster, bad.url)
            good.secret = cluster.client.put("/brokers/other", json={"callback": good.url}).json()["secret"]
            wanted = [{"channel": "of_kind", "values": ["kind1"]}]
            (other,) = cluster.client.post("/brokers/other/subscriptions", json=wanted).json()["ids"]
            for number, mood in enumerate(["fail", "close", "hang"], start=1):
                bad.mood = mood
                publish = {"id": mood, "kind": "kind1"}
                cluster.client.post("/datasets/reports/publications", json=publish).raise_for_status()
                eventually(lambda number=number: good.positions.get(other) == number)
            assert not bad.received
            address = bad.url
        publish = {"id": "gone", "kind": "kind1"}
        cluster.client.post("/datasets/reports/publications", json=publish).raise_for_status()
        eventually(lambda: good.positions.get(other) == 4)
        with receiving(port=int(address.split(":")[2].split("/")[0])) as back:
            back.secret = bad.secret
            eventually(lambda: back.positions == {streams["kind1"]: 4})
            assert [one["streams"][0]["position"] for one in back.received] == [1, 2, 3, 4]  # type: ignore[index]


@pytest.mark.slow
def test_malformed_record_rejected_alone(app: Path, tmp_path: Path) -> None:
    with receiving() as receiver, running(app, tmp_path / "data") as cluster:
        streams, receiver.secret = subscribed(cluster, receiver.url)
        lines = [{"id": "a", "kind": "kind1"}, {"id": 7, "kind": "kind1"}, {"id": "c", "kind": "kind1"}]
        body = "\n".join(json.dumps(line) for line in lines) + '\n{"id": "d", "ki'
        answer = cluster.client.post(
            "/datasets/reports/publications", content=body, headers={"Content-Type": "application/x-ndjson"}
        )
        assert answer.status_code == 200
        assert answer.json()["accepted"] == 2
        assert [one["index"] for one in answer.json()["rejected"]] == [1, 3]
        eventually(lambda: len(stored(cluster.client, streams["kind1"])) == 2)
        assert check(cluster.client, tmp_path / "data", "reports", "kind", streams) == 2


@pytest.mark.slow
def test_clock_set_back_moves_neither_results_nor_periods(app: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with receiving() as receiver:
        with running(app, data) as cluster:
            streams, receiver.secret = subscribed(cluster, receiver.url)
            often, _ = subscribed(cluster, receiver.url, "now_and_then")
            publish = {"id": "a", "kind": "kind1"}
            cluster.client.post("/datasets/reports/publications", json=publish).raise_for_status()
            eventually(lambda: lag(cluster) == 0 and lag(cluster, "now_and_then") == 0)
            assert cluster.terminate() == 0
        with running(app, data, environment={"NEWSSTAND_CLOCK_OFFSET_MS": "-3600000"}) as cluster:
            publish = {"id": "b", "kind": "kind1"}
            cluster.client.post("/datasets/reports/publications", json=publish).raise_for_status()
            eventually(lambda: lag(cluster) == 0 and lag(cluster, "now_and_then") == 0)
            for kinds in (streams, often):
                assert check(cluster.client, data, "reports", "kind", kinds) == 2
            eventually(lambda: receiver.positions[streams["kind1"]] == 2)


@pytest.mark.slow
def test_cluster_ends_without_spark_and_next_one_continues(app: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with receiving() as receiver:
        with running(app, data) as cluster:
            streams, receiver.secret = subscribed(cluster, receiver.url)
            publish = {"id": "a", "kind": "kind1"}
            cluster.client.post("/datasets/reports/publications", json=publish).raise_for_status()
            eventually(lambda: lag(cluster) == 0)
            children = subprocess.run(
                ["pgrep", "-P", str(cluster.process.pid), "java"], capture_output=True, check=True
            )
            os.kill(int(children.stdout.split()[0]), signal.SIGKILL)
            assert cluster.process.wait(timeout=60) == 1
            assert "Spark has stopped" in cluster.log.read_text()
        with running(app, data) as cluster:
            publish = {"id": "b", "kind": "kind1"}
            cluster.client.post("/datasets/reports/publications", json=publish).raise_for_status()
            eventually(lambda: lag(cluster) == 0)
            assert check(cluster.client, data, "reports", "kind", streams) == 2


def mounted(folder: Path, size: str) -> bool:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_full_disk_reported_and_accepted_publications_safe(app: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    if not mounted(small, "24m"):
        pytest.skip("a small file system can be mounted by root only")
    try:
        data = small / "data"
        with receiving() as receiver:
            with running(app, data) as cluster:
                streams, receiver.secret = subscribed(cluster, receiver.url)
                accepted = 0
                for number in range(1000):
                    records = [{"id": f"{number}-{i}" + "x" * 200, "kind": "kind1"} for i in range(500)]
                    answer = cluster.client.post("/datasets/reports/publications", json=records)
                    if answer.status_code != 200:
                        break
                    accepted += 500
                assert answer.status_code == 507
                assert "room" in answer.json()["error"] or "full" in answer.json()["error"]
                assert cluster.process.poll() is None
                os.killpg(cluster.process.pid, signal.SIGKILL)
                cluster.process.wait()
            subprocess.run(["mount", "-o", "remount,size=512m", str(small)], check=True)
            with running(app, data) as cluster:
                eventually(lambda: lag(cluster) == 0)
                assert len(logged(data, "reports")) == accepted
                assert check(cluster.client, data, "reports", "kind", streams) == accepted
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)
