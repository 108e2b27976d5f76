"""The event log of a broker, which the lab accepts as a trace."""

from __future__ import annotations

import csv
import json
import logging
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.broker.calls import login, read, sockets, subscribe, until_head
from support.broker.press import Press
from support.broker.process import start_broker, wait_ready

from newsstand.broker.event_log import TABLES, EventLog
from newsstand.workload.trace.folder import check, read_trace

START = 1_800_000_000_000


def rows(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / f"{table}.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_tables_have_their_columns_and_numbers(tmp_path: Path) -> None:
    log = EventLog(tmp_path, START)
    log.event(START + 1, "login", "ann")
    log.event(START + 2, "subscribe", "ann", "stream x")
    log.results_pulled(START + 3, "stream x", [10, 20])
    log.results_read(START + 4, "stream x", 2, 30, 0, 0.0012)
    log.results_read(START + 5, "stream x", 1, 10, 7, 0.5)
    log.page_offered(START + 1000, "page a", 100, 3, True)
    log.page_requested(START + 2000, "page a", 100, True, 0.001)
    log.page_requested(START + 2500, "page b", 50, False, 0.002)
    log.event(START + 6, "unsubscribe", "ann", "stream x")
    log.event(START + 7, "logout", "ann")
    log.topic_read(START + 8, "storms, severe", 2)
    assert list(tmp_path.iterdir()) == [], "nothing is written before it is time"
    log.flush(START + 3000)
    for table, columns in TABLES.items():
        assert tuple(rows(tmp_path, table)[0]) == columns
    assert [tuple(row.values())[1:] for row in rows(tmp_path, "topics")] == [("storms, severe", "2")]
    assert [tuple(row.values())[1:] for row in rows(tmp_path, "events")] == [
        ("login", "0", "", ""),
        ("subscribe", "0", "0", ""),
        ("result", "", "0", "10"),
        ("result", "", "0", "20"),
        ("unsubscribe", "0", "0", ""),
        ("logout", "0", "", ""),
    ]
    assert [(row["kind"], row["hit"], row["bytes"]) for row in rows(tmp_path, "accesses")] == [
        ("pull", "", "10"),
        ("pull", "", "20"),
        ("result", "2", "30"),
        ("result", "1", "10"),
        ("result", "0", "7"),
        ("push", "1", "100"),
        ("page", "1", "100"),
        ("page", "0", "50"),
    ]
    names = {(row["kind"], row["number"]): row["name"] for row in rows(tmp_path, "names")}
    assert names[("page", "1")] == "page b"
    assert names[("subscriber", "0")] == "ann"
    assert names[("start", str(START))] == ""


def test_log_of_two_starts_is_one_trace(tmp_path: Path, spark: SparkSession) -> None:
    first = EventLog(tmp_path, START)
    first.page_offered(START + 1000, "a", 100, 3, True)
    first.page_offered(START + 1500, "a", 100, 4, True)
    first.page_requested(START + 2000, "a", 100, True, 0.001)
    first.page_requested(START + 2100, "empty", 0, False, 0.001)
    first.flush(START + 2500)
    second = EventLog(tmp_path, START + 10_000)
    second.page_requested(START + 11_000, "a", 100, False, 0.001)
    second.page_offered(START + 12_000, "a", 100, 5, True)
    second.page_requested(START + 13_000, "b", 60, False, 0.001)
    second.flush(START + 13_000)
    assert [row["time"] for row in rows(tmp_path, "requests")] == ["2.0", "11.0", "13.0"]
    check(read_trace(spark, tmp_path))  # as `newsstand simulate` reads it


def test_large_tables_are_rotated_together(tmp_path: Path) -> None:
    log = EventLog(tmp_path, START, largest=200)
    for second in range(30):
        log.page_requested(START + second * 1000, "a", 100, True, 0.001)
        log.flush(START + second * 1000)
    aside = sorted(one.name for one in tmp_path.iterdir() if one.is_dir())
    assert len(aside) > 1
    for folder in (tmp_path, *(tmp_path / name for name in aside)):
        assert [row["page"] for row in rows(folder, "publications")] == ["0"], "each is a trace by itself"
    parts = sum(len(rows(folder, "requests")) for folder in (tmp_path, *(tmp_path / name for name in aside)))
    assert parts == 30


def aside(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.glob("until-*"))


def test_oldest_tables_removed_when_the_log_is_too_large(tmp_path: Path) -> None:
    log = EventLog(tmp_path, START, keep_bytes=4000)
    (tmp_path / "until-now").mkdir()
    (tmp_path / "until-now" / "notes.txt").write_text("of somebody else")
    for minute in range(200):
        log.page_requested(START + minute * 60_000, "a", 100, True, 0.001)
        log.flush(START + minute * 60_000)
        files = [file for file in tmp_path.rglob("*.csv") if file.name != "names.csv"]
        assert sum(file.stat().st_size for file in files) <= 4000
    assert len(aside(tmp_path)) > 2
    assert f"until-{START}" not in aside(tmp_path)
    assert rows(tmp_path, "requests")[-1]["time"] == "11940.0", "what is being written stays"
    assert (tmp_path / "until-now" / "notes.txt").exists()


def test_rows_removed_when_too_old(tmp_path: Path) -> None:
    day = 24 * 3_600_000
    log = EventLog(tmp_path, START, keep_ms=30 * day)
    for number in range(100):
        now = START + number * day
        log.event(now, "login", "ann")
        log.flush(now)
        if number % 7 == 0:  # it is started again
            log = EventLog(tmp_path, now, keep_ms=30 * day)
        kept = [
            int(row["time_ms"]) for file in tmp_path.rglob("events.csv") for row in rows(file.parent, "events")
        ]
        assert now - min(kept) <= 30 * day
        assert number < 16 or now - min(kept) >= 13 * day
        assert max(kept) == now


def test_log_without_a_folder_stores_nothing(tmp_path: Path) -> None:
    log = EventLog(None, START)
    log.event(START, "login", "ann")
    log.page_requested(START, "a", 1, True, 0)
    log.results_read(START, "s", 1, 1, 0, 0)
    assert log.unwritten == 0
    log.flush(START)


def test_disk_error_loses_only_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "access"
    log = EventLog(folder, START)
    log.event(START, "login", "ann")
    folder.rmdir()
    with caplog.at_level(logging.ERROR):
        log.flush(START)
    assert "loses 1 rows of events" in caplog.text


def test_events_of_subscribers_logged_by_a_running_broker(press: Press, tmp_path: Path) -> None:
    broker = start_broker(tmp_path, press.url, "logged")
    try:
        wait_ready(broker.url)
        ann = login(broker.url, "ann")
        again = login(broker.url, "ann")
        subscription = subscribe(ann, kind="logged")
        with sockets(ann) as one, sockets(again) as other:
            for socket in (one, other):
                assert json.loads(socket.recv(5)) == {"ready": True}
            page = press.keep_page(b"Hello")
            press.print([{"channel": "of_kind", "values": ["logged"], "payload": {"id": "r"}, "page": page}])
            until_head(ann, subscription, 1)
            read(ann, subscription)
            assert ann.get(f"/pages/{page}").status_code == 200
        ann.delete(f"/subscriptions/{subscription['id']}")
        time.sleep(0.2)
    finally:
        assert broker.stop() == 0
    folder = tmp_path / "access"
    kinds = [row["kind"] for row in rows(folder, "events")]
    assert sorted(kinds) == ["login", "logout", "result", "subscribe", "unsubscribe"]
    assert {row["kind"] for row in rows(folder, "accesses")} == {"pull", "push", "result", "page"}
    assert len(rows(folder, "requests")) == 1
