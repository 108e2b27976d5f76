"""Verification and repair of a damaged log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.log_suite import segments
from support.profiles import examples

from newsstand.cli.main import run
from newsstand.cluster.log.contract import AppendResult, LogEntry
from newsstand.cluster.log.files import verification
from newsstand.cluster.log.files.log import FileLog, FileLogLimits
from newsstand.cluster.log.files.repair import RESERVE
from newsstand.cluster.log.files.segments import encode_append, segment_path
from newsstand.cluster.log.maintenance import find_log, repair_log, verify_log
from newsstand.cluster.results.database_sqlite import SqliteResultDatabase
from newsstand.cluster.results.stores import ResultStores
from newsstand.errors import LogDamage

APPENDS = 12
SEGMENT_BYTES = 600


def quiet(total: int) -> Callable[[int], object]:
    return lambda piece: None


def make_data(data: Path, position: int | None = None) -> list[LogEntry]:
    """Make a data folder with a log of several segments, two records an append; return its records."""
    log = FileLog(data / "log", FileLogLimits(segment_bytes=SEGMENT_BYTES))
    for number in range(APPENDS):
        log.append(
            "reports", [b'{"n":%d}' % (2 * number + offset) for offset in (0, 1)], 1, f"key {number}", "gate"
        )
    log.append("other", [b'{"n":1}'], 1)
    entries = list(log.read("reports", 0))
    log.close()
    results = ResultStores(SqliteResultDatabase(data / "results.sqlite"))
    if position is not None:
        results.results.add_channel("of_kind", position)
    results.close()
    streams = {"of_kind": {"new": "reports", "parameters": []}}
    (data / "catalog.json").write_text(json.dumps({"version": 1, "streams": streams}))
    assert len(segments(data / "log" / "reports")) >= 3
    return entries


def flip(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def harm(folder: Path, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
    """Flip a bit, cut a file, remove one, or let two change their contents."""
    files = sorted(path for path in folder.iterdir())
    file = files[draw(st.integers(0, len(files) - 1))]
    content = file.read_bytes()
    what = draw(st.integers(0, 3))
    if what == 0 and content:
        flip(file, draw(st.integers(0, len(content) * 8 - 1)))
    elif what == 1 and content:
        os.truncate(file, draw(st.integers(0, len(content) - 1)))
    elif what == 2:
        file.unlink()
    else:
        other = files[draw(st.integers(0, len(files) - 1))]
        file.write_bytes(other.read_bytes())
        other.write_bytes(content)


def require_place(error: LogDamage, log: Path) -> None:
    """Require one line with the file, the byte and the command to run."""
    text = str(error)
    assert f"{log / 'reports'}" in text
    assert ", byte " in text
    assert f"newsstand log repair {log.parent}" in text
    assert "\n" not in text


def read_on(log: FileLog, after: int, until: int) -> Iterator[LogEntry]:
    """Return the records that a reader gets before it finds damage."""
    try:
        yield from log.read("reports", after, until)
    except LogDamage as error:
        require_place(error, log.folder)


@given(data=st.data())
@settings(max_examples=examples(100))
def test_repair_keeps_valid_records_after_any_damage(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("data")
    entries = make_data(folder)
    for _ in range(data.draw(st.sampled_from([1, 1, 2]))):
        harm(folder / "log" / "reports", data.draw)
    after, until = data.draw(st.integers(0, 24)), data.draw(st.integers(0, 30))
    reader = FileLog(folder / "log", read_only=True)
    delivered = list(read_on(reader, after, until))
    assert delivered == entries[after : after + len(delivered)], "a wrong record, or one out of place"

    verified = {one.dataset: one for one in verify_log(find_log(folder), None, quiet)}
    assert verified["other"].valid
    log = FileLog(folder / "log", FileLogLimits(segment_bytes=SEGMENT_BYTES))
    try:
        log.verify()
    except LogDamage as error:
        require_place(error, folder / "log")
        log.close()
        is_sound = verified["reports"].valid
        assert not is_sound
    else:
        there = list(log.read("reports", 0))
        assert there == entries[: len(there)]
        assert log.head("reports") == len(there)
        complete = len(there) == len(entries)
        assert complete or not (folder / "log" / "reports" / "head").exists() or not verified["reports"].valid
        for number in range(len(there) // 2):
            known = AppendResult(2 * number + 1, 2 * number + 2, repeated=True)
            assert log.append("reports", [b"{}"], 1, f"key {number}", "gate") == known
        log.close()
        if complete:
            return

    done = repair_log(find_log(folder), None, quiet)
    assert [one.dataset for one in done] in (["reports"], [])
    assert all(one.valid for one in verify_log(find_log(folder), None, quiet))
    lost = {seq for one in done for gap in one.lost for seq in range(gap.first, gap.last + 1)}
    unsure = [key for one in done for key in one.keys if key.key is None or not key.certain]
    unknown = {seq for key in unsure for seq in (key.first, key.last)}
    log = FileLog(folder / "log", FileLogLimits(segment_bytes=SEGMENT_BYTES))
    try:
        log.verify()
        left = {entry.seq: entry for entry in log.read("reports", 0)}
        assert left == {entry.seq: entry for entry in entries if entry.seq in left}
        known = set(left) | lost
        assert known == set(range(1, len(known) + 1)), "missing records are recorded as lost"
        assert all(log.lost_range("reports", seq) is not None for seq in lost)
        for number in range(APPENDS):
            mine = {2 * number + 1, 2 * number + 2}
            if left.keys() & mine and not mine & unknown:
                again = log.append("reports", [b"{}"], 1, f"key {number}", "gate")
                assert again.repeated, f"key {number}"
        added = log.append("reports", [b'{"n":99}'], 1)
        assert added.first > max(known, default=0)
        assert [entry.seq for entry in log.read("reports", 0)][-1] == added.last
    finally:
        log.close()


def cut_after(folder: Path, seq: int) -> None:
    """Leave a log without the records after `seq`, as if the disk had lost them, and without `head`."""
    for first in reversed(segments(folder)):
        segment = segment_path(folder, first)
        lines = segment.read_bytes().splitlines(keepends=True)
        segment.write_bytes(b"".join(lines[: max(0, seq + 1 - first)]))
        if first > seq and first > 1:
            segment.unlink()
    (folder / "head").unlink()


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    code = run(["log", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out or "null")


def test_damage_before_later_appends_is_not_truncated_without_head(tmp_path: Path) -> None:
    entries = make_data(tmp_path)
    folder = tmp_path / "log" / "reports"
    (folder / "head").unlink()
    last = segments(folder)[-1]
    flip(segment_path(folder, last), 300)
    size = segment_path(folder, last).stat().st_size
    log = FileLog(tmp_path / "log")
    with pytest.raises(LogDamage, match=rf"{last:020d}.ndjson, byte 0: .*newsstand log repair"):
        log.verify()
    log.close()
    assert segment_path(folder, last).stat().st_size == size, "nothing is cut off"
    assert entries


def test_unfinished_group_of_appends_is_truncated(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "log")
    log.append("reports", [b'{"n":1}'], 1)
    log.close()
    segment = segment_path(tmp_path / "log" / "reports", 1)
    content = segment.read_bytes()
    first, second = (
        encode_append([b'{"n":2}'], 2, 1, None, None, 2),
        encode_append([b'{"n":3}'], 3, 1, "k", None, 2),
    )
    segment.write_bytes(content + bytes(len(first)) + second)
    log = FileLog(tmp_path / "log")
    assert [entry.seq for entry in log.read("reports", 0)] == [1]
    assert log.append("reports", [b'{"n":2}'], 1, "k") == AppendResult(2, 2)
    log.close()


def test_damaged_number_does_not_hide_earlier_records(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "log")
    log.append("reports", [b'{"kind":"%s"}' % (b"x" * 3000)] * 60, 1)
    segment = segment_path(tmp_path / "log" / "reports", 1)
    content = segment.read_bytes()
    for seq in range(2, 60):
        segment.write_bytes(content.replace(b'"_seq":%d,' % seq, b'"_seq":%d,' % (seq ^ 1)))
        for until in (seq - 1, seq, seq + 1):
            got = []
            try:
                got += [entry.seq for entry in log.read("reports", 0, until)]
            except LogDamage:
                continue
            assert got == list(range(1, until + 1))
    log.close()


def test_append_rejected_when_segment_is_deleted(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "log")
    log.append("reports", [b"{}"], 1)
    segment_path(tmp_path / "log" / "reports", 1).unlink()
    with pytest.raises(LogDamage, match="deleted"):
        log.append("reports", [b"{}"], 1)
    with pytest.raises(LogDamage, match="missing"):
        list(log.read("reports", 0))
    log.close()


def test_repair_leaves_valid_log_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_data(tmp_path, position=24)
    before = {path: path.read_bytes() for path in (tmp_path / "log").rglob("*") if path.is_file()}
    code, report = run_json(capsys, "verify", str(tmp_path))
    assert (code, report["sound"]) == (0, True)
    assert run_json(capsys, "repair", str(tmp_path)) == (
        0,
        {"data": str(tmp_path), "dry_run": False, "repaired": []},
    )
    assert {path: path.read_bytes() for path in (tmp_path / "log").rglob("*") if path.is_file()} == before


def test_repair_continues_above_position_of_channel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = make_data(tmp_path, position=24)
    cut_after(tmp_path / "log" / "reports", 17)
    code, report = run_json(capsys, "verify", str(tmp_path), "--dataset", "reports")
    assert code == 1
    (listed,) = report["datasets"]  # type: ignore[misc]
    assert listed["beyond"] == [{"by": "channel 'of_kind'", "position": 24}]

    code, planned = run_json(capsys, "repair", str(tmp_path), "--dry-run")
    assert code == 0
    assert not list(tmp_path.glob("log-before-repair-*"))
    code, done = run_json(capsys, "repair", str(tmp_path))
    assert code == 0
    (repaired,) = done["repaired"]  # type: ignore[misc]
    assert [(one["first"], one["last"]) for one in repaired["lost"]] == [(18, 18), (19, 24)]
    assert (repaired["reserved"]["first"], repaired["reserved"]["last"]) == (25, 24 + RESERVE)
    assert planned["repaired"][0]["lost"] == repaired["lost"]  # type: ignore[index]
    (copies,) = tmp_path.glob("log-before-repair-*")
    assert segments(copies / "reports")
    assert json.loads((copies / "reports.report.json").read_text())["next"] == 25 + RESERVE
    log = FileLog(tmp_path / "log")
    log.verify()
    assert list(log.read("reports", 0)) == entries[:17]
    assert log.append("reports", [b'{"n":99}'], 1, "new") == AppendResult(25 + RESERVE, 25 + RESERVE)
    assert [entry.seq for entry in log.read("reports", 10)] == [*range(11, 18), 25 + RESERVE]
    log.close()
    log = FileLog(tmp_path / "log")
    assert log.append("reports", [b'{"n":99}'], 1, "new").repeated
    assert log.append("reports", [b'{"n":9}'], 1, "key 11", "gate").first == 26 + RESERVE, "that key was lost"
    log.close()


def test_repair_of_missing_folder_records_losses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import shutil

    make_data(tmp_path, position=24)
    shutil.rmtree(tmp_path / "log")
    assert run_json(capsys, "verify", str(tmp_path))[0] == 1
    assert run_json(capsys, "repair", str(tmp_path))[0] == 0
    log = FileLog(tmp_path / "log")
    assert log.head("reports") == 24 + RESERVE
    assert list(log.read("reports", 0)) == []
    log.close()


def test_repair_rejected_while_cluster_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_data(tmp_path)
    log = FileLog(tmp_path / "log")
    try:
        assert run(["log", "repair", str(tmp_path)]) == 2
        assert "a cluster runs there; stop it" in capsys.readouterr().err
        log.append("reports", [b"{}"], 1)
        assert run(["log", "verify", str(tmp_path)]) == 0
    finally:
        log.close()


KAFKA = """
[datasets.reports]
fields = { id = "string" }

