"""Sweeps on Spark come to what single replays come to, however the table reaches the workers."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from test_cluster import SPARK_HOME, no_new_folder
from test_result_kernel import FOLDER, POLICIES

from newsstand.errors import BadOption, BadTrace, UnknownPolicy
from newsstand.lab import result_sweep
from newsstand.lab.broker_events import events_of, read_events
from newsstand.lab.result_replay import ReplaySetting, replay
from newsstand.lab.result_sweep import sweep, sweep_runs

CHURN = FOLDER / "05_churn.csv"
BASIC = FOLDER / "01_basic.csv"
SETTINGS = [ReplaySetting(policy, size) for policy in ("lsc", "ttl", "nc") for size in (2_000_000, 1000)]


def test_every_setting_is_answered_in_its_place(spark: SparkSession) -> None:
    events = read_events(CHURN)
    wanted = [replay(events, setting) for setting in SETTINGS]
    assert sweep(spark, CHURN, SETTINGS) == wanted
    assert sweep(spark, CHURN, SETTINGS[::-1]) == wanted[::-1]
    assert sweep(spark, CHURN, SETTINGS[1:2], engine="objects") == wanted[1:2]


def test_a_table_in_memory_is_sent_piece_by_piece(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    events = read_events(CHURN)
    monkeypatch.setattr(result_sweep, "ROWS_A_PIECE", len(events) // 3)
    assert sweep(spark, events, SETTINGS[:3]) == [replay(events, setting) for setting in SETTINGS[:3]]


def test_runs_are_answered_one_by_one(spark: SparkSession) -> None:
    tables = [BASIC, read_events(CHURN), CHURN]
    basic, churn, again = sweep_runs(spark, tables, SETTINGS[:2])
    assert basic == [replay(read_events(BASIC), setting) for setting in SETTINGS[:2]]
    assert churn == again == [replay(read_events(CHURN), setting) for setting in SETTINGS[:2]]


def test_numbers_beyond_64_bits_come_back_whole(spark: SparkSession) -> None:
    events = events_of([(0, "subscribe", 0, 0, 0), (1, "result", 0, 0, 2**45)])
    setting = ReplaySetting("lru", 2**50, end_ms=2**40)
    (measured,) = sweep(spark, events, [setting])
    assert measured["size_integral"] == 2**45 * (2**40 - 1)


def test_nothing_is_asked_and_nothing_answered(spark: SparkSession) -> None:
    assert sweep(spark, BASIC, []) == []
    assert sweep_runs(spark, [], SETTINGS) == []
    assert sweep(spark, events_of([]), [ReplaySetting("exp", 9)])[0]["results"] == 0


def test_what_a_worker_finds_wrong_is_told_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    broken = tmp_path / "events.csv"
    broken.write_text("time_ms,kind,subscriber,subscription,size\n5,result,,1,0\n")
    with pytest.raises(BadTrace, match=r"^\S+events.csv: row 1: size is not positive"):
        sweep(spark, broken, SETTINGS[:2])
    with pytest.raises(BadTrace, match=r"nowhere.csv: no such file"):
        sweep(spark, tmp_path / "nowhere.csv", SETTINGS[:1])
    with pytest.raises(BadOption, match="end_ms is 3"):
        sweep(spark, BASIC, [SETTINGS[0], ReplaySetting("lru", 9, end_ms=3)])


def test_a_file_that_was_written_anew_is_read_anew(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    for table in (BASIC, CHURN):
        path.write_bytes(table.read_bytes())
        assert sweep(spark, path, SETTINGS[:1]) == [replay(read_events(table), SETTINGS[0])]


def test_mistakes_are_named(spark: SparkSession) -> None:
    with pytest.raises(BadOption, match="engine is 'steam', not one of compiled, objects"):
        sweep(spark, BASIC, SETTINGS, engine="steam")  # type: ignore[arg-type]
    with pytest.raises(UnknownPolicy, match="lfu"):
        ReplaySetting("lfu", 9)


ON_A_CLUSTER = """
import json, sys
from pathlib import Path
from newsstand.lab.broker_events import read_events
from newsstand.lab.result_replay import ReplaySetting
from newsstand.lab.result_sweep import sweep_runs
from newsstand.spark import open_session

path, *settings = json.loads(sys.argv[1])
path = Path(path)
with open_session("local-cluster[2,1,1024]", brief=True) as spark:
    print(json.dumps(sweep_runs(spark, [path, read_events(path)], [ReplaySetting(**one) for one in settings])))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_local_cluster_comes_to_the_same(tmp_path: Path) -> None:
    """Its executors share no folder and no memory with the driver."""
    table = tmp_path / "events.csv"
    rows = list(csv.reader(CHURN.open(newline="")))
    with table.open("w", newline="") as lines:
        csv.writer(lines).writerows(rows)
    settings = [ReplaySetting(policy, 2_000_000) for policy in POLICIES]
    with no_new_folder(SPARK_HOME / "work"):
        told = subprocess.run(
            [sys.executable, "-c", ON_A_CLUSTER, json.dumps(["events.csv", *map(asdict, settings)])],
            cwd=tmp_path,
            env={key: value for key, value in os.environ.items() if not key.startswith("NEWSSTAND_")},
            capture_output=True,
            text=True,
            check=True,
        )
    wanted = [replay(read_events(CHURN), setting) for setting in settings]
    assert json.loads(told.stdout) == [wanted, wanted]
