"""How the log of one dataset lies in its folder; what writers, readers and Spark's executors know in common.

Segments are files of lines, named after the number of their first record. A line is the record with its number and
time in front: `{"_crc":"1c291ca3","_seq":7,"_at":1700000000000,"id":"a"}`. `_crc` is the CRC-32 of all that
follows it in the line; every reader checks it. The last line of an append also has `_end`, the number of the
append's first record, `_key`, its idempotency key if it has one, and `_by`, the publisher whose key it is. Lines
of older versions have no `_crc`; there `_sum` in the last line of an append is a checksum of its records.

The file `head` tells how far the log is durable. Readers never go beyond it, so they see whole appends only. It is
overwritten in place after each append and not synced: after a power loss it may be behind, and then a writer finds
the true end by the checksums.

Within a segment a record is found by bisection, since lines carry their numbers: no index, and no state to share.
"""

from __future__ import annotations

import mmap
import os
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from newsstand.cluster.log import Entry
from newsstand.errors import LogDamage

CHUNK = 4 * 2**20
"""About so many bytes of lines are read at a time."""

_NAME = re.compile(r"(\d{20})\.ndjson")
_LINE = re.compile(
    rb'\{(?P<crc>"_crc":"[0-9a-f]{8}",)?"_seq":(?P<seq>\d+),"_at":(?P<at>-?\d+)'
    rb'(?:,"_end":(?P<end>\d+)(?:,"_sum":(?P<sum>\d+))?'
    rb'(?:,"_key":(?P<key>"(?:[^"\\]|\\.)*")(?:,"_by":(?P<by>"(?:[^"\\]|\\.)*"))?)?)?'
    rb"(?P<rest>,.*|)\}",
    re.DOTALL,
)
_NUMBER = re.compile(rb'\{(?:"_crc":"[0-9a-f]{8}",)?"_seq":(\d+),')
_HEAD = re.compile(rb"(\d{20}) (\d{20}) (\d{20}) (\d{10})\n")


@dataclass(frozen=True)
class Head:
    """How far a log is durable: up to record `seq`, which ends before `byte` of the segment `segment`."""

    segment: int
    byte: int
    seq: int


@dataclass(frozen=True)
class Keyed:
    """The numbers that an append with an idempotency key got."""

    key: str
    first: int
    last: int
    publisher: str | None = None


def segment_path(folder: Path, first: int) -> Path:
    """The segment whose first record has that number."""
    return folder / f"{first:020d}.ndjson"


