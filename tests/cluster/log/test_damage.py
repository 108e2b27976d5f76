"""A data cluster with a damaged log: the channels that stop, and the state after a repair."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.waiting import eventually

from newsstand.cli.main import run
from newsstand.cluster.app_folder import read_app
from newsstand.cluster.log.files.log import FileLog, FileLogLimits
from newsstand.cluster.log.files.repair import RESERVE
from newsstand.cluster.log.files.segments import segment_path
from newsstand.cluster.log.maintenance import require_positions
from newsstand.cluster.results.database_sqlite import SqliteResultDatabase
from newsstand.cluster.results.stores import ResultStores
from newsstand.cluster.service import DataCluster
from newsstand.errors import LogDamage, NotFound

APP = """
[datasets.reports]
fields = { id = "string", kind = "string" }

[datasets.notes]
fields = { id = "string", kind = "string" }

[channels.of_kind]
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"

[channels.often]
period = "300ms"
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"

[channels.as_often]
period = "300ms"
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"

[channels.noted]
parameters = { kind = "string" }
query = "SELECT n.id FROM notes n WHERE n.kind = :kind"
"""
NAMES = ("of_kind", "often", "as_often")


class ClusterUnderTest:
    """A cluster over a data folder, and its log and results."""

    def __init__(self, folder: Path, spark: SparkSession, driver_bytes: int) -> None:
        app = read_app(folder)
        app.data.mkdir(exist_ok=True)
        self.log = FileLog(app.data / "log", FileLogLimits(segment_bytes=1500, driver_bytes=driver_bytes))
        self.stores: ResultStores = ResultStores(SqliteResultDatabase(app.data / "results.sqlite"))
        self.cluster = DataCluster(app, spark, self.log, self.stores, app.data, lambda: time.time_ns() // 10**6)

    def publish(self, first: int, count: int, dataset: str = "reports", key: str | None = None) -> list[int]:
        """Publish records of the kind `fire`; return their numbers."""
        body = json.dumps([{"id": f"{first + place}", "kind": "fire"} for place in range(count)])
        receipt = self.cluster.publications.publish(dataset, body.encode(), "json", key, "gate")
        assert receipt.first is not None
        assert receipt.last is not None
        return list(range(receipt.first, receipt.last + 1))

    def ids(self, channel: str) -> list[str]:
        """Return the ids of the results of a subscriber to `fire`."""
        (one,) = self.cluster.subscriptions.subscribe("north", [(channel, {"kind": "fire"}, 1)])
        found = self.cluster.subscriptions.read(one.id, 0, None, 1000)
        assert [result.position for result in found] == list(range(1, len(found) + 1))
        return [json.loads(bytes(result.payload))["id"] for result in found]

    def states(self, seq: int) -> dict[str, str]:
        listed = self.cluster.publications.audit("reports", seq).facts["channels"]
        assert isinstance(listed, list)
        return {one["channel"]: one["state"] for one in listed}

    def settle(self, *channels: str) -> None:
        eventually(lambda: all(self.cluster.definitions.channel_status(one)["lag"] == 0 for one in channels))


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "newsstand.toml").write_text(APP)
    return tmp_path


@contextmanager
def opened(
    app: Path, spark: SparkSession, *, start: bool = True, driver_bytes: int = FileLogLimits().driver_bytes
) -> Iterator[ClusterUnderTest]:
    one = ClusterUnderTest(app, spark, driver_bytes)
    try:
        if start:
            one.cluster.start()
        yield one
    finally:
        one.cluster.stop()
        one.stores.close()
        one.log.close()


def subscribed(one: ClusterUnderTest) -> None:
    one.cluster.subscriptions.register_broker("north", "http://127.0.0.1:9/")
    for channel in (*NAMES, "noted"):
        one.ids(channel)


def test_repaired_log_without_head_matches_each_new_publication_once(
    app: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    with opened(app, spark) as one:
        subscribed(one)
        for batch in range(8):
            one.publish(5 * batch + 1, 5, key=f"batch {batch}")
        one.settle(*NAMES)
    folder = app / "data" / "log" / "reports"
    for segment in sorted(folder.glob("*.ndjson"), reverse=True):
        lines = segment.read_bytes().splitlines(keepends=True)
        segment.write_bytes(b"".join(line for line in lines if json.loads(line)["_seq"] <= 30))
        if not segment.stat().st_size:
            segment.unlink()
    (folder / "head").unlink()

    rejected = subprocess.run(
        [sys.executable, "-m", "newsstand.cli.main", "cluster", app, "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rejected.returncode == 2
    (line,) = rejected.stderr.splitlines()
    assert "dataset 'reports': the log ends with record 30" in line
    assert "has been executed up to 40" in line
    assert any(f"channel '{name}'" in line for name in NAMES)
    assert f"newsstand log repair {app / 'data'}" in line

    assert run(["log", "repair", str(app)]) == 0
    assert "records 31 to 40: missing; known to channel" in capfd.readouterr().out
    with opened(app, spark) as one:
        require_positions(one.log, app / "data", one.stores, dict.fromkeys(NAMES, "reports"))
        numbers = [one.publish(41 + number, 1)[0] for number in range(40)]
        assert numbers == list(range(41 + RESERVE, 81 + RESERVE))
        one.settle(*NAMES)
        for channel in NAMES:
            assert one.ids(channel) == [str(number) for number in range(1, 81)]
        assert one.publish(1, 5, key="batch 0") == list(range(1, 6)), "still known"
        assert one.cluster.publications.audit("reports", 35).facts["lost"]
        assert set(one.states(35).values()) == {"evaluated"}, "before it was lost"
        assert set(one.states(50).values()) == {"lost"}, "perhaps a number of a receipt"
        assert set(one.states(numbers[0]).values()) == {"evaluated"}
        with pytest.raises(NotFound):
            one.cluster.publications.audit("reports", numbers[-1] + 1)


def test_lost_records_are_skipped_and_audited_as_lost(
    app: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    with opened(app, spark) as one:
        subscribed(one)
        one.settle(*NAMES)
    with opened(app, spark, start=False) as one:
        one.publish(1, 40)
    damage(app / "data" / "log" / "reports", b'"id":"7"')
    assert run(["log", "repair", str(app)]) == 0
    assert "reports: 1 record lost, the next one is 41" in capfd.readouterr().out
    with opened(app, spark) as one:
        one.publish(41, 1)
        one.settle(*NAMES)
        for channel in NAMES:
            assert one.ids(channel) == [str(number) for number in range(1, 42) if number != 7]
        assert set(one.states(7).values()) == {"lost"}
        assert set(one.states(8).values()) == {"evaluated"}


@pytest.mark.parametrize(
    "driver_bytes", [FileLogLimits().driver_bytes, 0], ids=["read by the driver", "read by tasks"]
)
def test_damage_stops_only_channels_of_its_dataset(
    app: Path, spark: SparkSession, driver_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(app, spark, driver_bytes=driver_bytes) as one:
        subscribed(one)
        one.settle(*NAMES, "noted")
    with opened(app, spark, start=False, driver_bytes=driver_bytes) as one:
        one.publish(1, 40)
        damage(app / "data" / "log" / "reports", b'"id":"7"')
        one.cluster.start()
        one.publish(1, 5, "notes")
        one.settle("noted")
        assert one.ids("noted") == ["1", "2", "3", "4", "5"]

        def is_damaged(channel: str) -> bool:
            failing = one.cluster.definitions.channel_status(channel)["failing"]
            return bool(re.match(r"LogDamage: .*\.ndjson, byte ", failing["error"] if failing else ""))

        eventually(lambda: is_damaged("often") and is_damaged("as_often"))
        # A channel fails with its log, or its micro-batches cannot be read first.
        eventually(lambda: is_damaged("of_kind") or "micro-batches of reports: " in caplog.text)
        assert one.cluster.ready() == ["micro-batches"]
        for channel in NAMES:
            assert one.ids(channel) == []
            assert one.stores.results.position(channel) == 0
        one.publish(6, 1, "notes")
        one.settle("noted")
        assert one.ids("noted") == ["1", "2", "3", "4", "5", "6"]
    with pytest.raises(LogDamage, match="newsstand log repair"):
        FileLog(app / "data" / "log").verify()


def damage(folder: Path, text: bytes) -> None:
    segment = segment_path(folder, 1)
    content = segment.read_bytes()
    assert text in content
    segment.write_bytes(content.replace(text, text.replace(b"7", b"6")))
