"""The file format of one dataset's log, shared by writers, readers and Spark's executors.

Segments are files of lines, named after the number of their first record. A line is the record with its number and
time in front: `{"_crc":"1c291ca3","_seq":7,"_at":1700000000000,"id":"a"}`. `_crc` is the CRC-32 of the rest of the
line; every reader checks it. The last line of an append also has `_end`, the number of the append's first record;
`_commit`, the first record of the group that was written and synced with it, if that is another one; `_key`, its
idempotency key, if any; and `_by`, the publisher of the key.

A file `FIRST-LAST.gap` replaces records that a repair could not recover. Segments and gaps are contiguous: each
ends where the next file begins.

The file `head` is the durable end of the log. Readers never read beyond it, so they see complete appends only. It
is overwritten in place after each append and not synced: after a power loss it may be behind; the writer then
finds the end by the checksums.

Each full segment has a seal, a file `.keys`: its idempotency keys and the CRC-32 of the segment, with which a
start verifies it at the speed of the disk. Seals are derived: a missing or damaged one is written again from the
lines. Seals and gaps are files of JSON after the CRC-32 of it.
"""

from __future__ import annotations

import logging
import mmap
import os
import re
import shlex
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from newsstand.cluster.log.contract import LostRange
from newsstand.config.files import write_atomically
from newsstand.errors import LogDamage

logger = logging.getLogger(__name__)

REPAIR = ".repair-"
"""Prefix of the journals of unfinished repairs, in the folder of all datasets."""

_PART = re.compile(r"(\d{20})(?:\.ndjson|-(\d{20})\.gap)")
LINE = re.compile(
    rb'\{"_crc":"[0-9a-f]{8}","_seq":(?P<seq>\d+),"_at":(?P<at>-?\d+)'
    rb'(?:,"_end":(?P<end>\d+)(?:,"_commit":(?P<commit>\d+))?'
    rb'(?:,"_key":(?P<key>"(?:[^"\\]|\\.)*")(?:,"_by":(?P<by>"(?:[^"\\]|\\.)*"))?)?)?'
    rb"(?P<rest>,.*|)\}",
    re.DOTALL,
)
NUMBER = re.compile(rb'\{"_crc":"[0-9a-f]{8}","_seq":(\d+),')
_HEAD = re.compile(rb"(\d{20}) (\d{20}) (\d{20}) (\d{10})\n")


@dataclass(frozen=True)
class Head:
    """The durable end of a log: record `seq`, which ends before `byte` of the segment `segment`."""

    segment: int
    byte: int
    seq: int


@dataclass(frozen=True)
class LogPart:
    """A segment, named by its first record, or a gap, named by its first and last."""

    folder: Path
    first: int
    last: int | None = None

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / f"{self.first:020d}{'.ndjson' if self.last is None else f'-{self.last:020d}.gap'}"


@dataclass(frozen=True)
class KeyedAppend:
    """The numbers of the records of an append with an idempotency key."""

    key: str
    first: int
    last: int
    publisher: str | None = None


EMPTY = Head(1, 0, 0)
"""The end of a log without records."""


def segment_path(folder: Path, first: int) -> Path:
    """Return the path of the segment with this first record."""
    return LogPart(folder, first).path


