from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_suite import REPORTS, DurableLogContract, LogContract, SparkLogContract, expected, lines, rows
from pyspark.sql import SparkSession

from newsstand.cluster import log_files, log_reading, log_segments
from newsstand.cluster.log import Appended
from newsstand.cluster.log_files import FileLog
from newsstand.errors import BadInput, LogDamage, NoRoom


class TestFileLog(LogContract):
    pass


class TestFileLogReopened(DurableLogContract):
    pass


class TestFileLogOnSpark(SparkLogContract):
    pass


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[list[FileLog]]:
    logs = [FileLog(tmp_path / "log")]
    yield logs
    logs[-1].close()


@pytest.fixture
def log(opened: list[FileLog]) -> FileLog:
    return opened[-1]


@pytest.fixture
def reopen(opened: list[FileLog]) -> Callable[[], FileLog]:
    def again() -> FileLog:
        opened[-1].close()
        opened.append(FileLog(opened[-1].folder))
        return opened[-1]

    return again


def numbers(log: FileLog, dataset: str = "reports", after: int = 0, until: int | None = None) -> list[int]:
    return [entry.seq for entry in log.read(dataset, after, until)]


def test_a_second_writer_is_refused_and_a_reader_is_not(log: FileLog) -> None:
    log.append("reports", lines(1, 2), 1)
    with pytest.raises(BadInput, match="another process writes this log"):
        FileLog(log.folder)
    reader = FileLog(log.folder, read_only=True)
    assert (reader.head("reports"), numbers(reader)) == (2, [1, 2])
    with pytest.raises(BadInput, match="read-only"):
        reader.append("reports", lines(3, 1), 1)


def test_a_closed_log_takes_nothing(log: FileLog) -> None:
    log.close()
    with pytest.raises(BadInput, match="closed"):
        log.append("reports", lines(1, 1), 1)


def test_readers_do_not_go_beyond_the_head(log: FileLog) -> None:
    log.append("reports", lines(1, 2), 1)
    with (log.folder / "reports" / f"{1:020d}.ndjson").open("ab") as file:
        file.write(log_segments.encode_append(lines(3, 1), 3, 1, None) + b'{"_seq":4,"_a')
    assert numbers(log) == numbers(FileLog(log.folder, read_only=True)) == [1, 2]


def test_a_deleted_folder_is_an_empty_log(log: FileLog) -> None:
    import shutil

    log.append("reports", lines(1, 2), 1, "k")
    shutil.rmtree(log.folder / "reports")
    assert (log.head("reports"), numbers(log)) == (0, [])
    assert log.append("reports", lines(1, 1), 1, "k") == Appended(1, 1)
    assert numbers(log) == [1]


@pytest.mark.parametrize("line", [b"", b"{}\n", b"[1]", b'{"a":1}\n{"b":2}'])
def test_what_is_not_one_line_is_not_taken(log: FileLog, line: bytes) -> None:
    with pytest.raises(ValueError, match="one line"):
        log.append("reports", [line], 1)


