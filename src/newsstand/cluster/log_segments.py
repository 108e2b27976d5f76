"""How the log of one dataset lies in its folder; what writers, readers and Spark's executors know in common.

Segments are files of lines, named after the number of their first record. A line is the record with its number and
time in front: `{"_crc":"1c291ca3","_seq":7,"_at":1700000000000,"id":"a"}`. `_crc` is the CRC-32 of all that
follows it in the line; every reader checks it. The last line of an append also has `_end`, the number of the
append's first record, `_commit`, the first record that was written and synced together with it if that is another
one, `_key`, its idempotency key if it has one, and `_by`, the publisher whose key it is. Lines of older versions
have no `_crc`; there `_sum` in the last line of an append is a checksum of its records.

A file `FIRST-LAST.gap` stands for records that are lost, as `newsstand log repair` found. Segments and gaps follow
each other without holes: a segment ends where the next file begins. Beside each full segment lies its seal, a file
`.keys` (see `log_seals`).

The file `head` tells how far the log is durable. Readers never go beyond it, so they see whole appends only. It is
overwritten in place after each append and not synced: after a power loss it may be behind, and then a writer finds
the true end by the checksums.
"""

from __future__ import annotations

import mmap
import os
import re
import shlex
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from newsstand.errors import LogDamage

REPAIR = ".repair-"
"""In the folder of all datasets, what the name of the journal of an unfinished repair begins with."""

_SEGMENT = re.compile(r"(\d{20})\.ndjson")
_GAP = re.compile(r"(\d{20})-(\d{20})\.gap")
LINE = re.compile(
    rb'\{(?P<crc>"_crc":"[0-9a-f]{8}",)?"_seq":(?P<seq>\d+),"_at":(?P<at>-?\d+)'
    rb'(?:,"_end":(?P<end>\d+)(?:,"_commit":(?P<commit>\d+))?(?:,"_sum":(?P<sum>\d+))?'
    rb'(?:,"_key":(?P<key>"(?:[^"\\]|\\.)*")(?:,"_by":(?P<by>"(?:[^"\\]|\\.)*"))?)?)?'
    rb"(?P<rest>,.*|)\}",
    re.DOTALL,
)
NUMBER = re.compile(rb'\{(?:"_crc":"[0-9a-f]{8}",)?"_seq":(\d+),')
_HEAD = re.compile(rb"(\d{20}) (\d{20}) (\d{20}) (\d{10})\n")


@dataclass(frozen=True)
class Head:
    """How far a log is durable: up to record `seq`, which ends before `byte` of the segment `segment`."""

    segment: int
    byte: int
    seq: int


@dataclass(frozen=True)
class Part:
    """A file of the log: a segment, by its first record, or a gap, by its first and last."""

    first: int
    last: int | None = None

    @property
    def is_gap(self) -> bool:
        """Whether its records are lost."""
        return self.last is not None


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


def gap_path(folder: Path, first: int, last: int) -> Path:
    """The file that stands for these lost records."""
    return folder / f"{first:020d}-{last:020d}.gap"


def part_path(folder: Path, part: Part) -> Path:
    """The file of a part."""
    return segment_path(folder, part.first) if part.last is None else gap_path(folder, part.first, part.last)


def parts(folder: Path) -> list[Part]:
    """All segments and gaps, in order; none if there is no folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = [Part(int(known[1])) for known in map(_SEGMENT.fullmatch, names) if known]
    found += [Part(int(known[1]), int(known[2])) for known in map(_GAP.fullmatch, names) if known]
    return sorted(found, key=lambda part: (part.first, part.is_gap))


def segments(folder: Path) -> list[int]:
    """The first numbers of all segments, in order."""
    return [part.first for part in parts(folder) if not part.is_gap]


def lost_within(folder: Path, after: int, until: int) -> int:
    """How many of the records with after < seq <= until are lost."""
    gaps = ((part.first, part.last) for part in parts(folder) if part.last is not None)
    return sum(max(0, min(until, last) - max(after, first - 1)) for first, last in gaps)


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
    """The error for a damaged file of the log, which lies in DATA/log/DATASET."""
    return LogDamage(f"{path}, byte {byte}: {what}; {repair_command(path.parents[2])}")


def repair_command(data: Path) -> str:
    """What to do about a damaged log of a data folder."""
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
    """The bytes of one append: records with what the log adds to them.

    `commit` is the first record that is written and synced together with this append.
    """
    at = b',"_at":%d' % at_ms
    extra = b',"_end":%d' % first
    if commit is not None and commit != first:
        extra += b',"_commit":%d' % commit
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
        return LINE.fullmatch(line) is not None
    return line[:18] == b'{"_crc":"%08x"' % zlib.crc32(line[18:])


def parse_line(line: bytes) -> re.Match[bytes] | None:
    """The parts of a sound line; None if the line is damaged."""
    return LINE.fullmatch(line) if is_sound(line) else None


def keyed_of(line: re.Match[bytes]) -> Keyed | None:
    """The numbers of the append that a line ends, if the append has an idempotency key."""
    if line["end"] is None or line["key"] is None:
        return None
    by = msgspec.json.decode(line["by"], type=str) if line["by"] is not None else None
    return Keyed(msgspec.json.decode(line["key"], type=str), int(line["end"]), int(line["seq"]), by)


Bytes = bytes | mmap.mmap


def mapped(path: Path, size: int) -> Bytes:
    """The first `size` bytes of a file."""
    if size == 0:
        return b""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)


def sound_lines(data: Bytes, byte: int, seq: int, limit: int) -> Iterator[tuple[int, re.Match[bytes]]]:
    """The lines from `byte` on, each with the byte after it, while they are sound and their numbers follow `seq`.

    The last line of an append ends the sequence, too, if the append's own checksum, `_sum`, does not match.
    """
    records: list[bytes] = []
    while byte < limit:
        end = data.find(b"\n", byte, limit)
        line = parse_line(data[byte:end]) if end >= 0 else None
        if line is None or int(line["seq"]) != seq + 1:
            return
        if line["crc"] is None:
            records.append(b"{" + line["rest"][1:] + b"}")
            whole = line["end"] is not None and int(line["end"]) == seq + 2 - len(records)
            if whole and int(line["sum"] or -1) != zlib.crc32(b"\n".join(records)):
                return
        byte, seq = end + 1, seq + 1
        if line["end"] is not None:
            records = []
        yield byte, line


def sound_end(
    data: Bytes, byte: int, seq: int, found: list[Keyed] | None = None, limit: int | None = None
) -> tuple[int, int]:
    """How far whole appends go on in a segment after record `seq`, which ends before `byte`: the new two.

    Their idempotency keys go to `found`. After a gap the first append may have begun before this segment.
    """
    follows = byte == 0
    for end, line in sound_lines(data, byte, seq, len(data) if limit is None else limit):
        if line["end"] is not None:
            first = int(line["end"])
            if first != seq + 1 and not (follows and first <= seq):
                break
            keyed = keyed_of(line)
            if found is not None and keyed is not None:
                found.append(keyed)
            byte, seq, follows = end, int(line["seq"]), False
    return byte, seq


def has_later_commit(data: Bytes, byte: int, seq: int) -> bool:
    """Whether after `byte`, where record `seq` ends, stands what was only written when all before it was durable.

    Then what is damaged between the two was accepted; otherwise it may be of an append that a crash cut off.
    """
    while (end := data.find(b"\n", byte)) >= 0:
        line = parse_line(data[byte:end])
        if line is not None and line["end"] is not None and int(line["commit"] or line["end"]) > seq + 1:
            return True
        byte = end + 1
    return False
