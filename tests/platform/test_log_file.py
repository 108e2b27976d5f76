"""The log of a platform is bounded and private, and problems in it are shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from newsstand.errors import BadOption
from newsstand.platform.log_file import LogFile, LogFileLimits, Problems, plain


def line(level: str, message: str) -> bytes:
    return json.dumps({"level": level, "message": message}).encode()


def test_log_keeps_newest_lines_in_files_of_bounded_size(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "platform.log"
    log = LogFile(file, print, LogFileLimits(file_bytes=100, older_files=2))
    for number in range(100):
        log.write(b"%03d 345 789\n" % number)
    log.close()
    log.write(b"too late\n")
    kept = [tmp_path / "logs" / name for name in ("platform.log.2", "platform.log.1", "platform.log")]
    assert sorted((tmp_path / "logs").iterdir()) == sorted(kept)
    assert all(one.stat().st_size <= 100 for one in kept)
    numbers = [int(text[:3]) for one in kept for text in one.read_text().splitlines()]
    assert numbers == list(range(numbers[0], 100))
    assert len(numbers) > 16


def test_log_continues_where_it_ended(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        log = LogFile(tmp_path / "log", print)
        log.write(text)
        log.close()
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


def test_log_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    (tmp_path / "old.log").touch(0o644)
    for name in ("old.log", "new/new.log"):
        LogFile(tmp_path / name, print).close()
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_log_rejected_by_name_when_unwritable(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=f"the log {tmp_path}: cannot be written"):
        LogFile(tmp_path, print)


def test_full_disk_is_reported_once_and_stops_nothing() -> None:
    said: list[str] = []
    log = LogFile(Path("/dev/full"), said.append)
    for _ in range(3):
        log.write(b"line\n")
    assert said == ["newsstand: the log /dev/full cannot be written (No space left on device); lines are lost"]


def test_problems_are_reported_in_one_line_without_repetition() -> None:
    said: list[str] = []
    now = [0.0]
    problems = Problems(said.append, lambda: now[0])
    for output in (
        line("info", "request"),
        line("warning", "the cluster is away;\n try 1"),
        line("warning", "the cluster is away; try 2"),
        line("error", "x" * 1000),
        b"26/11/18 WARN of Spark",
        b"{broken",
    ):
        problems.look("broker edge", output)
    assert said == [
        "newsstand: broker edge: warning: the cluster is away; try 1",
        f"newsstand: broker edge: error: {'x' * 293}",
    ]
    now[0] = 61.0
    problems.look("broker edge", line("warning", "the cluster is away; try 3"))
    assert said[2:] == ["newsstand: broker edge: warning: the cluster is away; try 3"]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ('{"level": "error", "message": "a\\n b"}', "error: a b"),
        ('{"level": "error"}', '{"level": "error"}'),
        ("newsstand: no such folder", "no such folder"),
        ("{cut off", "{cut off"),
    ],
)
def test_line_for_people_has_level_and_message(said: str, shown: str) -> None:
    assert plain(said) == shown
