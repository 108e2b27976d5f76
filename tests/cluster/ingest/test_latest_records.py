"""The latest record of each key, derived from the log."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from newsstand.cluster.ingest.latest_records import LatestRecords
from newsstand.cluster.log.files.log import FileLog
from newsstand.errors import BadInput
from newsstand.model import Dataset, Field

USERS = Dataset("users", (Field("user", "string"), Field("lat", "double")), key="user")


def line(user: str, lat: float) -> bytes:
    return f'{{"user":"{user}","lat":{lat}}}'.encode()


@settings(max_examples=examples(25))
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=4), max_size=6)
)
def test_latest_records_survive_restarts(tmp_path_factory: object, appends: list[list[tuple[str, int]]]) -> None:
    folder: Path = tmp_path_factory.mktemp("keyed")  # type: ignore[attr-defined]
    log = FileLog(folder / "log")
    truth: dict[str, tuple[int, float]] = {}
    seq = 0
    keyed = LatestRecords(folder / "keyed.sqlite", log)
    for number, records in enumerate(appends):
        log.append("users", [line(user, lat) for user, lat in records], at_ms=number)
        for user, lat in records:
            seq += 1
            truth[user] = (seq, lat)
        if number % 2:
            keyed.catch_up(USERS)
        if number % 3 == 2:
            keyed.close()
            keyed = LatestRecords(folder / "keyed.sqlite", log)
    keyed.catch_up(USERS)
    assert {key: latest[0] for key, latest in keyed.all(USERS).items()} == {
        key: seq for key, (seq, _) in truth.items()
    }
    keyed.close()
    log.close()


def test_catch_up_reports_newest_records_once(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "log")
    keyed = LatestRecords(tmp_path / "keyed.sqlite", log)
    changes: list[dict[str | int, int]] = []
    log.append("users", [line("a", 1), line("b", 2), line("a", 3)], at_ms=5)
    for _ in range(2):
        keyed.catch_up(USERS, lambda newest: changes.append({key: latest[0] for key, latest in newest.items()}))
    assert changes == [{"a": 3, "b": 2}]
    keyed.drop("users")
    assert keyed.all(USERS) == {}
    assert keyed.catch_up(USERS) == 3
    keyed.close()
    log.close()


def test_file_without_version_is_adopted_and_newer_version_rejected(tmp_path: Path) -> None:
    path = tmp_path / "keyed.sqlite"
    with sqlite3.connect(path) as older:
        older.executescript(
            "CREATE TABLE latest (dataset TEXT, key TEXT, seq INTEGER, at_ms INTEGER, line BLOB, "
            "PRIMARY KEY (dataset, key)) WITHOUT ROWID;"
            "CREATE TABLE applied (dataset TEXT PRIMARY KEY, seq INTEGER);"
        )
        older.execute("INSERT INTO latest VALUES ('users', 'a', 1, 5, ?)", (line("a", 1),))
    older.close()
    log = FileLog(tmp_path / "log")
    keyed = LatestRecords(path, log)
    assert keyed.all(USERS) == {"a": (1, 5, line("a", 1))}
    keyed.close()
    with sqlite3.connect(path) as newer:
        assert newer.execute("PRAGMA user_version").fetchone() == (1,)
        newer.execute("PRAGMA user_version = 9")
    newer.close()
    with pytest.raises(BadInput, match=r"keyed\.sqlite: the database of latest records has schema version 9"):
        LatestRecords(path, log)
    log.close()