[cluster]
log = { kafka = "broker.example.org:9092" }
"""


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_find_log_rejects_folders_without_file_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "newsstand.toml").write_text(KAFKA)
    assert run(["log", command, str(tmp_path / "app")]) == 2
    assert "the log is in Kafka (broker.example.org:9092)" in capsys.readouterr().err
    assert run(["log", command, str(tmp_path / "nowhere")]) == 2
    assert "neither an app folder" in capsys.readouterr().err
    make_data(tmp_path / "data")
    assert run(["log", command, str(tmp_path / "data"), "--dataset", "nothing"]) == 2
    assert "has no dataset 'nothing'; one of other, reports" in capsys.readouterr().err


INTERRUPTED = """
import os, shutil, sys
from pathlib import Path
from newsstand.cluster.log.maintenance import find_log, repair_log
template, place = Path(sys.argv[1]), Path(sys.argv[2])
steps = 0
def count(name):
    global steps
    steps += 1
def quiet(total):
    return lambda piece: None
shutil.copytree(template, place / "all")
repair_log(find_log(place / "all"), None, quiet, step=count)
for kill_at in range(1, steps + 1):
    shutil.copytree(template, place / str(kill_at))
    if os.fork() == 0:
        steps = 0
        def kill(name):
            count(name)
            if steps == kill_at:
                os.kill(os.getpid(), 9)
        repair_log(find_log(place / str(kill_at)), None, quiet, step=kill)
        os._exit(0)
    _, status = os.wait()
    assert os.WIFSIGNALED(status), kill_at
