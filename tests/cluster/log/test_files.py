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
from pyspark.sql import SparkSession
from support.cluster.log_suite import (
    REPORTS,
    DurableLogContract,
    LogContract,
    SparkLogContract,
    expected,
    lines,
    rows,
    segments,
)
from support.environment import small_disk  # noqa: F401
from support.profiles import examples

from newsstand.cluster.log.contract import AppendResult
from newsstand.cluster.log.files import reader as log_reading
from newsstand.cluster.log.files import segments as log_segments
from newsstand.cluster.log.files.log import FileLog, FileLogLimits
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


def test_second_writer_rejected_and_reader_accepted(log: FileLog) -> None:
    log.append("reports", lines(1, 2), 1)
    with pytest.raises(BadInput, match="another process writes this log"):
        FileLog(log.folder)
    reader = FileLog(log.folder, read_only=True)
    assert (reader.head("reports"), numbers(reader)) == (2, [1, 2])
    with pytest.raises(BadInput, match="read-only"):
        reader.append("reports", lines(3, 1), 1)


def test_closed_log_rejects_appends(log: FileLog) -> None:
    log.close()
    with pytest.raises(BadInput, match="closed"):
        log.append("reports", lines(1, 1), 1)


def test_readers_stop_at_head(log: FileLog) -> None:
    log.append("reports", lines(1, 2), 1)
    with (log.folder / "reports" / f"{1:020d}.ndjson").open("ab") as file:
        file.write(log_segments.encode_append(lines(3, 1), 3, 1, None) + b'{"_seq":4,"_a')
    assert numbers(log) == numbers(FileLog(log.folder, read_only=True)) == [1, 2]


def test_log_empty_after_folder_is_deleted(log: FileLog) -> None:
    import shutil

    log.append("reports", lines(1, 2), 1, "k")
    shutil.rmtree(log.folder / "reports")
    assert (log.head("reports"), numbers(log)) == (0, [])
    assert log.append("reports", lines(1, 1), 1, "k") == AppendResult(1, 1)
    assert numbers(log) == [1]


@pytest.mark.parametrize("line", [b"", b"{}\n", b"[1]", b'{"a":1}\n{"b":2}'])
def test_append_rejects_multiple_lines(log: FileLog, line: bytes) -> None:
    with pytest.raises(ValueError, match="one line"):
        log.append("reports", [line], 1)


