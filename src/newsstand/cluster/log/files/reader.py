"""Finding and reading records in the segments of a log; every line is verified.

Within a segment a record is found by bisection over the numbers in the lines: there is no index, and no shared
state. A damaged number may lead to a wrong position, so a slice must begin and end with the expected records.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from newsstand.cluster.log.contract import LogEntry
from newsstand.cluster.log.files.segments import LINE, NUMBER, Head, damage, is_valid, parts, segment_path

CHUNK_BYTES = 4 * 2**20
"""Bytes that are read at a time."""


@dataclass(frozen=True)
class SegmentSlice:
    """The records with after < seq <= until in the bytes from `begin` to before `end` of a segment."""

    path: Path
    begin: int
    end: int
    after: int
    until: int


def find_slices(folder: Path, after: int, until: int, head: Head) -> list[SegmentSlice]:
    """Return the slices of segments with the durable records after < seq <= until; gaps are left out."""
    after, until = max(0, after), min(until, head.seq)
    if after >= until:
        return []
    files = [part for part in parts(folder) if part.first <= head.segment]
    if not files or files[-1].path != segment_path(folder, head.segment):
        raise damage(segment_path(folder, head.segment), 0, "the file is missing")
    firsts = [part.first for part in files]
    place = max(0, bisect_right(firsts, after + 1) - 1)
    if firsts[place] > after + 1:
        raise damage(files[place].path, 0, f"records {after + 1} to {firsts[place] - 1} are missing before it")
    found = []
    for part, following in zip(files[place:], [*firsts[place + 1 :], head.seq + 1], strict=True):
        if part.first > until:
            break
        path = part.path
        if part.last is not None:
            if part.last != following - 1:
                raise damage(path, 0, f"records {part.last + 1} to {following - 1} are missing after it")
            continue
        with path.open("rb", buffering=0) as file:
            descriptor = file.fileno()
            size = head.byte if part.first == head.segment else os.fstat(descriptor).st_size
            begin = _find(path, descriptor, size, after + 1) if part.first <= after else 0
            end = _find(path, descriptor, size, until + 1) if until + 1 < following else size
        found.append(SegmentSlice(path, begin, end, max(after, part.first - 1), min(until, following - 1)))
    return found


def read_chunks(slices: Sequence[SegmentSlice]) -> Iterator[bytes]:
    """Yield the lines of slices in chunks of complete lines, verified; raise `LogDamage`."""
    for span in slices:
        number, begin = span.after, span.begin
        with span.path.open("rb", buffering=0) as file:
            for chunk in _complete_lines(span.path, file.fileno(), span.begin, span.end):
                _check(span.path, begin, chunk, number, span.until)
                number += chunk.count(b"\n")
                begin += len(chunk)
                yield chunk
        if number < span.until:
            raise damage(span.path, span.end, f"records {number + 1} to {span.until} are missing here")


def _check(path: Path, begin: int, chunk: bytes, seq: int, until: int) -> None:
    """Verify each line, and that the numbers continue from `seq`."""
    for line in chunk.split(b"\n")[:-1]:
        if not is_valid(line):
            raise damage(path, begin, "the line does not match its checksum")
        match = NUMBER.match(line)
        number = int(match[1]) if match else -1
        if number != seq + 1 or number > until:
            raise damage(path, begin, f"record {number} is at the place of record {min(seq, until) + 1}")
        seq, begin = number, begin + len(line) + 1


def read_entries(slices: Sequence[SegmentSlice]) -> Iterator[LogEntry]:
    """Yield the records of slices, without the fields that are internal to the log."""
    for chunk in read_chunks(slices):
        for line in chunk.split(b"\n")[:-1]:
            match = LINE.fullmatch(line)
            assert match is not None, "read_chunks has verified it"
            yield LogEntry(int(match["seq"]), int(match["at"]), b'{"_at":%b%b}' % (match["at"], match["rest"]))


def _complete_lines(path: Path, descriptor: int, begin: int, end: int) -> Iterator[bytes]:
    pending: list[bytes] = []
    while begin < end:
        data = os.pread(descriptor, min(CHUNK_BYTES, end - begin), begin)
        if not data:
            raise damage(path, begin, f"the segment ends before its durable end, byte {end}")
        begin += len(data)
        cut = data.rfind(b"\n") + 1
        if cut:
            yield b"".join([*pending, data[:cut]])
            pending = []
        if cut < len(data):
            pending.append(data[cut:])
    if pending:
        raise damage(path, end - sum(map(len, pending)), "the line has no line feed")


def _find(path: Path, descriptor: int, size: int, seq: int) -> int:
    """Return the position of record `seq` in a segment of `size` bytes; `size` if it is not there."""
    low, high = 0, size
    while high - low > 2**15:
        middle = (low + high) // 2
        begin = _line_start(descriptor, middle, high)
        if begin < high and _number(path, descriptor, begin) <= seq:
            low = begin
        else:
            high = middle
    skip = seq - _number(path, descriptor, low) if low < size else 0
    while skip > 0 and low < size:
        data = os.pread(descriptor, min(2**15, size - low), low)
        ends = data.count(b"\n")
        if ends >= skip or not data:
            cut = 0
            for _ in range(skip):
                cut = data.find(b"\n", cut) + 1
            return low + cut
        skip -= ends
        low += len(data)
    return low


def _line_start(descriptor: int, position: int, limit: int) -> int:
    """Return the first beginning of a line at or after `position`; `limit` if there is none before it."""
    position -= 1  # a line begins after another's line feed
    while position < limit:
        data = os.pread(descriptor, 2**13, position)
        end = data.find(b"\n")
        if end >= 0:
            return min(limit, position + end + 1)
        if not data:
            break
        position += len(data)
    return limit


def _number(path: Path, descriptor: int, position: int) -> int:
    match = NUMBER.match(os.pread(descriptor, 60, position))
    if match is None:
        raise damage(path, position, "not the beginning of a line")
    return int(match[1])
