"""Where records lie in the segments of a log, and how they are read; every line is checked.

Within a segment a record is found by bisection, since lines carry their numbers: no index, and no state to share.
A damaged number may lead to the wrong place; so what is read must begin and end with the records asked for.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from newsstand.cluster.log import Entry
from newsstand.cluster.log_segments import (
    LINE,
    NUMBER,
    Head,
    damage,
    is_sound,
    part_path,
    parts,
    segment_path,
)

CHUNK = 4 * 2**20
"""About so many bytes of lines are read at a time."""


@dataclass(frozen=True)
class Span:
    """The records with after < seq <= until in the bytes from `begin` to before `end` of a segment."""

    path: Path
    begin: int
    end: int
    after: int
    until: int


def spans(folder: Path, after: int, until: int, head: Head | None) -> list[Span]:
    """Where the records with after < seq <= until lie, as far as they are durable; gaps are left out."""
    after = max(0, after)
    if head is None or after >= min(until, head.seq):
        return []
    until = min(until, head.seq)
    known = [part for part in parts(folder) if part.first <= head.segment]
    if not known or known[-1].first != head.segment or known[-1].is_gap:
        raise damage(segment_path(folder, head.segment), 0, "the file is missing")
    firsts = [part.first for part in known]
    place = max(0, bisect_right(firsts, after + 1) - 1)
    if firsts[place] > after + 1:
        raise damage(
            part_path(folder, known[place]), 0, f"records {after + 1} to {firsts[place] - 1} are missing before it"
        )
    found = []
    for part, following in zip(known[place:], [*firsts[place + 1 :], head.seq + 1], strict=True):
        if part.first > until:
            break
        path = part_path(folder, part)
        if part.last is not None:
            if part.last != following - 1:
                raise damage(path, 0, f"records {part.last + 1} to {following - 1} are missing after it")
            continue
        with path.open("rb", buffering=0) as file:
            descriptor = file.fileno()
            size = head.byte if part.first == head.segment else os.fstat(descriptor).st_size
            begin = _find(path, descriptor, size, after + 1) if part.first <= after else 0
            end = _find(path, descriptor, size, until + 1) if until + 1 < following else size
        found.append(Span(path, begin, end, max(after, part.first - 1), min(until, following - 1)))
    return found


def chunks(found: Sequence[Span]) -> Iterator[bytes]:
    """The lines of these spans, many at a time, each checked; raise `LogDamage` for all that is not sound."""
    for span in found:
        number, begin = span.after, span.begin
        with span.path.open("rb", buffering=0) as file:
            for chunk in _whole_lines(span.path, file.fileno(), span.begin, span.end):
                _check(span.path, begin, chunk, number, span.until)
                number += chunk.count(b"\n")
                begin += len(chunk)
                yield chunk
        if number < span.until:
            raise damage(span.path, span.end, f"records {number + 1} to {span.until} are missing here")


def _check(path: Path, begin: int, chunk: bytes, seq: int, until: int) -> None:
    """Check each line, and that their numbers go on from `seq`."""
    for line in chunk.split(b"\n")[:-1]:
        if not is_sound(line):
            raise damage(path, begin, "the line does not match its checksum")
        known = NUMBER.match(line)
        number = int(known[1]) if known else -1
        if number != seq + 1 or number > until:
            raise damage(path, begin, f"record {number} stands where {min(seq, until) + 1} belongs")
        seq, begin = number, begin + len(line) + 1


def entries(found: Sequence[Span]) -> Iterator[Entry]:
    """The records of these spans one by one, without what only the log needs to know."""
    for chunk in chunks(found):
        for line in chunk.split(b"\n")[:-1]:
            known = LINE.fullmatch(line)
            assert known is not None, "chunks has checked it"
            yield Entry(int(known["seq"]), int(known["at"]), b'{"_at":%b%b}' % (known["at"], known["rest"]))


def _whole_lines(path: Path, descriptor: int, begin: int, end: int) -> Iterator[bytes]:
    pending: list[bytes] = []
    while begin < end:
        data = os.pread(descriptor, min(CHUNK, end - begin), begin)
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
        raise damage(path, end - sum(map(len, pending)), "the line has no end")


def _find(path: Path, descriptor: int, size: int, seq: int) -> int:
    """Where the line of record `seq` begins in a segment of `size` bytes; `size` if it is not in there."""
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
    """The first beginning of a line at or after `position`; `limit` if there is none before it."""
    position -= 1  # a line begins after the end of another
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
    known = NUMBER.match(os.pread(descriptor, 60, position))
    if known is None:
        raise damage(path, position, "no line of a record begins here")
    return int(known[1])