print(steps)
"""


def test_repair_killed_at_any_step_is_completed_by_next(tmp_path: Path) -> None:
    template = tmp_path / "template"
    entries = make_data(template, position=30)
    flip(segment_path(template / "log" / "reports", 1), 200 * 8)
    original = {path.name: path.read_bytes() for path in (template / "log" / "reports").iterdir()}
    place = tmp_path / "killed"
    place.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, template, place], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    folders = sorted(place.iterdir())
    assert len(folders) == int(done.stdout) + 1 > 10
    for folder in folders:
        log = None
        try:
            log = FileLog(folder / "log")
            log.verify()
            ends_early = log.head("reports") < 30
            assert not ends_early
        except LogDamage as error:
            assert "newsstand log repair" in str(error)  # noqa: PT017  either of the two may be
        finally:
            if log is not None:
                log.close()
        repair_log(find_log(folder), None, quiet)
        assert all(one.valid for one in verify_log(find_log(folder), None, quiet))
        log = FileLog(folder / "log")
        log.verify()
        assert list(log.read("reports", 0)) == [entry for entry in entries if entry.seq != 4]
        assert log.head("reports") == 30 + RESERVE
        log.close()
        (copy,) = folder.glob("log-before-repair-*/reports")
        assert {path.name: path.read_bytes() for path in copy.iterdir()} == original
        assert copy.with_name("reports.report.json").is_file()
        assert not [path for path in (folder / "log").iterdir() if path.name.startswith(".rep")]


def test_verification_during_appends_finds_no_faults(tmp_path: Path) -> None:
    make_data(tmp_path)
    program = """
