"""A data cluster over a damaged log: who stops and who goes on, and what is true after a repair."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from newsstand.cli.main import run
from newsstand.cluster import log_files
from newsstand.cluster.app_folder import read_app
from newsstand.cluster.data_cluster import DataCluster
from newsstand.cluster.log_files import FileLog
from newsstand.cluster.log_positions import require_positions
from newsstand.cluster.log_repair import RESERVE
from newsstand.cluster.log_segments import segment_path
from newsstand.cluster.results import Results
from newsstand.cluster.results_sqlite import SqliteResults
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


def eventually(true: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


class Opened:
    """A cluster over a data folder, and its log and results."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        app = read_app(folder)
        app.data.mkdir(exist_ok=True)
        self.log = FileLog(app.data / "log", segment_bytes=1500)
        self.results: Results = SqliteResults(app.data / "results.sqlite")
        self.cluster = DataCluster(app, spark, self.log, self.results, app.data, lambda: time.time_ns() // 10**6)

    def publish(self, first: int, count: int, dataset: str = "reports", key: str | None = None) -> list[int]:
        """Publish records of the kind `fire`; return their numbers."""
        body = json.dumps([{"id": f"{first + place}", "kind": "fire"} for place in range(count)])
        receipt = self.cluster.publish(dataset, body.encode(), "json", key, "gate")
        assert receipt.first is not None
        assert receipt.last is not None
        return list(range(receipt.first, receipt.last + 1))

    def ids(self, channel: str) -> list[str]:
        """The ids that a subscriber to `fire` of a channel has got."""
        (one,) = self.cluster.subscribe("north", [(channel, {"kind": "fire"}, 1)])
        found = self.cluster.results(one.id, 0, None, 1000)
        assert [result.position for result in found] == list(range(1, len(found) + 1))
        return [json.loads(result.payload)["id"] for result in found]

    def states(self, seq: int) -> dict[str, str]:
        listed = self.cluster.trace("reports", seq)["channels"]
        assert isinstance(listed, list)
        return {one["channel"]: one["state"] for one in listed}

    def settle(self, *channels: str) -> None:
        eventually(lambda: all(self.cluster.channel_status(one)["lag"] == 0 for one in channels))


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "newsstand.toml").write_text(APP)
    return tmp_path


@contextmanager
def opened(app: Path, spark: SparkSession, *, start: bool = True) -> Iterator[Opened]:
    one = Opened(app, spark)
    try:
        if start:
            one.cluster.start()
        yield one
    finally:
        one.cluster.stop()
        one.results.close()
        one.log.close()


def subscribed(one: Opened) -> None:
    one.cluster.register_broker("north", "http://127.0.0.1:9/")
    for channel in (*NAMES, "noted"):
        one.ids(channel)


def test_after_head_was_deleted_and_the_log_repaired_every_new_publication_is_matched_once(
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

    refused = subprocess.run(
        [sys.executable, "-m", "newsstand.cli.main", "cluster", app, "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert "dataset 'reports': the log ends with record 30" in line
    assert "has been executed up to 40" in line
    assert any(f"channel '{name}'" in line for name in NAMES)
    assert f"newsstand log repair {app / 'data'}" in line

    assert run(["log", "repair", str(app)]) == 0
    assert "records 31 to 40: missing; known to channel" in capfd.readouterr().out
    with opened(app, spark) as one:
        require_positions(one.log, app / "data", one.results, dict.fromkeys(NAMES, "reports"))
        numbers = [one.publish(41 + number, 1)[0] for number in range(40)]
        assert numbers == list(range(41 + RESERVE, 81 + RESERVE))
        one.settle(*NAMES)
        for channel in NAMES:
            assert one.ids(channel) == [str(number) for number in range(1, 81)]
        assert one.publish(1, 5, key="batch 0") == list(range(1, 6)), "still known"
        assert one.cluster.trace("reports", 35)["lost"]
        assert set(one.states(35).values()) == {"evaluated"}, "before it was lost"
        assert set(one.states(50).values()) == {"lost"}, "perhaps a number of a receipt"
        assert set(one.states(numbers[0]).values()) == {"evaluated"}
        with pytest.raises(NotFound):
            one.cluster.trace("reports", numbers[-1] + 1)


def test_records_lost_before_they_were_matched_are_passed_over_and_said_to_be_lost(
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


@pytest.mark.parametrize("shipped", [log_files.SHIPPED, 0], ids=["read by the driver", "read by tasks"])
def test_damage_stops_the_channels_of_its_dataset_alone_and_is_told(
    app: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, shipped: int
) -> None:
    monkeypatch.setattr(log_files, "SHIPPED", shipped)
    with opened(app, spark) as one:
        subscribed(one)
        one.settle(*NAMES, "noted")
    with opened(app, spark, start=False) as one:
        one.publish(1, 40)
        damage(app / "data" / "log" / "reports", b'"id":"7"')
        one.cluster.start()
        one.publish(1, 5, "notes")
        one.settle("noted")
        assert one.ids("noted") == ["1", "2", "3", "4", "5"]

        def told() -> set[str]:
            return {problem.partition(":")[0] for problem in one.cluster._engine.problems()}

        eventually(lambda: {"channel often", "channel as_often"} <= told())
        eventually(lambda: bool({"stream of reports", "channel of_kind"} & told()))
        for problem in one.cluster._engine.problems():
            if not problem.startswith("channel "):
                continue  # the stream may have broken for want of a Python worker in the meantime
            assert "LogDamage: " in problem
            assert ".ndjson, byte " in problem
        assert one.cluster.ready() == ["a stream of Spark's"]
        for channel in NAMES:
            assert one.ids(channel) == []
            assert one.results.position(channel) == 0
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