def parts(folder: Path) -> list[LogPart]:
    """List the segments and gaps of a folder in order; none if there is no folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = [match.groups() for match in map(_PART.fullmatch, names) if match]
    listed = [LogPart(folder, int(first), None if last is None else int(last)) for first, last in found]
    return sorted(listed, key=lambda part: (part.first, part.last is not None))


def lost_within(folder: Path, after: int, until: int) -> int:
    """Count the records with after < seq <= until that are lost."""
    gaps = ((part.first, part.last) for part in parts(folder) if part.last is not None)
    return sum(max(0, min(until, last) - max(after, first - 1)) for first, last in gaps)


# Head


def encode_head(head: Head) -> bytes:
    """Encode the file `head`; its length is constant."""
    text = b"%020d %020d %020d" % (head.segment, head.byte, head.seq)
    return text + b" %010d\n" % zlib.crc32(text)


def read_head(folder: Path) -> Head | None:
    """Return the durable end of the log in a folder; None if there is no log. Raise `LogDamage`."""
    path = folder / "head"
    for _ in range(100):  # a read may see a partial overwrite
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        match = _HEAD.fullmatch(data)
        if match and int(match[4]) == zlib.crc32(data[:62]):
            return Head(int(match[1]), int(match[2]), int(match[3]))
    raise damage(path, 0, "its checksum does not match")


def damage(path: Path, byte: int, what: str) -> LogDamage:
    """Return the error for a damaged file of the log, in DATA/log/DATASET."""
    return LogDamage(f"{path}, byte {byte}: {what}; {repair_command(path.parents[2])}")


def repair_command(data: Path) -> str:
    """Return the advice for a damaged log of a data folder."""
    return f"stop the cluster and run: newsstand log repair {shlex.quote(str(data))}"


# Lines


def encode_append(
    lines: Sequence[bytes],
    first: int,
    at_ms: int,
    key: str | None,
    publisher: str | None = None,
    commit: int | None = None,
) -> bytes:
    """Encode the lines of one append; `commit` is the first record that is written and synced together with it."""
    at = b',"_at":%d' % at_ms
    extra = b',"_end":%d' % first
    if commit is not None and commit != first:
        extra += b',"_commit":%d' % commit
    if key is not None:
        extra += b',"_key":' + msgspec.json.encode(key)
        if publisher is not None:
            extra += b',"_by":' + msgspec.json.encode(publisher)
    last = first + len(lines) - 1
    encoded = []
    for seq, line in enumerate(lines, first):
        end = extra if seq == last else b""
        rest = b',"_seq":%d%b%b%b%b' % (seq, at, end, b"," * (len(line) > 2), line[1:])
        encoded.append(b'{"_crc":"%08x"%b\n' % (zlib.crc32(rest), rest))
    return b"".join(encoded)


def is_valid(line: bytes) -> bool:
    """Return whether a line, without its line feed, matches its checksum."""
    return line[:18] == b'{"_crc":"%08x"' % zlib.crc32(line[18:])


def parse_line(line: bytes) -> re.Match[bytes] | None:
    """Parse a line; return None if it is damaged."""
    return LINE.fullmatch(line) if is_valid(line) else None


def keyed_append(line: re.Match[bytes]) -> KeyedAppend | None:
    """Return the append that a line ends, if it has an idempotency key."""
    if line["end"] is None or line["key"] is None:
        return None
    by = msgspec.json.decode(line["by"], type=str) if line["by"] is not None else None
    return KeyedAppend(msgspec.json.decode(line["key"], type=str), int(line["end"]), int(line["seq"]), by)


SegmentBytes = bytes | mmap.mmap


def map_file(path: Path, size: int) -> SegmentBytes:
    """Map the first `size` bytes of a file into memory."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""


def valid_lines(data: SegmentBytes, byte: int, seq: int, limit: int) -> Iterator[tuple[int, re.Match[bytes]]]:
    """Yield the lines from `byte` on, each with the byte after it, while they are valid and continue `seq`."""
    while byte < limit:
        end = data.find(b"\n", byte, limit)
        line = parse_line(data[byte:end]) if end >= 0 else None
        if line is None or int(line["seq"]) != seq + 1:
            return
        byte, seq = end + 1, seq + 1
        yield byte, line


def valid_end(
    data: SegmentBytes, byte: int, seq: int, found: list[KeyedAppend] | None = None, limit: int | None = None
) -> tuple[int, int]:
    """Return the byte and the number where the complete appends end that follow record `seq` at `byte`.

    Append their idempotency keys to `found`. After a gap the first append may have begun before this segment.
    """
    follows = byte == 0
    for end, line in valid_lines(data, byte, seq, len(data) if limit is None else limit):
        if line["end"] is not None:
            first = int(line["end"])
            if first != seq + 1 and not (follows and first <= seq):
                break
            if found is not None and (keyed := keyed_append(line)) is not None:
                found.append(keyed)
            byte, seq, follows = end, int(line["seq"]), False
    return byte, seq


