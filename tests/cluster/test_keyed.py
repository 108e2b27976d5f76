"""The latest record per key, made from the log."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from newsstand.cluster.keyed import KeyedRecords
from newsstand.cluster.log_files import FileLog
from newsstand.model import Dataset, Field

USERS = Dataset("users", (Field("user", "string"), Field("lat", "double")), key="user")


def line(user: str, lat: float) -> bytes:
    return f'{{"user":"{user}","lat":{lat}}}'.encode()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=4), max_size=6)
)
def test_the_newest_record_of_each_key_is_kept_over_restarts(
    tmp_path_factory: object, appends: list[list[tuple[str, int]]]
) -> None:
    folder: Path = tmp_path_factory.mktemp("keyed")  # type: ignore[attr-defined]
    log = FileLog(folder / "log")
    truth: dict[str, tuple[int, float]] = {}
    seq = 0
    keyed = KeyedRecords(folder / "keyed.sqlite", log)
    for number, records in enumerate(appends):
        log.append("users", [line(user, lat) for user, lat in records], at_ms=number)
        for user, lat in records:
            seq += 1
            truth[user] = (seq, lat)
        if number % 2:
            keyed.catch_up(USERS)
        if number % 3 == 2:
            keyed.close()
            keyed = KeyedRecords(folder / "keyed.sqlite", log)
    keyed.catch_up(USERS)
    assert {key: latest[0] for key, latest in keyed.all(USERS).items()} == {
        key: seq for key, (seq, _) in truth.items()
    }
    keyed.close()
    log.close()


def test_what_is_applied_is_told_once_and_only_the_newest(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "log")
    keyed = KeyedRecords(tmp_path / "keyed.sqlite", log)
    told: list[dict[str | int, int]] = []
    log.append("users", [line("a", 1), line("b", 2), line("a", 3)], at_ms=5)
    for _ in range(2):
        keyed.catch_up(USERS, lambda newest: told.append({key: latest[0] for key, latest in newest.items()}))
    assert told == [{"a": 3, "b": 2}]
    keyed.forget("users")
    assert keyed.all(USERS) == {}
    assert keyed.catch_up(USERS) == 3
    keyed.close()
    log.close()