def segments(folder: Path) -> list[int]:
    """The first numbers of all segments, in order; none if there is no folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(known[1]) for known in map(_NAME.fullmatch, names) if known)


# Head


def encode_head(head: Head) -> bytes:
    """What the file `head` has; always of one length."""
    text = b"%020d %020d %020d" % (head.segment, head.byte, head.seq)
    return text + b" %010d\n" % zlib.crc32(text)


def read_head(folder: Path) -> Head | None:
    """How far the log in a folder is durable; None if there is no log. Raise `LogDamage` if `head` is damaged."""
    path = folder / "head"
    for _ in range(100):  # it may be read in the middle of being overwritten
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        known = _HEAD.fullmatch(data)
        if known and int(known[4]) == zlib.crc32(data[:62]):
            return Head(int(known[1]), int(known[2]), int(known[3]))
    raise damage(path, 0, "its checksum does not match")


def damage(path: Path, byte: int, what: str) -> LogDamage:
    """The error for a damaged file of the log."""
    return LogDamage(f"{path}, byte {byte}: {what}; stop the cluster and restore the log's folder from a copy")


# Writing and checking


def encode_append(
    lines: Sequence[bytes], first: int, at_ms: int, key: str | None, publisher: str | None = None
) -> bytes:
    """The bytes of one append: records with what the log adds to them."""
    at = b',"_at":%d' % at_ms
    extra = b',"_end":%d' % first
    if key is not None:
        extra += b',"_key":' + msgspec.json.encode(key)
        if publisher is not None:
            extra += b',"_by":' + msgspec.json.encode(publisher)
    last = first + len(lines) - 1
    return b"".join(
        _sealed(b'"_seq":%d%b%b%b%b' % (seq, at, extra if seq == last else b"", b"," * (len(line) > 2), line[1:]))
        for seq, line in enumerate(lines, first)
    )


def _sealed(rest: bytes) -> bytes:
    rest = b"," + rest
    return b'{"_crc":"%08x"%b\n' % (zlib.crc32(rest), rest)


def is_sound(line: bytes) -> bool:
    """Whether a line, without its end, has the checksum that it says; an old line has none of its own."""
    if line[:2] == b'{"' and line[2:7] == b'_seq"':
        return _LINE.fullmatch(line) is not None
    return line[:18] == b'{"_crc":"%08x"' % zlib.crc32(line[18:])


def parse_line(line: bytes) -> re.Match[bytes] | None:
    """The parts of a sound line; None if the line is damaged."""
    return _LINE.fullmatch(line) if is_sound(line) else None


def sound_end(
    data: bytes | mmap.mmap, byte: int, seq: int, found: list[Keyed] | None = None, limit: int | None = None
) -> tuple[int, int]:
    """How far whole appends go on in a segment after record `seq`, which ends before `byte`: the new two.

    Their idempotency keys go to `found`.
    """
    records: list[bytes] = []
    position, number = byte, seq
    while limit is None or position < limit:
        end = data.find(b"\n", position)
        line = parse_line(data[position:end]) if end >= 0 else None
        if line is None or int(line["seq"]) != number + 1:
            return byte, seq
        if line["crc"] is None:
            records.append(b"{" + line["rest"][1:] + b"}")
        position, number = end + 1, number + 1
        if line["end"] is not None:
            if int(line["end"]) != seq + 1 or (
                line["crc"] is None and int(line["sum"] or -1) != _checksum(records)
            ):
                return byte, seq
            if found is not None and line["key"] is not None:
                by = msgspec.json.decode(line["by"], type=str) if line["by"] is not None else None
                found.append(Keyed(msgspec.json.decode(line["key"], type=str), seq + 1, number, by))
            byte, seq, records = position, number, []
    return byte, seq


def keys_within(path: Path, size: int) -> list[Keyed]:
    """The idempotency keys in the first `size` bytes of a segment, oldest first; raise `LogDamage`."""
    if size == 0:
        return []
    keys: list[Keyed] = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
        end, seq = sound_end(data, 0, int(path.stem) - 1, keys, size)
    if end != size:
        raise damage(path, end, f"the append after record {seq} does not match its checksum")
    return keys


def _checksum(lines: Sequence[bytes]) -> int:
    return zlib.crc32(b"\n".join(lines))


# Reading


@dataclass(frozen=True)
class Span:
    """The bytes from `begin` to before `end` of a segment: whole lines."""

    path: Path
    begin: int
    end: int


def spans(folder: Path, after: int, until: int, head: Head | None) -> list[Span]:
    """Where the records with after < seq <= until lie, as far as they are durable."""
    if head is None:
        return []
    until = min(until, head.seq)
    firsts = [first for first in segments(folder) if first <= head.segment]
    place = max(0, bisect_right(firsts, after + 1) - 1)
    found = []
    for first, following in zip(firsts[place:], [*firsts[place + 1 :], head.seq + 1], strict=True):
        if first > until or after >= until:
            break
        path = segment_path(folder, first)
        with path.open("rb", buffering=0) as file:
            descriptor = file.fileno()
            size = head.byte if first == head.segment else os.fstat(descriptor).st_size
            begin = _find(path, descriptor, size, after + 1) if first <= after else 0
            end = _find(path, descriptor, size, until + 1) if until + 1 < following else size
        found.append(Span(path, begin, end))
    return found


def chunks(found: Sequence[Span], after: int | None = None) -> Iterator[bytes]:
    """The lines of these spans, many at a time, each checked.

    With `after`, the first line must be that of the record after it.
    """
    seq = after
    for span in found:
        with span.path.open("rb", buffering=0) as file:
            begin = span.begin
            for chunk in _whole_lines(span.path, file.fileno(), span.begin, span.end):
                seq = _check(span.path, begin, chunk, seq)
                begin += len(chunk)
                yield chunk


def _check(path: Path, begin: int, chunk: bytes, seq: int | None) -> int | None:
    """Check each line, and that their numbers go on from `seq`; return the last number."""
    for line in chunk.split(b"\n")[:-1]:
        if not is_sound(line):
            raise damage(path, begin, "the line does not match its checksum")
        known = _NUMBER.match(line)
        number = int(known[1]) if known else -1
        if seq is not None and number != seq + 1:
            raise damage(path, begin, f"record {number} stands where {seq + 1} belongs")
        seq, begin = number, begin + len(line) + 1
    return seq


def entries(found: Sequence[Span], after: int | None = None) -> Iterator[Entry]:
    """The records of these spans one by one, without what only the log needs to know."""
    for chunk in chunks(found, after):
        for line in chunk.split(b"\n")[:-1]:
            known = _LINE.fullmatch(line)
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
    known = _NUMBER.match(os.pread(descriptor, 60, position))
    if known is None:
        raise damage(path, position, "no line of a record begins here")
    return int(known[1])