@pytest.mark.parametrize("key", ["", "x" * 257, "a\nb", "\ud800"])
def test_idempotency_key_rejected_when_invalid(log: FileLog, key: str) -> None:
    with pytest.raises(BadInput, match="idempotency key"):
        log.append("reports", [b"{}"], 1, key)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    widths=st.integers(0, 40_000),
    segment_bytes=st.integers(1, 3000),
    after=st.integers(0, 60),
    until=st.integers(0, 60),
)
@settings(max_examples=examples(40))
def test_read_returns_any_range_of_any_segments(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    widths: int,
    segment_bytes: int,
    after: int,
    until: int,
) -> None:
    log = FileLog(tmp_path_factory.mktemp("log"), FileLogLimits(segment_bytes=segment_bytes))
    try:
        for index, size in enumerate(sizes):
            log.append("reports", [b'{"kind":"%s"}' % (b"x" * (widths * index // 12))] * size, index)
        assert numbers(log, after=after, until=until) == list(range(after + 1, min(until, sum(sizes)) + 1))
    finally:
        log.close()


def test_read_of_one_record_reads_a_fraction_of_the_segment(log: FileLog) -> None:
    log.append("reports", [b'{"kind":"x%d"}' % number for number in range(100_000)], 1)
    head = log_segments.read_head(log.folder / "reports")
    (span,) = log_reading.find_slices(log.folder / "reports", 54_320, 54_321, head)
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
@settings(max_examples=examples(80))
def test_recovery_keeps_exactly_complete_appends(
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
    accepted: list[bytes] = []
    keys: dict[str, AppendResult] = {}

    def is_as_expected(log: FileLog) -> None:
        assert log.head("reports") == len(accepted)
        assert [json.loads(entry.line)["n"] for entry in log.read("reports", 0)] == list(range(len(accepted)))
        for key, answer in keys.items():
            assert log.append("reports", [b"{}"], 1, key) == AppendResult(answer.first, answer.last, repeated=True)

    for run in runs:
        log = FileLog(folder, FileLogLimits(segment_bytes=segment_bytes))
        is_as_expected(log)
        for size, key in run:
            fresh = [b'{"n":%d}' % (len(accepted) + number) for number in range(size)]
            answer = log.append("reports", fresh, 1, key)
            if not answer.repeated:
                accepted += fresh
                if key is not None:
                    keys[key] = answer
        is_as_expected(log)
        log.close()

    firsts = segments(folder / "reports")
    if not firsts:
        return
    segment = log_segments.segment_path(folder / "reports", firsts[-1])
    durable = segment.stat().st_size
    ends, pieces = [], []
    number = len(accepted)
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
            accepted += fresh

    log = FileLog(folder, FileLogLimits(segment_bytes=segment_bytes))
    if head_is_lost and (garbage or there not in (0, *ends)):
        with pytest.raises(LogDamage, match="newsstand log repair"):  # a crash leaves `head`
            log.verify()
        log.close()
        return
    is_as_expected(log)
    complete = [end for end in ends if end <= there]
    assert segment.stat().st_size == durable + (complete[-1] if complete else 0)
    log.close()


def test_recovery_detects_flipped_bit_in_unfinished_append(log: FileLog, reopen: Callable[[], FileLog]) -> None:
    log.append("reports", [b'{"n":1}'], 1)
    head = (log.folder / "reports" / "head").read_bytes()
    log.append("reports", [b'{"n":2}', b'{"n":3}'], 1)
    log.close()
    segment = log.folder / "reports" / f"{1:020d}.ndjson"
    segment.write_bytes(segment.read_bytes().replace(b'"n":2', b'"n":7'))
    (log.folder / "reports" / "head").write_bytes(head)
    assert numbers(reopen()) == [1]


@given(data=st.data())
@settings(max_examples=examples(120))
def test_flipped_bit_is_detected_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = FileLog(folder, FileLogLimits(segment_bytes=400))
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

    log = FileLog(folder, FileLogLimits(segment_bytes=400))
    try:
        assert list(log.read("reports", 0)) == expected_entries
        for number in range(6):
            known = AppendResult(2 * number + 1, 2 * number + 2, repeated=True)
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


def test_recovery_rejects_missing_accepted_records(log: FileLog, reopen: Callable[[], FileLog]) -> None:
    log.append("reports", lines(1, 3), 1)
    log.close()
    segment = log.folder / "reports" / f"{1:020d}.ndjson"
    os.truncate(segment, segment.stat().st_size - 1)
    again = reopen()
    with pytest.raises(BadInput, match=r"records up to 3 were accepted.*newsstand log repair"):
        again.head("reports")


def test_newest_keys_are_remembered_over_segments(tmp_path: Path) -> None:
    log = FileLog(tmp_path, FileLogLimits(segment_bytes=200, remembered_keys=10))
    for number in range(40):
        log.append("reports", [b"{}"], 1, f"key {number}")
    log.close()
    sidecars = sorted((tmp_path / "reports").glob("*.keys"))
    assert len(sidecars) > 5
    sidecars[-1].unlink()
    for _ in range(2):
        log = FileLog(tmp_path, FileLogLimits(segment_bytes=200, remembered_keys=10))
        for number in range(30, 40):
            known = log.append("reports", [b"{}"], 1, f"key {number}")
            assert known == AppendResult(number + 1, number + 1, repeated=True)
        log.close()
    log = FileLog(tmp_path, FileLogLimits(segment_bytes=200, remembered_keys=10))
    assert log.append("reports", [b"{}"], 1, "key 29") == AppendResult(41, 41)
    log.close()


def test_full_disk_rejects_appends_until_space_is_free(small_disk: Path) -> None:  # noqa: F811
    filler = small_disk / "filler"
    filler.write_bytes(bytes(100_000))
    log = FileLog(small_disk / "log", FileLogLimits(segment_bytes=20_000))
    accepted = 0
    try:
        while accepted < 1000:
            accepted = log.append("reports", [b'{"kind":"%s"}' % (b"x" * 1000)] * 3, 1, f"key {accepted}").last
    except NoRoom as error:
        assert "no space" in str(error)  # noqa: PT017  the loop before it must end with it
    assert 30 < accepted < 200, "the disk was never full, or at once"
    assert log.head("reports") == accepted
    assert numbers(log) == list(range(1, accepted + 1))
    assert numbers(FileLog(log.folder, read_only=True)) == numbers(log)
    filler.unlink()
    assert log.append("reports", lines(1, 1), 1, f"key {accepted}") == AppendResult(accepted + 1, accepted + 1)
    log.close()
    log = FileLog(small_disk / "log", FileLogLimits(segment_bytes=20_000))
    assert numbers(log) == list(range(1, accepted + 2))
    log.close()


def test_file_size_limit_rejects_appends_like_full_disk(tmp_path: Path) -> None:
    program = """
import resource, sys
from pathlib import Path
from newsstand.cluster.log.files.log import FileLog, FileLogLimits
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
from newsstand.cluster.log.files.log import FileLog, FileLogLimits
log = FileLog(Path(sys.argv[1]), FileLogLimits(segment_bytes=50_000))
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


def test_acknowledged_records_survive_sigkill(tmp_path: Path) -> None:
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

        log = FileLog(tmp_path / "log", FileLogLimits(segment_bytes=50_000))
        kinds = [json.loads(entry.line)["kind"] for entry in log.read("reports", 0)]
        assert numbers(log) == list(range(1, len(kinds) + 1))
        sizes: dict[str, int] = {}
        for kind in kinds:
            sizes[kind] = sizes.get(kind, 0) + 1
        assert all(size == 1 + int(kind.rpartition("/")[2]) % 4 for kind, size in sizes.items())
        for name, (first, last) in acknowledged.items():
            assert kinds[first - 1 : last] == [name] * (last - first + 1)
            assert log.append("reports", [b"{}"], 1, name) == AppendResult(first, last, repeated=True)
        log.close()
    assert len(acknowledged) > 100


def test_frame_read_by_spark_when_large(tmp_path: Path, spark: SparkSession) -> None:
    log = FileLog(tmp_path / "a folder {with} [odd] *name*", FileLogLimits(segment_bytes=500, driver_bytes=0))
    for first in range(1, 22, 3):
        log.append("reports", lines(first, 3), 1_700_000_000_123)
    segment = log_segments.segment_path(log.folder / "reports", segments(log.folder / "reports")[-1])
    with segment.open("ab") as file:
        file.write(b'{"_seq":22,"_at":5,"id":22,"kind":"not durable"}\n{"_seq":23,"_at"')
    assert rows(log.frame(spark, REPORTS, 2, 99)) == expected(log, spark, 2, 21)
    assert len(segments(log.folder / "reports")) > 3
    log.close()


def test_spark_task_fails_when_records_are_missing(tmp_path: Path) -> None:
    from newsstand.cluster.log.files.log import LogReader, RecordRange

    log = FileLog(tmp_path)
    log.append("reports", lines(1, 5), 1)
    reader = LogReader(tmp_path / "reports", REPORTS, 0, 10, 2)
    assert sum(batch.num_rows for batch in reader.read(RecordRange(1, 5))) == 4
    with pytest.raises(BadInput, match="only 2 of the records 4 to 6"):
        list(reader.read(RecordRange(3, 6)))
    log.close()


@given(after=st.integers(0, 10**6), count=st.integers(0, 10**6), tasks=st.integers(1, 16))
def test_spark_tasks_are_adjacent_and_large_enough(after: int, count: int, tasks: int) -> None:
    from newsstand.cluster.log.files.log import MIN_TASK_RECORDS, LogReader

    cuts = LogReader(Path("nowhere"), REPORTS, after, after + count, tasks).partitions()
    assert len(cuts) <= tasks
    assert [number for cut in cuts for number in (cut.after, cut.until)][1:-1:2] == [cut.after for cut in cuts][1:]
    assert sum(cut.until - cut.after for cut in cuts) == count
    assert len(cuts) == 1 or all(cut.until - cut.after >= MIN_TASK_RECORDS for cut in cuts)