@pytest.mark.parametrize("key", ["", "x" * 257, "a\nb", "\ud800"])
def test_a_bad_key_is_refused(log: FileLog, key: str) -> None:
    with pytest.raises(BadInput, match="idempotency key"):
        log.append("reports", [b"{}"], 1, key)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    widths=st.integers(0, 40_000),
    segment_bytes=st.integers(1, 3000),
    after=st.integers(0, 60),
    until=st.integers(0, 60),
)
@settings(max_examples=40, deadline=None)
def test_any_range_is_found_in_any_segments(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    widths: int,
    segment_bytes: int,
    after: int,
    until: int,
) -> None:
    log = FileLog(tmp_path_factory.mktemp("log"), segment_bytes=segment_bytes)
    try:
        for index, size in enumerate(sizes):
            log.append("reports", [b'{"kind":"%s"}' % (b"x" * (widths * index // 12))] * size, index)
        assert numbers(log, after=after, until=until) == list(range(after + 1, min(until, sum(sizes)) + 1))
    finally:
        log.close()


def test_one_record_far_back_is_found_without_reading_the_segment(log: FileLog) -> None:
    log.append("reports", [b'{"kind":"x%d"}' % number for number in range(100_000)], 1)
    head = log_segments.read_head(log.folder / "reports")
    (span,) = log_reading.spans(log.folder / "reports", 54_320, 54_321, head)
    assert span.end - span.begin < 150
    assert [json.loads(entry.line)["kind"] for entry in log.read("reports", 54_320, 54_321)] == ["x54320"]


appends = st.tuples(st.integers(1, 4), st.one_of(st.none(), st.sampled_from(["a", "b", 'c"\\', "é", "d"])))


@given(
    runs=st.lists(st.lists(appends, max_size=5), min_size=1, max_size=4),
    segment_bytes=st.integers(1, 800),
    torn=st.lists(appends, min_size=1, max_size=3),
    cut=st.floats(0, 1),
    garbage=st.binary(max_size=30),
    head_is_lost=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_after_any_crash_exactly_the_whole_appends_are_there(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[list[tuple[int, str | None]]],
    segment_bytes: int,
    torn: list[tuple[int, str | None]],
    cut: float,
    garbage: bytes,
    head_is_lost: bool,
) -> None:
    """Acknowledged appends, then others of which the disk got the bytes up to any one, and then garbage."""
    folder = tmp_path_factory.mktemp("log")
    kept: list[bytes] = []
    keys: dict[str, Appended] = {}

    def is_as_expected(log: FileLog) -> None:
        assert log.head("reports") == len(kept)
        assert [json.loads(entry.line)["n"] for entry in log.read("reports", 0)] == list(range(len(kept)))
        for key, answer in keys.items():
            assert log.append("reports", [b"{}"], 1, key) == Appended(answer.first, answer.last, repeated=True)

    for run in runs:
        log = FileLog(folder, segment_bytes=segment_bytes)
        is_as_expected(log)
        for size, key in run:
            fresh = [b'{"n":%d}' % (len(kept) + number) for number in range(size)]
            answer = log.append("reports", fresh, 1, key)
            if not answer.repeated:
                kept += fresh
                if key is not None:
                    keys[key] = answer
        is_as_expected(log)
        log.close()

    segments = log_segments.segments(folder / "reports")
    if not segments:
        return
    segment = log_segments.segment_path(folder / "reports", segments[-1])
    durable = segment.stat().st_size
    ends, pieces = [], []
    number = len(kept)
    for size, _ in torn:
        fresh = [b'{"n":%d}' % (number + offset) for offset in range(size)]
        pieces.append((fresh, log_segments.encode_append(fresh, number + 1, 1, None)))
        number += size
        ends.append(sum(len(encoded) for _, encoded in pieces))
    tail = b"".join(encoded for _, encoded in pieces)
    there = round(cut * len(tail))
    segment.write_bytes(segment.read_bytes() + tail[:there] + garbage)
    if head_is_lost:
        (folder / "reports" / "head").unlink()
    if there < len(tail) and garbage[:1] == tail[there : there + 1]:
        return  # the garbage may be the rest of the append
    for (fresh, _), end in zip(pieces, ends, strict=True):
        if end <= there:
            kept += fresh

    log = FileLog(folder, segment_bytes=segment_bytes)
    if head_is_lost and (garbage or there not in (0, *ends)):
        with pytest.raises(LogDamage, match="newsstand log repair"):  # a crash leaves `head`
            log.verify()
        log.close()
        return
    is_as_expected(log)
    whole = [end for end in ends if end <= there]
    assert segment.stat().st_size == durable + (whole[-1] if whole else 0)
    log.close()


def test_a_flipped_bit_in_an_unfinished_append_is_noticed(log: FileLog, reopen: Callable[[], FileLog]) -> None:
    log.append("reports", [b'{"n":1}'], 1)
    head = (log.folder / "reports" / "head").read_bytes()
    log.append("reports", [b'{"n":2}', b'{"n":3}'], 1)
    log.close()
    segment = log.folder / "reports" / f"{1:020d}.ndjson"
    segment.write_bytes(segment.read_bytes().replace(b'"n":2', b'"n":7'))
    (log.folder / "reports" / "head").write_bytes(head)
    assert numbers(reopen()) == [1]


@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_a_flipped_bit_anywhere_is_detected_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = FileLog(folder, segment_bytes=400)
    for number in range(6):
        log.append(
            "reports", [b'{"n":%d}' % (2 * number + offset) for offset in (0, 1)], 1, f"key {number}", "gate"
        )
    expected_entries = list(log.read("reports", 0))
    log.close()
    files = sorted(path for path in (folder / "reports").iterdir() if path.stat().st_size)
    file = data.draw(st.sampled_from(files))
    content = bytearray(file.read_bytes())
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)

    log = FileLog(folder, segment_bytes=400)
    try:
        assert list(log.read("reports", 0)) == expected_entries
        for number in range(6):
            known = Appended(2 * number + 1, 2 * number + 2, repeated=True)
            assert log.append("reports", [b"{}"], 1, f"key {number}", "gate") == known
    except BadInput as error:
        detected = str(error)
        if not (str(folder / "reports") in detected and "byte" in detected and "newsstand log repair" in detected):
            raise
    finally:
        log.close()
    for path in (folder / "reports").iterdir():
        if path.suffix == ".ndjson" and path != file:
            assert path.stat().st_size, "nothing is cut off"


def test_a_key_belongs_to_its_publisher(log: FileLog, reopen: Callable[[], FileLog]) -> None:
    assert log.append("reports", lines(1, 2), 1, "k", "gate") == Appended(1, 2)
    assert log.append("reports", lines(3, 1), 1, "k", "port") == Appended(3, 3)
    again = reopen()
    assert again.append("reports", lines(9, 1), 1, "k", "gate") == Appended(1, 2, repeated=True)
    assert again.append("reports", lines(9, 1), 1, "k", "port") == Appended(3, 3, repeated=True)


def test_a_log_of_an_older_version_is_read_and_its_keys_are_known(tmp_path: Path) -> None:
    import zlib

    folder = tmp_path / "reports"
    folder.mkdir()
    checksum = zlib.crc32(b'{"n":1}\n{"n":2}')
    old = b'{"_seq":1,"_at":5,"n":1}\n{"_seq":2,"_at":5,"_end":1,"_sum":%d,"_key":"k","n":2}\n' % checksum
    (folder / f"{1:020d}.ndjson").write_bytes(old)
    log = FileLog(tmp_path)
    assert log.append("reports", [b"{}"], 1, "k", "gate") == Appended(1, 2, repeated=True)
    assert log.append("reports", [b'{"n":3}'], 6, "k2", "gate") == Appended(3, 3)
    assert [json.loads(entry.line)["n"] for entry in log.read("reports", 0)] == [1, 2, 3]
    log.close()


def test_accepted_records_that_are_gone_are_not_passed_over(log: FileLog, reopen: Callable[[], FileLog]) -> None:
    log.append("reports", lines(1, 3), 1)
    log.close()
    segment = log.folder / "reports" / f"{1:020d}.ndjson"
    os.truncate(segment, segment.stat().st_size - 1)
    again = reopen()
    with pytest.raises(BadInput, match=r"records up to 3 were accepted.*newsstand log repair"):
        again.head("reports")


def test_keys_are_remembered_over_segments_and_only_the_newest(tmp_path: Path) -> None:
    log = FileLog(tmp_path, segment_bytes=200, remembered_keys=10)
    for number in range(40):
        log.append("reports", [b"{}"], 1, f"key {number}")
    log.close()
    sidecars = sorted((tmp_path / "reports").glob("*.keys"))
    assert len(sidecars) > 5
    sidecars[-1].unlink()
    for _ in range(2):
        log = FileLog(tmp_path, segment_bytes=200, remembered_keys=10)
        for number in range(30, 40):
            known = log.append("reports", [b"{}"], 1, f"key {number}")
            assert known == Appended(number + 1, number + 1, repeated=True)
        log.close()
    log = FileLog(tmp_path, segment_bytes=200, remembered_keys=10)
    assert log.append("reports", [b"{}"], 1, "key 29") == Appended(41, 41)
    log.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "newsstand-test", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small tmpfs here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_takes_nothing_harms_nothing_and_works_again_with_room(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(100_000))
    log = FileLog(small_disk / "log", segment_bytes=20_000)
    accepted = 0
    try:
        while accepted < 1000:
            accepted = log.append("reports", [b'{"kind":"%s"}' % (b"x" * 1000)] * 3, 1, f"key {accepted}").last
    except NoRoom as error:
        assert "no room" in str(error)  # noqa: PT017  the loop before it must end with it
    assert 30 < accepted < 200, "the disk was never full, or at once"
    assert log.head("reports") == accepted
    assert numbers(log) == list(range(1, accepted + 1))
    assert numbers(FileLog(log.folder, read_only=True)) == numbers(log)
    filler.unlink()
    assert log.append("reports", lines(1, 1), 1, f"key {accepted}") == Appended(accepted + 1, accepted + 1)
    log.close()
    log = FileLog(small_disk / "log", segment_bytes=20_000)
    assert numbers(log) == list(range(1, accepted + 2))
    log.close()


def test_the_largest_file_allowed_is_a_full_disk_too(tmp_path: Path) -> None:
    program = """
import resource, sys
from pathlib import Path
from newsstand.cluster.log_files import FileLog
from newsstand.errors import NoRoom
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
log = FileLog(Path(sys.argv[1]))
log.append("reports", [b'{"kind":"a"}'], 1)
try:
    log.append("reports", [b'{"kind":"%s"}' % (b"x" * 8000)], 1)
except NoRoom:
    print(log.append("reports", [b'{"kind":"b"}'], 1).last)
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"
    log = FileLog(tmp_path)
    assert [json.loads(entry.line)["kind"] for entry in log.read("reports", 0)] == ["a", "b"]
    log.close()


KILLED = """
import sys, threading
from pathlib import Path
from newsstand.cluster.log_files import FileLog
log = FileLog(Path(sys.argv[1]), segment_bytes=50_000)
run = sys.argv[2]
def work(worker):
    for turn in range(100_000):
        name = f"{run}/{worker}/{turn}"
        answer = log.append("reports", [b'{"kind":"%s"}' % name.encode()] * (1 + turn % 4), turn, name)
        sys.stdout.write(f"{name} {answer.first} {answer.last}\\n")
        sys.stdout.flush()
for worker in range(8):
    threading.Thread(target=work, args=(worker,)).start()
"""


def test_what_was_acknowledged_survives_sigkill_under_load(tmp_path: Path) -> None:
    pauses = random.Random(7)
    acknowledged: dict[str, tuple[int, int]] = {}
    for run in range(4):
        output = tmp_path / f"output {run}"
        with output.open("w") as file:
            process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path / "log", str(run)], stdout=file)
            deadline = time.monotonic() + 60
            while output.stat().st_size < 2000 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(pauses.uniform(0, 0.3))
            process.send_signal(signal.SIGKILL)
            process.wait()
        for line in output.read_text().rpartition("\n")[0].splitlines():
            name, first, last = line.split()
            acknowledged[name] = (int(first), int(last))

        log = FileLog(tmp_path / "log", segment_bytes=50_000)
        kinds = [json.loads(entry.line)["kind"] for entry in log.read("reports", 0)]
        assert numbers(log) == list(range(1, len(kinds) + 1))
        sizes: dict[str, int] = {}
        for kind in kinds:
            sizes[kind] = sizes.get(kind, 0) + 1
        assert all(size == 1 + int(kind.rpartition("/")[2]) % 4 for kind, size in sizes.items())
        for name, (first, last) in acknowledged.items():
            assert kinds[first - 1 : last] == [name] * (last - first + 1)
            assert log.append("reports", [b"{}"], 1, name) == Appended(first, last, repeated=True)
        log.close()
    assert len(acknowledged) > 100


def test_a_large_frame_is_read_by_spark_itself(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "SHIPPED", 0)
    log = FileLog(tmp_path / "a folder {with} [odd] *name*", segment_bytes=500)
    for first in range(1, 22, 3):
        log.append("reports", lines(first, 3), 1_700_000_000_123)
    segment = log_segments.segment_path(log.folder / "reports", log_segments.segments(log.folder / "reports")[-1])
    with segment.open("ab") as file:
        file.write(b'{"_seq":22,"_at":5,"id":22,"kind":"not durable"}\n{"_seq":23,"_at"')
    assert rows(log.frame(spark, REPORTS, 2, 99)) == expected(log, spark, 2, 21)
    assert len(log_segments.segments(log.folder / "reports")) > 3
    log.close()


def test_a_task_that_sees_less_than_was_promised_fails(tmp_path: Path) -> None:
    from newsstand.cluster.log_source import LogStreamReader, Numbers

    log = FileLog(tmp_path)
    log.append("reports", lines(1, 5), 1)
    reader = LogStreamReader(tmp_path / "reports", REPORTS, 0, 10, 2)
    assert sum(batch.num_rows for batch in reader.read(Numbers(1, 5))) == 4
    with pytest.raises(BadInput, match="only 2 of the records 4 to 6"):
        list(reader.read(Numbers(3, 6)))
    log.close()


@given(after=st.integers(0, 10**6), count=st.integers(0, 10**6), tasks=st.integers(1, 16))
@settings(deadline=None)
def test_tasks_are_adjacent_and_not_too_small(after: int, count: int, tasks: int) -> None:
    from newsstand.cluster.log_source import FEWEST, LogStreamReader

    reader = LogStreamReader(Path("nowhere"), REPORTS, 0, 10, tasks)
    cuts = reader.partitions({"seq": after}, {"seq": after + count})
    assert len(cuts) <= tasks
    assert [number for cut in cuts for number in (cut.after, cut.until)][1:-1:2] == [cut.after for cut in cuts][1:]
    assert sum(cut.until - cut.after for cut in cuts) == count
    assert len(cuts) == 1 or all(cut.until - cut.after >= FEWEST for cut in cuts)