def has_later_commit(data: SegmentBytes, byte: int, seq: int) -> bool:
    """Return whether an append follows that was only written after everything up to it was durable.

    Then damaged lines between `byte`, where record `seq` ends, and that append were accepted; otherwise they may
    belong to an append that a crash interrupted.
    """
    while (end := data.find(b"\n", byte)) >= 0:
        line = parse_line(data[byte:end])
        if line is not None and line["end"] is not None and int(line["commit"] or line["end"]) > seq + 1:
            return True
        byte = end + 1
    return False


class Seal(msgspec.Struct, frozen=True):
    """A summary of a full segment: records, size, checksum, and keys, oldest first."""

    first: int
    last: int
    size: int
    crc: int
    keys: Sequence[KeyedAppend] = ()


class Gap(LostRange, frozen=True):
    """The records that a gap replaces."""

    keys: Sequence[KeyedAppend] = ()
    """Keys of appends that are partly left: repeating such an append still adds nothing."""


_Checked = TypeVar("_Checked", Seal, Gap)


def seal_path(folder: Path, first: int) -> Path:
    """Return the path of the seal of a segment."""
    return segment_path(folder, first).with_suffix(".keys")


def write_checked(path: Path, value: Seal | Gap) -> None:
    """Write a seal or a gap with its checksum, atomically and durably."""
    data = msgspec.json.encode(value)
    write_atomically(path, b"%08x\n%b" % (zlib.crc32(data), data))


def _read(path: Path, kind: type[_Checked]) -> _Checked | None:
    checksum, _, data = path.read_bytes().partition(b"\n")
    return msgspec.json.decode(data, type=kind) if checksum == b"%08x" % zlib.crc32(data) else None


def read_seal(folder: Path, first: int) -> Seal | None:
    """Return the seal of a segment; None if it is missing or damaged."""
    try:
        seal = _read(seal_path(folder, first), Seal)
    except FileNotFoundError:
        return None
    return seal if seal is not None and seal.first == first else None


def read_gap(part: LogPart) -> Gap:
    """Read a gap; raise `LogDamage`."""
    gap = _read(part.path, Gap)
    if gap is None or (gap.first, gap.last) != (part.first, part.last):
        raise damage(part.path, 0, "its checksum does not match")
    return gap


def verify_segment(folder: Path, first: int, last: int) -> Seal:
    """Verify a full segment whose last record is `last`; raise `LogDamage` with the position."""
    path = segment_path(folder, first)
    size = path.stat().st_size
    data = map_file(path, size)
    crc = zlib.crc32(data)
    seal = read_seal(folder, first)
    if seal is not None and (seal.last, seal.size, seal.crc) == (last, size, crc):
        return seal
    if seal is not None or seal_path(folder, first).exists():
        logger.warning("%s: does not match its segment; writing it again", seal_path(folder, first))
    seal = Seal(first, last, size, crc, _verified_keys(path, data, size, first, last))
    write_checked(seal_path(folder, first), seal)
    return seal


def _verified_keys(path: Path, data: SegmentBytes, size: int, first: int, last: int) -> list[KeyedAppend]:
    """Return the keys of a segment; raise `LogDamage` unless it has exactly the records from `first` to `last`."""
    end, seq, keys = 0, first - 1, []
    for end, line in valid_lines(data, 0, first - 1, size):  # noqa: B007  the end of the last valid line
        seq += 1
        if (keyed := keyed_append(line)) is not None:
            keys.append(keyed)
    if end != size:
        raise damage(path, end, f"the line after record {seq} does not match its checksum or its number")
    if seq < last:
        raise damage(path, end, f"records {seq + 1} to {last} are missing here")
    if seq > last:
        raise damage(path, end, f"the records end with {seq}, and record {last + 1} begins the next file")
    return keys
