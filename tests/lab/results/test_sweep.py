"""Sweeps on Spark agree with single replays for any distribution of the table."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.environment import without_settings
from support.lab.result_vectors import FOLDER, POLICIES
from support.standalone_spark import SPARK_HOME, no_new_folder

from newsstand.errors import BadOption, BadTrace, UnknownPolicy
from newsstand.lab.results import sweep as result_sweep
from newsstand.lab.results.events import events_of, read_events
from newsstand.lab.results.replay import ReplaySetting, replay
from newsstand.lab.results.sweep import sweep

CHURN = FOLDER / "05_churn.csv"
BASIC = FOLDER / "01_basic.csv"
SETTINGS = [ReplaySetting(policy, size) for policy in ("lsc", "ttl", "nc") for size in (2_000_000, 1000)]


def test_sweep_answers_in_order_of_settings(spark: SparkSession) -> None:
    events = read_events(CHURN)
    wanted = [replay(events, setting) for setting in SETTINGS]
    assert sweep(spark, CHURN, SETTINGS) == wanted
    assert sweep(spark, CHURN, SETTINGS[::-1]) == wanted[::-1]
    assert sweep(spark, CHURN, SETTINGS[1:2], implementation="core") == wanted[1:2]


def test_sweep_broadcasts_table_in_pieces(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    events = read_events(CHURN)
    monkeypatch.setattr(result_sweep, "ROWS_A_PIECE", len(events) // 3)
    assert sweep(spark, events, SETTINGS[:3]) == [replay(events, setting) for setting in SETTINGS[:3]]


def test_sweep_answers_each_table(spark: SparkSession) -> None:
    basic, churn, again = (sweep(spark, table, SETTINGS[:2]) for table in (BASIC, read_events(CHURN), CHURN))
    assert basic == [replay(read_events(BASIC), setting) for setting in SETTINGS[:2]]
    assert churn == again == [replay(read_events(CHURN), setting) for setting in SETTINGS[:2]]


def test_sweep_returns_numbers_beyond_64_bits(spark: SparkSession) -> None:
    events = events_of([(0, "subscribe", 0, 0, 0), (1, "result", 0, 0, 2**45)])
    setting = ReplaySetting("lru", 2**50, end_ms=2**40)
    (measured,) = sweep(spark, events, [setting])
    assert measured["size_integral"] == 2**45 * (2**40 - 1)


def test_sweep_of_no_settings_is_empty(spark: SparkSession) -> None:
    assert sweep(spark, BASIC, []) == []
    assert sweep(spark, events_of([]), [ReplaySetting("exp", 9)])[0]["results"] == 0


def test_sweep_raises_error_of_worker(spark: SparkSession, tmp_path: Path) -> None:
    broken = tmp_path / "events.csv"
    broken.write_text("time_ms,kind,subscriber,subscription,size\n5,result,,1,0\n")
    with pytest.raises(BadTrace, match=r"^\S+events.csv: row 1: size is not positive"):
        sweep(spark, broken, SETTINGS[:2])
    with pytest.raises(BadTrace, match=r"nowhere.csv: no such file"):
        sweep(spark, tmp_path / "nowhere.csv", SETTINGS[:1])
    with pytest.raises(BadOption, match="end_ms 3"):
        sweep(spark, BASIC, [SETTINGS[0], ReplaySetting("lru", 9, end_ms=3)])


def test_sweep_reads_replaced_file_again(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    for table in (BASIC, CHURN):
        path.write_bytes(table.read_bytes())
        assert sweep(spark, path, SETTINGS[:1]) == [replay(read_events(table), SETTINGS[0])]


def test_setting_rejects_unknown_policy() -> None:
    with pytest.raises(UnknownPolicy, match="lfu"):
        ReplaySetting("lfu", 9)


ON_A_CLUSTER = """
import json, sys
from pathlib import Path
from newsstand.lab.results.events import read_events
from newsstand.lab.results.replay import ReplaySetting
from newsstand.lab.results.sweep import sweep
from newsstand.spark import open_session

path, *settings = json.loads(sys.argv[1])
path = Path(path)
with open_session("local-cluster[2,1,1024]", brief=True) as spark:
    settings = [ReplaySetting(**one) for one in settings]
    print(json.dumps([sweep(spark, table, settings) for table in (path, read_events(path))]))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sweep_on_local_cluster_agrees(tmp_path: Path) -> None:
    """Its executors share no folder and no memory with the driver."""
    table = tmp_path / "events.csv"
    rows = list(csv.reader(CHURN.open(newline="")))
    with table.open("w", newline="") as lines:
        csv.writer(lines).writerows(rows)
    settings = [ReplaySetting(policy, 2_000_000) for policy in POLICIES]
    with no_new_folder(SPARK_HOME / "work"):
        output = subprocess.run(
            [sys.executable, "-c", ON_A_CLUSTER, json.dumps(["events.csv", *map(asdict, settings)])],
            cwd=tmp_path,
            env=without_settings(),
            capture_output=True,
            text=True,
            check=True,
        )
    wanted = [replay(read_events(CHURN), setting) for setting in settings]
    assert json.loads(output.stdout) == [wanted, wanted]