import sys, time
from pathlib import Path
from newsstand.cluster.log.files.log import FileLog, FileLogLimits
log = FileLog(Path(sys.argv[1]), FileLogLimits(segment_bytes=5000))
print("begun", flush=True)
for turn in range(10**9):
    log.append("reports", [b'{"n":1}'] * 3, turn, f"turn {turn}")
    time.sleep(0.001)  # where syncing costs nothing the log would grow faster than it is read
"""
    process = subprocess.Popen([sys.executable, "-c", program, tmp_path / "log"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        for _ in range(20):
            verified = verify_log(find_log(tmp_path), "reports", quiet)
            assert [fault for one in verified for fault in one.faults] == []
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
    assert verified[0].end > 24


def test_verification_finds_no_faults_if_segments_begin_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_data(tmp_path)
    log = FileLog(tmp_path / "log", FileLogLimits(segment_bytes=SEGMENT_BYTES))
    log.append("reports", [b"{}"], 1)

    def with_appends(read: Callable[[Path], object]) -> Callable[[Path], object]:
        def reading(folder: Path) -> object:
            found = read(folder)
            for _ in range(20):
                log.append("reports", [b"{}"], 1)
            return found

        return reading

    for name in ("read_head", "parts"):
        monkeypatch.setattr(verification.segments, name, with_appends(getattr(verification.segments, name)))
    (verified,) = verify_log(find_log(tmp_path), "reports", quiet)
    assert verified.faults == []
    assert verified.end > 45
    log.close()


def test_damaged_last_append_without_head_is_not_truncated(tmp_path: Path) -> None:
    entries = make_data(tmp_path)
    folder = tmp_path / "log" / "reports"
    (folder / "head").unlink()
    path = segment_path(folder, segments(folder)[-1])
    flip(path, (path.stat().st_size - 10) * 8)
    log = FileLog(tmp_path / "log")
    with pytest.raises(LogDamage, match=r"after record 22 .* head, .* is missing; .*newsstand log repair"):
        log.append("reports", [b"{}"], 1)
    log.close()
    (done,) = repair_log(find_log(tmp_path), None, quiet)
    assert done.next > len(entries) + RESERVE
    log = FileLog(tmp_path / "log")
    assert log.append("reports", [b"{}"], 1).first == done.next
    log.close()


def test_dry_run_rejected_after_interrupted_repair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_data(tmp_path, position=30)

    class Kill(Exception):
        pass

    def kill(step: str) -> None:
        if step == "take the new folder":
            raise Kill

    with pytest.raises(Kill):
        repair_log(find_log(tmp_path), None, quiet, step=kill)
    assert run(["log", "repair", str(tmp_path), "--dry-run"]) == 2
    assert "a repair was interrupted; run: newsstand log repair" in capsys.readouterr().err
    assert run(["log", "repair", str(tmp_path)]) == 0


def test_verification_logged_when_long(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_data(tmp_path)
    size = segment_path(tmp_path / "log" / "other", 1).stat().st_size
    caplog.set_level("INFO", "newsstand.cluster.log.files.log")
    log = FileLog(tmp_path / "log", FileLogLimits(large_bytes=size + 1))
    log.verify()
    log.close()
    assert not [line for line in caplog.messages if "of other" in line]
    assert [line.split(":")[1][:10] for line in caplog.messages if "of reports" in line] == [
        " verifying",
        " verified ",
    ]
